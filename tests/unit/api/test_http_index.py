"""docs/http lists every route and parameter of docs/openapi.json, and every problem type."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from keylane.model import routes
from keylane_server import refusals, streams

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "http"
INDEX = (PAGES / "README.md").read_text(encoding="utf-8")
PATHS = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]


def test_index_lists_every_route_and_no_other():
    rows = re.findall(r"^\| ((?:`[A-Z]+`(?:, )?)+) \| `(/[^`?]*)` \|", INDEX, re.MULTILINE)
    listed = {(method, path) for methods, path in rows for method in re.findall(r"[A-Z]+", methods)}
    made = {(method.upper(), path) for path, methods in PATHS.items() for method in methods}
    assert listed == {(method, path) for method, path in made if method not in {"HEAD", "PARAMETERS"}}


def test_every_get_route_takes_head_as_the_index_says():
    streams = {routes.BY_NAME[name].path for name in routes.STREAMS}
    assert {path for path, methods in PATHS.items() if "get" in methods and "head" not in methods} == streams


def test_pages_name_every_parameter():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    names = {
        parameter["name"]
        for methods in PATHS.values()
        for operation in methods.values()
        if isinstance(operation, dict)
        for parameter in operation.get("parameters", [])
        if parameter["in"] != "path"
    }
    assert not {name for name in names if not re.search(rf"`[^`\n]*\b{re.escape(name)}\b", text)}


PAGE = (PAGES / "errors.md").read_text(encoding="utf-8")
[PROBLEMS] = ROOT.glob("layers/keylane/python/keylane/**/problems.py")
KIND = re.compile(r'Problem\(\s*(\d{3}), "([a-z-]+)", "[^"]+"(?:, "([A-Z_]+)")?\s*\)')
GATEWAY = set(
    re.findall(
        r'problem:([a-z-]+)", "title": [^\n]+?"status": (\d{3})',
        (ROOT / "template.yaml").read_text(encoding="utf-8"),
    )
)
KINDS = {
    name: (status, code)
    for status, name, code in KIND.findall(PROBLEMS.read_text(encoding="utf-8"))
    if name not in {"unauthorized", "forbidden"}
}
"""Those of access stand with API Gateway's, also where functions answer with them."""


def rows(page: str) -> dict[tuple[str, str], str]:
    """(type, status) -> the third cell."""
    found = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \| ([^|]+) \|", page, re.MULTILINE)
    return {(name, status): cell for name, status, cell in found}


OURS, _, REST = PAGE.partition("## Errors of API Gateway")
GATEWAYS, _, SERVERS = REST.partition("## Errors of the standing server")


@pytest.mark.parametrize("name", KINDS)
def test_page_has_each_problem_type_with_its_status_and_code(name):
    status, code = KINDS[name]
    cell = rows(OURS)[name, status]
    assert not code or cell == f"`{code}`"


def test_page_has_no_problem_type_that_is_not_there():
    assert {name for name, _ in rows(OURS)} == KINDS.keys()
    assert {status for _, status in rows(OURS)} <= {status for status, _ in KINDS.values()}


def test_page_has_what_api_gateway_answers_itself():
    assert rows(GATEWAYS).keys() == GATEWAY


def test_page_has_what_the_standing_server_answers_itself():
    own = (refusals.OVERLOADED, refusals.BODY_TIMEOUT, streams.SLOW_READER)
    kinds = {(kind.name, str(kind.status)) for kind in own}
    assert rows(SERVERS).keys() == kinds
