"""The example in Chromium: live rows, an aircraft's history, an own write, and delays by day."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from tests.servers.own import PATIENCE_S, eventually
from tests.servers.standing import standing
from tests.support.browser import TIMEOUT_MS, Tab, chromium

from keylane_local.process.ports import HOST, Ports
from keylane_local.stack.stack import Stack
from keylane_local.tools import project_root

FOLDER = project_root() / "examples" / "flights-board"
FLIGHT = {"carrier": "UA", "flight": 1545, "origin": "EWR", "dest": "IAH", "sched_dep_time": 515}


def load_board():
    spec = importlib.util.spec_from_file_location("flights_board", FOLDER / "board.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def board_url(applied_stack, tmp_path_factory):
    """The board, with a topic and a view of the tests' stack; its API is the standing server's."""
    board, port = load_board(), Ports().any()
    url = f"http://{HOST}:{port}"
    today = datetime.now(UTC).date()
    config = {
        "topic": "bookings",
        "view": "puts",
        "column": "total",
        "places": ["JFK-board"],
        "days": [str(today - timedelta(days=2)), str(today + timedelta(days=2))],
    }
    variables = {**applied_stack.environment(), "KEYLANE_CORS_ORIGIN": url}
    with standing(tmp_path_factory.mktemp("board") / "log", variables) as server:
        served = board.serve_board(server.url, port, HOST, config)
        yield url
        served.shutdown()
        served.server_close()


@pytest.fixture(scope="module")
def browser(board_url):
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser, board_url):
    tab = Tab(browser, viewport={"width": 1120, "height": 900})
    tab.page.goto(board_url)
    yield tab.page
    tab.close()


def test_the_board_is_live_and_a_writer_reads_its_own_write(page, client):
    expect(page.locator("#live")).to_have_text("Live", timeout=TIMEOUT_MS)
    late = json.dumps({**FLIGHT, "dep_time": 640, "dep_delay": 85, "dest": "<b>"}).encode()
    client.put("bookings", b"N1BOARD", late)
    row = page.locator('#rows tr[data-key="N1BOARD"]')
    expect(row).to_contain_text("UA1545", timeout=TIMEOUT_MS)
    expect(row).to_contain_text("<b>")
    expect(row).to_contain_text("85 min late")
    page.get_by_label("Tail number").last.fill("N2BOARD")
    page.get_by_role("button", name="Announce").click()
    expect(page.locator("#written")).to_contain_text("read back as JFK → SFO", timeout=TIMEOUT_MS)
    expect(page.locator('#rows tr[data-key="N2BOARD"]')).to_contain_text("on time", timeout=TIMEOUT_MS)


def test_an_aircraft_s_history_and_the_delays_of_days_are_shown(page, client):
    for dest in ("SFO", "BOS"):
        position = client.put("bookings", b"N3BOARD", json.dumps({**FLIGHT, "dest": dest}).encode())
    wait = {"Keylane_Min_Position": position, "Prefer": "wait=20"}
    eventually(lambda: client.get("bookings", b"N3BOARD", **wait).status == 200, 120)
    page.get_by_label("Tail number").first.fill("N3BOARD")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#found tbody tr")).to_have_count(2, timeout=TIMEOUT_MS)
    expect(page.locator("#found tbody tr").first).to_contain_text("EWR → BOS")
    client.put("joined", b"JFK-board", b'{"amount": 12}')

    def has_window():
        return b'"total"' in client.request("GET", "/views/puts/keys/JFK-board?partial=true").body

    eventually(has_window, 120)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("img", name="total of 1 days from JFK-board")).to_be_visible(timeout=TIMEOUT_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1120])
def test_axe_finds_nothing_and_failures_are_said(page, client, scheme, width):
    client.put("joined", b"JFK-board", b'{"amount": 12}')
    eventually(
        lambda: b'"total"' in client.request("GET", "/views/puts/keys/JFK-board?partial=true").body, 120
    )
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#chart svg")).to_be_visible(timeout=TIMEOUT_MS)
    # Many days, so that the chart is wider than a phone: only then must its region take the focus.
    page.locator("#chart svg").evaluate("(svg) => { svg.style.width = '2000px'; }")
    page.get_by_label("Tail number").first.fill("N-never")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#found")).to_have_text("Nothing is known of N-never.", timeout=TIMEOUT_MS)
    found = Axe().run(page)
    assert [each["id"] for each in found.response["violations"]] == []


@pytest.mark.long
def test_make_example_shows_rows_in_a_browser(browser, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "examples" / FOLDER.name, ignore=shutil.ignore_patterns(".keylane"))
    make = ["make", "-f", project_root() / "Makefile", "-o", "setup", f"BIN={Path(sys.executable).parent}"]
    output, stack = tmp_path / "output", Stack(tmp_path / "examples" / FOLDER.name / ".keylane")
    with output.open("wb") as log:
        example = subprocess.Popen([*make, "example"], cwd=tmp_path, stdout=log, stderr=log)
    try:
        eventually(lambda: b"http://localhost:8090/" in output.read_bytes(), PATIENCE_S)
        tab = Tab(browser)
        tab.page.goto("http://localhost:8090/")
        expect(tab.page.locator("#live")).to_have_text("Live", timeout=TIMEOUT_MS)
        expect(tab.page.locator("#rows tr[data-key]").first).to_be_visible(timeout=TIMEOUT_MS)
        tab.close()
    finally:
        for process in psutil.Process(example.pid).children(recursive=True):
            process.send_signal(signal.SIGINT)
        assert example.wait(PATIENCE_S) is not None, output.read_text()
        stack.down(wipe=True)
