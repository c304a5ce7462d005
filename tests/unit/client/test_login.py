"""`keylane login`: with an issuer, a browser that goes where it is sent, and an API that says how."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner, Result
from tests.support.http_doubles import Exchange, HttpDouble
from tests.support.login_issuer import CLIENT, LoginIssuer

from keylane_client.cli import access, kept_logins, login, oidc
from keylane_client.cli.commands import keylane
from keylane_client.cli.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Api(HttpDouble):
    """An API with a console; `said`: its login.json. `authorizations`: what it was asked with."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}
        self.authorizations: list[str | None] = []
        super().__init__(self._reply)

    def _reply(self, asked: Exchange) -> None:
        is_login = asked.path == "/console/login.json"
        if not is_login:
            self.authorizations.append(asked.headers["Authorization"])
        body = json.dumps(self.said if is_login else {"topics": []}).encode()
        asked.answer(200, body, [("Content-Type", "application/json")])


@pytest.fixture
def issuer() -> Iterator[LoginIssuer]:
    with LoginIssuer() as running:
        yield running


@pytest.fixture
def api(issuer: LoginIssuer, tmp_path, monkeypatch) -> Iterator[Api]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("KEYLANE_URL", "KEYLANE_API_KEY", "KEYLANE_AUTHORIZATION"):
        monkeypatch.delenv(name, raising=False)
    with Api() as running:
        running.said = {"issuer": issuer.url, "client_id": CLIENT, "scope": "openid", "token": "access"}
        yield running


def follow(address: str) -> None:
    httpx.get(address, follow_redirects=True)


@pytest.fixture
def run(api: Api, monkeypatch) -> Callable[..., Result]:
    """Run a command at the API, with a browser that does this with the address that it is sent to."""

    def run_command(*arguments: str, browser: Callable[[str], None] = follow, url: str = "") -> Result:
        def start(address: str) -> bool:
            threading.Thread(target=browser, args=(address,), daemon=True).start()
            return True

        monkeypatch.setattr(login.webbrowser, "open", start)
        return CliRunner().invoke(keylane, [*arguments, "--url", url or api.url])

    return run_command


def test_commands_send_the_token_of_the_login_at_their_api_and_no_other_one(run, api, issuer):
    assert run("topics").exit_code == 0
    assert api.authorizations == [None]
    printed = run("login")
    assert printed.exit_code == 0, printed.output
    assert "logged in as 'ann'" in printed.output
    [asked] = issuer.asked
    assert asked["client_id"] == CLIENT
    assert not asked.keys() & {"client_secret", "state"}
    run("topics")
    token = (api.authorizations[-1] or "").removeprefix("Bearer ")
    assert token.count(".") == 2
    assert token not in printed.output
    run("topics", "--authorization", "Bearer another-token-of-a-test")
    assert api.authorizations[-1] == "Bearer another-token-of-a-test"
    other = Api()
    run("topics", url=other.url)
    assert other.authorizations == [None]
    other.close()
    assert "logged out" in run("logout").output
    assert "there was no login" in run("logout").output
    run("topics")
    assert api.authorizations[-1] is None


def test_the_file_of_logins_is_its_owner_s_alone(run, api):
    old = os.umask(0)
    try:
        run("login")
    finally:
        os.umask(old)
    file = kept_logins.logins_file()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    file.chmod(0o640)
    with pytest.raises(BadArgument, match="others may read"):
        access._by_login(api.url)


