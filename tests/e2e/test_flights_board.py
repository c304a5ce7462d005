"""The example in Chromium, as two customers: rows and fields, an own write, refused tokens, an agent."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import urllib3
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from tests.e2e.test_start_page import paste
from tests.servers.own import PATIENCE_S, eventually
from tests.servers.standing import standing
from tests.support.agents import a_message
from tests.support.browser import TIMEOUT_MS, Tab, chromium
from tests.support.node import client_modules

from keylane_local.process.ports import Ports
from keylane_local.stack.stack import Stack
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = project_root() / "examples" / "flights-board"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
PAGE_LINES, PAGE_COLUMNS = 150, 140
TOPIC = "delayed"
"""A topic of the tests' stack with the field that a rule of the example compares."""
FLIGHT = {
    "carrier": "UA",
    "flight": 1545,
    "dest": "IAH",
    "sched_dep_time": 515,
    "dep_time": 640,
    "dep_delay": 85,
}


@pytest.fixture(scope="module")
def board() -> ModuleType:
    """The example's program, which finds its issuer beside itself."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("board")
    finally:
        sys.path.remove(str(FOLDER))


class Served:
    """The board's address, that of its API, and its issuer."""

    def __init__(self, url: str, api: str, issuer: Any) -> None:
        self.url, self.api, self.issuer = url, api, issuer


@pytest.fixture(scope="module")
def served(board, applied_stack, tmp_path_factory):
    """The board over a topic of the tests' stack, with the rights of the example."""
    folder, port = tmp_path_factory.mktemp("board"), Ports().any()
    url = f"http://localhost:{port}"
    rights = (FOLDER / "access.toml").read_text(encoding="utf-8")
    policy = folder / "access.toml"
    policy.write_text(
        rights.replace(board.PAGE, url).replace('["flights"]', f'["{TOPIC}"]'), encoding="utf-8"
    )
    access = {"KEYLANE_ACCESS": f"file:{policy}", "KEYLANE_CORS_ORIGIN": url}
    variables = {**applied_stack.environment(), **access}
    issuer = board.Issuer(f"{url}/")
    with (
        standing(folder / "log", variables, "--authorization", "tokens") as server,
        board.serving_board(issuer, client_modules(), server.url, port, TOPIC),
    ):
        yield Served(url, server.url, issuer)


@pytest.fixture(scope="module")
def browser(served):
    with chromium() as running:
        yield running


@pytest.fixture
def open_as(browser, served):
    """Opens the board as a customer, in a tab of its own."""
    tabs: list[Tab] = []

    def open_tab(customer: str, **options: Any):
        tab = Tab(browser, viewport={"width": 1120, "height": 900}, **options)
        tab.expected = "Failed to load resource"  # of requests that are to be refused
        tabs.append(tab)
        tab.page.goto(f"{served.url}/?customer={customer}")
        return tab.page

    yield open_tab
    for tab in tabs:
        tab.close()


@pytest.fixture
def depart(client):
    """Writes departures past the rights, as the example's program does."""

    def write(key: str, **values: Any) -> None:
        written = client.put(TOPIC, key.encode(), json.dumps({**FLIGHT, **values}).encode())
        assert client.get_at(TOPIC, key.encode(), written).status == 200

    return write


def row(page, key: str):
    return page.locator(f'#rows tr[data-key="{key}"]')


def is_live(page) -> None:
    expect(page.locator("#live")).to_contain_text("Live: ", timeout=TIMEOUT_MS)


def test_each_customer_sees_its_rows_and_fields_alone_and_changes_arrive(open_as, depart):
    depart("B6/N1BOARD", carrier="B6", origin="JFK", note="for JetBlue alone")
    depart("UA/N2BOARD", origin="LGA", dest="<b>", note="for United alone")
    airline, airport = open_as("JetBlue"), open_as("LaGuardia")
    expect(row(airline, "B6/N1BOARD")).to_contain_text("for JetBlue alone", timeout=TIMEOUT_MS)
    expect(row(airport, "UA/N2BOARD")).to_contain_text("85 min late", timeout=TIMEOUT_MS)
    expect(row(airport, "UA/N2BOARD")).to_contain_text("<b>")
    depart("UA/N2BOARD", origin="EWR")
    depart("UA/N3BOARD", origin="LGA", dep_time=None)
    expect(row(airport, "UA/N3BOARD")).to_contain_text("cancelled", timeout=TIMEOUT_MS)
    expect(row(airport, "UA/N2BOARD")).to_have_count(0, timeout=TIMEOUT_MS)
    keys = airline.locator("#rows tr").evaluate_all("(rows) => rows.map((row) => row.dataset.key)")
    assert keys
    assert {key.partition("/")[0] for key in keys} == {"B6"}
    from_airports = airport.locator("#rows tr").evaluate_all(
        "(rows) => rows.map((row) => row.cells[2].innerText)"
    )
    assert {*from_airports} == {"LGA"}
    assert "alone" not in airport.content()


def test_what_an_airline_announces_it_reads_back_and_the_airport_sees_without_its_note(open_as):
    airline, airport = open_as("JetBlue"), open_as("LaGuardia")
    is_live(airline)
    is_live(airport)
    expect(airport.get_by_label("Own note")).to_be_hidden()
    airline.get_by_label("Aircraft", exact=True).fill("N4BOARD")
    airline.get_by_label("Own note").fill("a crew that is late")
    airline.get_by_role("button", name="Announce").click()
    expect(airline.locator("#announced")).to_contain_text("read back as LGA → SFO", timeout=TIMEOUT_MS)
    expect(airline.locator("#history li").first).to_contain_text("LGA → SFO, on time", timeout=TIMEOUT_MS)
    expect(row(airline, "B6/N4BOARD")).to_contain_text("a crew that is late", timeout=TIMEOUT_MS)
    expect(row(airport, "B6/N4BOARD")).to_contain_text("on time", timeout=TIMEOUT_MS)
    assert "a crew that is late" not in airport.content()


