"""People log in to the console in Chromium: a server that takes tokens, and an issuer of OpenID Connect."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect
from tests.servers.own import eventually, fill
from tests.servers.standing import StandingServer, standing
from tests.support.browser import TIMEOUT_MS, ConsoleTab, chromium
from tests.support.builders import a_lane, a_layout
from tests.support.login_issuer import CLIENT, LoginIssuer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

expect.set_options(timeout=TIMEOUT_MS)
STORES = (
    "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state])"
)


@pytest.fixture(scope="module")
def issuer() -> Iterator[LoginIssuer]:
    with LoginIssuer() as running:
        yield running


@pytest.fixture(scope="module")
def topic(redis_cluster: str) -> str:
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, b"ann", b'{"to": "Bern"}'))
    return layout.topic


@pytest.fixture(scope="module")
def server(tmp_path_factory, redis_cluster: str, issuer: LoginIssuer) -> Iterator[StandingServer]:
    variables = {
        "KEYLANE_REDIS_NODES": redis_cluster,
        "KEYLANE_REDIS_TLS": "false",
        "KEYLANE_ACCESS": issuer.policy({"read": ["*"], "key": "${sub}"}),
        "KEYLANE_LOGIN": json.dumps({"issuer": issuer.url, "client_id": CLIENT}),
    }
    log = tmp_path_factory.mktemp("login") / "log"
    with standing(log, variables, "--authorization", "tokens") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser: Browser, server: StandingServer, issuer: LoginIssuer) -> Iterator[ConsoleTab]:
    issuer.answer, issuer.claims, issuer.refuses = {}, {}, ""
    issuer.life_s, issuer.said_s, issuer.renews = 600.0, None, True
    issuer.asked.clear()
    opened = ConsoleTab(browser, server.url)
    yield opened
    opened.close()


def log_in(tab: ConsoleTab, topic: str) -> Page:
    page = tab.open("key", topic=topic, key="ann")
    expect(page.get_by_role("alert")).to_contain_text("401")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    return page


def test_the_policy_lets_the_page_ask_the_issuer_and_nobody_else(server, issuer):
    page = httpx.get(f"{server.url}/console/")
    [asked] = re.findall(r"connect-src ([^;]*);", page.headers["Content-Security-Policy"])
    assert asked == f"'self' {issuer.url}"
    said = httpx.get(f"{server.url}/console/login.json").json()
    assert said == {"issuer": issuer.url, "client_id": CLIENT, "scope": "openid", "token": "access"}


def test_who_logs_in_sees_their_rows_where_they_were_and_stays_logged_in_in_this_tab_alone(
    tab, browser, server, issuer, topic
):
    page = log_in(tab, topic)
    expect(page.locator("#value")).to_contain_text("Bern")
    assert f"#/key?topic={topic}&key=ann" in page.url
    assert "?code" not in page.url
    assert "state" not in page.url.partition("#")[0]
    [asked] = issuer.asked
    assert asked["grant_type"] == "authorization_code"
    assert asked["redirect_uri"] == f"{server.url}/console/"
    local, session, cookie, *_ = json.loads(page.evaluate(STORES))
    assert (local, cookie, list(session)) == ({}, "", ["keylane.session"])
    assert "refresh" not in session["keylane.session"]
    assert asked["code_verifier"] not in page.evaluate(STORES)
    page.reload()
    expect(page.locator("#value")).to_contain_text("Bern")
    assert len(issuer.asked) == 1
    other = ConsoleTab(browser, server.url)
    expect(other.open("key", topic=topic, key="ann").get_by_role("alert")).to_contain_text("401")
    other.close()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("alert")).to_contain_text("401")
    assert page.evaluate("({...sessionStorage})") == {}


def test_the_token_of_a_login_is_sent_to_no_other_api(tab, topic):
    page = log_in(tab, topic)
    seen: list[Any] = []
    page.route("https://other.example.org/**", lambda route: seen.append(route.request) or route.abort())
    page.evaluate(
        "import('./session.js').then((own) => { own.connect({ base: 'https://other.example.org' });"
        " return own.credentials().then((each) => { window.sent = each; own.connect({ base: '' }); }); })"
    )
    assert page.evaluate("window.sent") == {}


@pytest.mark.parametrize(
    ("answer", "claims", "refuses", "text"),
    [
        ({"state": "another"}, {}, "", "not one to a login of this page"),
        ({"iss": "https://another.example.org"}, {}, "", "not one to a login of this page"),
        ({"code": None, "error": "access_denied"}, {}, "", "access_denied"),
        ({"code": "another"}, {}, "", "unknown code"),
        ({}, {"nonce": "another"}, "", "not for this login"),
        ({}, {"aud": "another"}, "", "not for this login"),
        ({}, {"iss": "https://another.example.org"}, "", "not for this login"),
        ({}, {}, "temporarily_unavailable", "temporarily_unavailable"),
    ],
    ids=str,
)
def test_an_answer_that_is_wrong_gives_no_login_and_says_why(
    tab, issuer, topic, answer, claims, refuses, text
):
    issuer.answer, issuer.claims, issuer.refuses = answer, claims, refuses
    page = tab.open("key", topic=topic, key="ann")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("The login failed")).to_be_visible()
    expect(page.get_by_role("alert").first).to_contain_text(text)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert page.evaluate("({...sessionStorage})") == {}


def test_an_answer_that_comes_again_or_from_a_stranger_logs_nobody_in(tab, server, issuer, topic):
    with_code: list[str] = []
    tab.page.on("request", lambda sent: "code=" in sent.url and with_code.append(sent.url))
    page = log_in(tab, topic)
    page.get_by_role("button", name="Log out").click()
    page.goto(with_code[0])
    expect(page.get_by_role("alert").first).to_contain_text("not one to a login of this page")
    assert len(issuer.asked) == 1
    assert page.evaluate("({...sessionStorage})") == {}


def test_a_token_that_ends_is_renewed_without_a_word(tab, issuer, topic):
    issuer.life_s = 3.0
    page = log_in(tab, topic)
    expect(page.locator("#value")).to_contain_text("Bern")
    ends = page.evaluate("JSON.parse(sessionStorage.getItem('keylane.session')).until")
    issuer.life_s = 600.0
    page.get_by_role("link", name="Topics").first.click()
    eventually(lambda: issuer.asked[-1]["grant_type"] == "refresh_token", 30)
    page.wait_for_function("(ends) => Date.now() > ends", arg=ends)
    tab.open("key", topic=topic, key="ann")
    expect(page.locator("#value")).to_contain_text("Bern")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


READ_AS_A_STREAM = """(path) => import('./session.js').then((own) => own.readerOf(path))
    .then((reader) => reader.read()).then(({ value }) => new TextDecoder().decode(value))"""


@pytest.mark.parametrize("is_stream", [False, True], ids=["a request", "a stream"])
def test_a_token_that_the_service_refuses_before_its_end_is_renewed_without_a_word(
    tab, server, issuer, topic, is_stream
):
    """It ends on the way, or by another clock than the browser's."""
    issuer.life_s, issuer.said_s = 1.0, 600.0
    page = log_in(tab, topic)
    session = json.loads(page.evaluate("sessionStorage.getItem('keylane.session')"))
    given = {"Authorization": f"Bearer {session['token']}"}
    eventually(lambda: httpx.get(f"{server.url}/topics/{topic}/keys/ann", headers=given).status_code == 401)
    issuer.life_s = 600.0
    if is_stream:
        assert "Bern" in page.evaluate(READ_AS_A_STREAM, f"/topics/{topic}/keys/ann")
    else:
        tab.open("key", topic=topic, key="bob")
        tab.open("key", topic=topic, key="ann")
        expect(page.locator("#value")).to_contain_text("Bern")
    assert issuer.asked[-1]["grant_type"] == "refresh_token"


def test_a_token_that_ends_without_the_means_to_renew_it_asks_for_a_login(tab, issuer, topic):
    issuer.life_s, issuer.renews = 5.0, False
    page = log_in(tab, topic)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert page.evaluate("({...sessionStorage})") == {}
    issuer.life_s = 600.0
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#value")).to_contain_text("Bern")


def test_an_issuer_that_is_away_is_named_and_ends_no_login_that_still_counts(tab, issuer, topic):
    page = tab.open("key", topic=topic, key="ann")
    page.route(f"{issuer.url}/**", lambda route: route.abort())
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").first).to_contain_text(f"{issuer.url} gave no answer")
    page.unroute(f"{issuer.url}/**")
    page.goto("about:blank")
    issuer.life_s = 25.0
    page = log_in(tab, topic)
    issuer.refuses = "temporarily_unavailable"
    tab.open("key", topic=topic, key="ann")
    expect(page.locator("#value")).to_contain_text("Bern")
