"""The console's files: their size, what they load, and what is generated of them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from keylane.api.http import problems
from keylane.model.routes import ROUTES
from keylane_build import console_reference
from keylane_server.pages import CONSOLE_HEADERS, OwnPages, is_console, serve_console

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "clients" / "console"
LIMIT_BYTES = 200_000
PARSED_OR_FOREIGN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|@import|url\("
)
FILES = sorted(each for each in FOLDER.iterdir())
PAGES = ("index.html", "docs.html")
OF_THE_REFERENCE = {"docs.html", "docs.css", "docs.js", "openapi.json"}
"""A page of its own, which the console only links to."""


def test_the_whole_page_is_small():
    assert sum(each.stat().st_size for each in FILES if each.name not in OF_THE_REFERENCE) < LIMIT_BYTES


def test_the_reference_is_up_to_date():
    stored = json.loads((ROOT / console_reference.PATH).read_text(encoding="utf-8"))
    assert stored == console_reference.reference(ROOT), "make generate"


def test_each_route_has_a_form_and_each_problem_its_meaning():
    made = console_reference.reference(ROOT)
    assert {each["id"] for each in made["operations"]} == {route.name for route in ROUTES}
    names = {kind.name for kind in problems.KINDS.values()}
    assert not names - made["problems"].keys()
    assert not [text for text in made["problems"].values() if "](" in text or "`" in text]


def test_the_page_loads_its_own_files_and_nothing_else():
    named: set[str] = set()
    for name in PAGES:
        page = (FOLDER / name).read_text(encoding="utf-8")
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
        named |= set(re.findall(r'(?:src|href)="([^"#]+)"', page))
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        if file.suffix in {".js", ".css"}:
            assert not PARSED_OR_FOREIGN.search(text)
            named |= _imports(text)
    assert named - {"login.json"} == {each.name for each in FILES}  # the server makes that one


def _imports(text: str) -> set[str]:
    return {one or other for one, other in re.findall(r'from "\./([a-z]+\.js)"|fetch\("([a-z.]+)"', text)}


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/app.js", "/console/../x"])
def test_paths_below_console_belong_to_it_and_no_others(path):
    assert is_console(path)
    assert "Content-Security-Policy" in serve_console(FOLDER, path).headers
    assert not any(map(is_console, ("/consoles", "/", "/topics/console", "/Console")))


@pytest.mark.parametrize(
    ("path", "location"), [("/docs", "console/docs.html"), ("/docs/", "../console/docs.html")]
)
def test_the_reference_is_a_page_of_the_console_below_its_policy(path, location):
    page = asyncio.run(pages_of(FOLDER).find(path)(""))
    assert (page.status, page.headers["Location"]) == (308, location)
    assert page.headers["Content-Security-Policy"] == CONSOLE_HEADERS["Content-Security-Policy"]


def test_the_document_is_served_and_without_the_console_neither_is():
    page = asyncio.run(pages_of(FOLDER).find("/openapi.json")(""))
    assert json.loads(page.body)["openapi"]
    assert page.headers.items() >= {"Content-Type": "application/json", **CONSOLE_HEADERS}.items()
    for path in ("/docs", "/docs/", "/openapi.json", "/console/"):
        assert pages_of(None).find(path) is None
    assert pages_of(FOLDER).find("/docs/index.html") is None


def test_a_file_is_read_once_by_whatever_path_it_is_asked_for(tmp_path):
    (tmp_path / "index.html").write_text("first", encoding="utf-8")
    pages = pages_of(tmp_path)
    paths = ("/console/", "/console/index.html")
    ask = lambda path: asyncio.run(pages.find(path)("")).body  # noqa: E731
    assert [ask(path) for path in paths] == [b"first"] * 2
    (tmp_path / "index.html").write_text("second", encoding="utf-8")
    assert [ask(path) for path in paths] == [b"first"] * 2
    assert asyncio.run(pages.find("/console/none.html")("")).status == 404
    assert [ask("/console/" + "./" * number + "index.html") for number in range(1, 4)] == [b"second"] * 3
    assert set(pages._files) == {"index.html"}


def pages_of(console):
    return OwnPages(metrics=None, flush=lambda: None, console=console)


def test_a_route_without_an_example_has_an_empty_form(tmp_path):
    (tmp_path / "docs" / "http").mkdir(parents=True)
    page = tmp_path / "docs" / "http" / "errors.md"
    page.write_text("| `x` | 400 | - | Act. [Act](../operate/a.md#x) |\n", encoding="utf-8")
    made = console_reference.reference(tmp_path)
    assert all("example" not in each for each in made["operations"])
    assert made["problems"] == {"x": "Act. Operators: docs/operate/a.md#x."}
