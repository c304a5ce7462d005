"""`keylane open` on the standing server, which serves the console itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner, Result
from tests.servers.standing import StandingServer, plain_variables, standing
from tests.support.server_process import with_tokens

from keylane_client.cli import open_in_browser
from keylane_client.cli.commands import keylane

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "a-token-of-who-opens-the-console"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, redis_cluster: str, kafka: str
) -> Iterator[StandingServer]:
    variables = with_tokens(plain_variables(redis_cluster, kafka), TOKEN, read=["orders"])
    log = tmp_path_factory.mktemp("open") / "log"
    with standing(log, variables, "--authorization", "tokens") as running:
        yield running


def open_console(server: StandingServer, *options: str) -> Result:
    return CliRunner().invoke(keylane, ["open", "--url", server.url, *options])


def test_the_console_of_the_standing_server_is_opened_and_needs_no_token(
    server: StandingServer, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []
    monkeypatch.setattr(open_in_browser.webbrowser, "open", lambda url: opened.append(url) or True)
    result = open_console(server, "--authorization", f"Bearer {TOKEN}")
    assert (result.exit_code, result.stdout) == (0, f"{server.url}/console\n")
    assert opened == [f"{server.url}/console"]
    page = httpx.get(opened[0], follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/console/")
    assert "Content-Security-Policy" in page.headers
    script = page.url.join("app.js")
    assert script.path == "/console/app.js"
    assert httpx.get(script).headers["Content-Type"].startswith("text/javascript")


def test_its_url_is_printed_as_json(server: StandingServer):
    result = open_console(server, "--no-browser", "--json", "--api-key", TOKEN)
    assert json.loads(result.stdout) == {"url": f"{server.url}/console", "opened": False}


def test_a_token_that_the_server_does_not_know_is_an_error_that_does_not_show_it(server: StandingServer):
    result = open_console(server, "--no-browser", "--authorization", "Bearer nobody-has-this-token")
    assert result.exception.exit_code == 4
    assert "unauthorized" in str(result.exception)
    assert "nobody-has-this-token" not in f"{result.output}{result.exception}{server.log}"