def test_where_a_home_can_t_be_looked_into_there_is_no_login(api, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/" + "a" * 5_000)
    assert access._by_login(api.url) is None


@pytest.mark.parametrize("text", ["", "[]", '{"x": {}}', '{"x": {"provider": [], "tokens": []}}', "\xff"])
def test_a_file_that_is_broken_is_named(api, text):
    file = kept_logins.logins_file()
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(BadArgument, match="is not readable"):
        kept_logins.kept_token(api.url)


def test_a_token_that_ends_is_renewed_once_and_one_without_the_means_asks_for_a_login(run, api, issuer):
    issuer.life_s = kept_logins.EARLY_S - 5
    run("login")
    run("topics")
    first = api.authorizations[-1]
    assert [each["grant_type"] for each in issuer.asked][:2] == ["authorization_code", "refresh_token"]
    issuer.life_s = 600.0
    run("topics")
    count = len(issuer.asked)
    run("topics")
    assert len(issuer.asked) == count
    assert api.authorizations[-1] != first
    issuer.renews, issuer.life_s = False, 0.0
    run("login")
    refused = run("topics")
    assert isinstance(refused.exception, BadArgument)
    assert "has ended" in str(refused.exception)


def test_an_issuer_that_is_away_is_a_failure_only_once_the_token_has_ended(run, api, issuer):
    issuer.life_s = kept_logins.EARLY_S - 5
    run("login")
    issuer.close()
    token = kept_logins.kept_token(api.url)
    assert token
    file = kept_logins.logins_file()
    logins = json.loads(file.read_text())
    logins[api.url]["tokens"][1] = time.time() - 1
    file.write_text(json.dumps(logins))
    with pytest.raises(BadArgument, match="can't be reached"):
        kept_logins.kept_token(api.url)
    failed = run("login")
    assert isinstance(failed.exception, oidc.LoginFailed)


def test_a_refresh_token_that_was_used_by_another_is_no_login_for_long(run, api, issuer):
    issuer.life_s = 0.0
    run("login")
    issuer._refresh_tokens.clear()
    with pytest.raises(BadArgument, match="unknown refresh token"):
        kept_logins.kept_token(api.url)


def test_commands_that_run_at_once_use_a_refresh_token_once(run, api, issuer):
    issuer.life_s = 0.0
    run("login")
    issuer.life_s, before = 600.0, len(issuer.asked)
    with ThreadPoolExecutor(4) as threads:
        tokens = set(threads.map(lambda _: kept_logins.kept_token(api.url), range(4)))
    assert len(tokens) == len(issuer.asked) - before == 1


@pytest.mark.parametrize("life", ["1e400", "NaN", "1e300", -1e300, 10**400])
def test_a_life_that_no_clock_has_is_no_reason_to_fail(run, api, issuer, monkeypatch, life):
    give = issuer.give
    monkeypatch.setattr(issuer, "give", lambda asked: (200, give(asked)[1] | {"expires_in": life}))
    printed = run("login")
    assert printed.exit_code == 0, printed.exception
    assert kept_logins._read()[api.url]["tokens"][1] < time.time() + 10 * 366 * 86_400


@pytest.mark.parametrize(
    ("answer", "claims", "text"),
    [
        ({"code": None, "error": "access_denied", "error_description": "no\n\x1b[1m"}, {}, "access_denied"),
        ({"code": "another"}, {}, "unknown code"),
        ({}, {"nonce": "another"}, "not for this login"),
        ({}, {"nonce": None}, "not for this login"),
        ({}, {"aud": "another"}, "not for this login"),
        ({}, {"iss": "https://another.example.org"}, "not for this login"),
    ],
)
def test_an_answer_that_is_wrong_gives_no_login(run, issuer, answer, claims, text):
    issuer.answer, issuer.claims = answer, claims
    failed = run("login")
    assert isinstance(failed.exception, oidc.LoginFailed)
    assert text in str(failed.exception)
    assert str(failed.exception).isprintable()
    assert not kept_logins.logins_file().exists()


@pytest.mark.parametrize(
    "answer", [{"state": "another"}, {"state": None}, {"iss": "https://another.example.org"}]
)
def test_an_answer_of_another_login_is_refused_and_the_right_one_still_counts(run, issuer, answer):
    statuses = []

    def browse(address: str) -> None:
        issuer.answer = answer
        statuses.append(httpx.get(address, follow_redirects=True).status_code)
        issuer.answer = {}
        statuses.append(httpx.get(address, follow_redirects=True).status_code)

    assert "logged in" in run("login", browser=browse).output
    assert statuses[0] == 400
    assert len(issuer.asked) == 1


def test_other_addresses_of_the_redirect_say_nothing(run, issuer):
    seen = []

    def browse(address: str) -> None:
        uri = httpx.URL(address).params["redirect_uri"]
        assert urlsplit(uri).hostname == "127.0.0.1"
        state = httpx.URL(address).params["state"]
        paths = ("/", f"/other?state={state}&code=1", "/callback")
        seen.extend(httpx.get(httpx.URL(uri).join(path)).status_code for path in paths)
        follow(address)

    assert run("login", browser=browse).exit_code == 0
    assert seen == [400, 400, 400]


def test_a_code_is_redeemed_with_its_own_verifier(issuer):
    provider = oidc.find_provider({"issuer": issuer.url, "client_id": CLIENT})
    attempts = [oidc.LoginAttempt.begin(provider, "http://127.0.0.1:1/callback") for _ in range(2)]
    assert len({each.state for each in attempts} | {each.verifier for each in attempts}) == 4
    sent = httpx.get(attempts[0].address).headers["Location"]
    answer = dict(httpx.URL(sent).params)
    assert not attempts[1].is_answered_by(answer)
    with pytest.raises(oidc.LoginFailed, match="unknown code"):
        attempts[1].redeem(answer)
    with pytest.raises(oidc.LoginFailed, match="unknown code"):
        attempts[0].redeem(answer)  # the wrong verifier has used it up


def test_nobody_who_logs_in_ends_the_wait(run):
    failed = run("login", "--timeout-s", "1", browser=lambda _: None)
    assert isinstance(failed.exception, oidc.LoginFailed)
    assert "did not come back" in str(failed.exception)


def test_an_api_that_says_nothing_needs_options(run, api, issuer):
    api.said = {}
    failed = run("login")
    assert isinstance(failed.exception, BadArgument)
    assert "--issuer" in str(failed.exception)
    assert run("login", "--issuer", issuer.url, "--client-id", CLIENT, "--token", "id").exit_code == 0
    token = kept_logins.kept_token(api.url)
    assert token
    assert oidc._claims_of(token)["aud"] == CLIENT


@pytest.mark.parametrize(
    "issuer_url",
    ["http://id.example.org", "ftp://x", "", "https://", "file:///etc/passwd", "http://10.0.0.1"],
)
def test_an_issuer_is_asked_by_https_or_on_this_machine_alone(issuer_url):
    with pytest.raises(oidc.LoginFailed, match="is not an https URL"):
        oidc.find_provider({"issuer": issuer_url or "x", "client_id": CLIENT})


def test_a_configuration_of_another_issuer_is_refused(issuer, monkeypatch):
    shown = issuer.show("/.well-known/openid-configuration") or {}
    for changed, text in (
        ({"issuer": "https://another.example.org"}, "of another issuer"),
        ({"token_endpoint": "http://id.example.org/token"}, "not an https URL"),
        ({"token_endpoint": None}, "not an https URL"),
        ({"authorization_endpoint": "https://id.example.org/\x1b]0;title\x07"}, "not an https URL"),
        ({"authorization_endpoint": "https://id.example.org/\u202eauth"}, "not an https URL"),
    ):
        monkeypatch.setattr(issuer, "show", lambda _, changed=changed: shown | changed)
        with pytest.raises(oidc.LoginFailed, match=re.escape(text)):
            oidc.find_provider({"issuer": issuer.url, "client_id": CLIENT})