@pytest.mark.parametrize("kind", ["expired", "foreign"])
def test_a_token_that_is_expired_or_foreign_is_refused(browser, board, served, kind):
    issuer = served.issuer if kind == "expired" else board.Issuer(f"{served.url}/")
    token = issuer.token("JetBlue", -60 if kind == "expired" else 60)
    tab = Tab(browser)
    tab.expected = "Failed to load resource"
    tab.page.route("**/token", lambda route: route.fulfill(body=token))
    tab.page.goto(f"{served.url}/?customer=JetBlue")
    expect(tab.page.locator("#live")).to_contain_text("Not live: 401", timeout=TIMEOUT_MS)
    assert tab.page.locator("#rows tr").count() == 0
    tab.page.get_by_role("button", name="Announce").click()
    expect(tab.page.locator("#announced")).to_contain_text("Not announced: 401", timeout=TIMEOUT_MS)
    tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1120])
@pytest.mark.parametrize("customer", ["JetBlue", "LaGuardia"])
def test_axe_finds_nothing(open_as, depart, customer, scheme, width):
    depart("B6/N5BOARD", carrier="B6", origin="LGA")
    page = open_as(customer, color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    expect(row(page, "B6/N5BOARD")).to_be_visible(timeout=TIMEOUT_MS)
    if customer == "JetBlue":
        page.get_by_role("button", name="Announce").click()
        expect(page.locator("#history li").first).to_be_visible(timeout=TIMEOUT_MS)
    found = Axe().run(page)
    assert [each["id"] for each in found.response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_page_has_150_lines():
    files = [path for path in (FOLDER / "page").iterdir() if path.suffix in {".html", ".css", ".js"}]
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(files) == 3
    assert len(lines) <= PAGE_LINES
    assert max(map(len, lines)) <= PAGE_COLUMNS


@pytest.mark.long
@pytest.mark.timeout(900)
def test_make_example_is_as_its_page_says(browser, board, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "examples" / FOLDER.name, ignore=shutil.ignore_patterns(".keylane"))
    make = [
        "make",
        "-f",
        project_root() / "Makefile",
        "-o",
        "setup-typescript",
        f"BIN={Path(sys.executable).parent}",
    ]
    output, stack = tmp_path / "output", Stack(tmp_path / "examples" / FOLDER.name / ".keylane")
    with output.open("wb") as log:
        example = subprocess.Popen([*make, "example"], cwd=tmp_path, stdout=log, stderr=log)
    try:
        eventually(lambda: f"{board.PAGE}/".encode() in output.read_bytes(), PATIENCE_S)
        assert_commands_are_answered_as_shown()
        assert_agent_is_answered_as_shown(board)
        assert_departures_arrive(browser, board)
    finally:
        for process in psutil.Process(example.pid).children(recursive=True):
            process.send_signal(signal.SIGINT)
        assert example.wait(PATIENCE_S) is not None, output.read_text()
        stack.down(wipe=True)


def assert_commands_are_answered_as_shown() -> None:
    """The requests of the README, pasted."""
    block = README.partition("does not exist:\n\n```console\n")[2].partition("```")[0]
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    shown = json.loads(next(line for line in block.splitlines() if line.startswith("{")))
    printed = paste("", [f"{each}; echo" for each in commands]).split("\n")
    assert json.loads(printed[1]) == shown
    assert json.loads(printed[2])["type"] == "urn:keylane:problem:key-absent"


def assert_agent_is_answered_as_shown(board) -> None:
    """The agent's calls of the README: each result has what is shown of it."""
    block = README.partition("```text\n")[2].partition("```")[0]
    calls = [each.split("\n", 1) for each in block.strip().split("\n\n")]
    assert [call.partition(" ")[0] for call, _ in calls] == ["find", "get"]
    http = urllib3.PoolManager()
    token = http.request_encode_body(
        "POST", f"{board.PAGE}/token", {"customer": "LaGuardia"}, encode_multipart=False
    ).data.decode()
    headers = {"Authorization": f"Bearer {token}"}
    for call, shown in calls:
        tool, _, arguments = call.partition(" ")
        message = a_message("tools/call", name=tool, arguments=json.loads(arguments))
        answer = http.request("POST", f"{board.API}/mcp", json=message, headers=headers).json()
        assert is_part(json.loads(shown), answer["result"]["structuredContent"])


def is_part(shown: Any, found: Any) -> bool:
    """Whether all that is shown was found: of objects some members may be left out."""
    if isinstance(shown, dict):
        return all(name in found and is_part(shown[name], found[name]) for name in shown)
    if isinstance(shown, list):
        return len(shown) == len(found) and all(map(is_part, shown, found))
    return bool(shown == found)


def assert_departures_arrive(browser, board) -> None:
    """Rows of both customers, of the client as it is built; the next departure comes by itself."""
    for customer, pattern in (("JetBlue", r"^B6 "), ("LaGuardia", r" ")):
        tab = Tab(browser)
        tab.page.goto(f"{board.PAGE}/?customer={customer}")
        first = tab.page.locator("#rows tr").first
        expect(first).to_contain_text(re.compile(pattern), timeout=TIMEOUT_MS)
        before = first.get_attribute("data-key")
        expect(first).not_to_have_attribute("data-key", before, timeout=TIMEOUT_MS)
        tab.close()
