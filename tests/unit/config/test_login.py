"""KEYLANE_LOGIN: what it shows to clients, what the console's policy makes of it, and its faults."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.support.project_files import ROOT

from keylane.config.login import read_login
from keylane.errors import SettingsError
from keylane_server.pages import OwnPages

GIVEN = {"issuer": "https://id.example.com/tenant", "client_id": "keylane"}
ENDPOINTS = {
    "authorization_endpoint": "https://login.example.com/authorize",
    "token_endpoint": "https://token.example.com:8443/token",
}


def read(**given):
    return read_login({"KEYLANE_LOGIN": json.dumps(given)})


def test_without_the_setting_nobody_logs_in():
    assert read_login({}) is None
    pages = OwnPages(None, lambda: None, ROOT / "clients" / "console")
    page = asyncio.run(pages.find("/console/login.json")(""))
    assert (page.status, page.body) == (200, b"{}")
    assert "connect-src 'self';" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("more", "origin"), [({}, "https://id.example.com"), (ENDPOINTS, "https://token.example.com:8443")]
)
def test_the_policy_has_the_host_that_gives_tokens_on_each_page_of_the_console(more, origin):
    pages = OwnPages(None, lambda: None, ROOT / "clients" / "console")
    found = read(**GIVEN, **more)
    pages.offer_login(found)
    for path in ("/console/", "/console/app.js", "/console/login.json", "/console/nothing.js"):
        page = asyncio.run(pages.find(path)(""))
        assert f"connect-src 'self' {origin};" in page.headers["Content-Security-Policy"]
        assert page.headers["X-Content-Type-Options"] == "nosniff"
    shown = json.loads(asyncio.run(pages.find("/console/login.json")("")).body)
    assert shown == {"scope": "openid", "token": "access", **GIVEN, **more}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"issuer": "https://id.example.com"}, "no client_id"),
        ({"client_id": "keylane"}, "no issuer"),
        ({**GIVEN, "client_secret": "s3cret"}, "unknown part 'client_secret'"),
        ({**GIVEN, "issuer": "http://id.example.com"}, "issuer that is not an https URL"),
        ({**GIVEN, "issuer": "https://id.example.com; script-src *"}, "issuer that is not an https URL"),
        ({**GIVEN, "issuer": "https://id.example.com;x"}, "issuer that is not an https URL"),
        ({**GIVEN, "issuer": "https://*"}, "issuer that is not an https URL"),
        ({**GIVEN, "issuer": "https://user@id.example.com"}, "issuer that is not an https URL"),
        ({**GIVEN, "scope": "profile"}, "scope without openid"),
        ({**GIVEN, "token": "refresh"}, "not one of access, id"),
        ({**GIVEN, "client_id": 7}, "client_id that is not a text"),
        ({**GIVEN, "client_id": "é"}, "client_id that is not a text"),
        ({**GIVEN, "token_endpoint": "https://a.example.com"}, "either both"),
        ({**GIVEN, **ENDPOINTS, "token_endpoint": "ftp://x"}, "token_endpoint that is not an https URL"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_login_is_named(given, text):
    with pytest.raises(SettingsError, match=text) as raised:
        read(**given)
    assert "s3cret" not in str(raised.value)
