"""docs/http/README.md lists every route of docs/openapi.json, and its pages name every parameter."""

from __future__ import annotations

import json
import re
from pathlib import Path

from keylane.model import routes

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
