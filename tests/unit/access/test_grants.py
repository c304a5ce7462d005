"""Tokens, what they are granted, and what requests need: the authorizer function on API Gateway's events."""

from __future__ import annotations

import hashlib
import json
import os
import re

import pytest
from tests.support.builders import load_handler
from tests.support.fakes import FakeTime

from keylane.access import grants
from keylane.config import access
from keylane.errors import SettingsError, SettingsUnavailable
from keylane.model.routes import find
from keylane.wiring import authorizer
from keylane_build import openapi

TOKEN, OTHER = "throw-away-token-1", "throw-away-token-2"
ARN = "arn:aws:execute-api:eu-central-1:123456789012:abcdef1234/v1/"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


ACCESS = {
    digest(TOKEN): {
        "name": "billing",
        "read": ["orders*", "rates"],
        "write": ["invoices"],
        "views": ["sum-*"],
    },
    digest(OTHER): {"name": "root", "read": ["*"], "write": ["*"], "views": ["*"]},
}


@pytest.fixture
def ask(monkeypatch):
    """Ask the function of a request: True, False, or Unauthorized is raised."""
    monkeypatch.setenv("KEYLANE_ACCESS", json.dumps(ACCESS))
    function = load_handler("authorizer")

    def request(method, path, query=None, authorization=f"Bearer {TOKEN}"):
        # As a REST API sends it to an authorizer of the type REQUEST.
        event = {
            "type": "REQUEST",
            "methodArn": f"{ARN}{method}{path}",
            "resource": "/some/{thing}",
            "path": path,
            "httpMethod": method,
            "headers": {"authorization": authorization, "Host": "api.example.org"} if authorization else None,
            "multiValueHeaders": {},
            "queryStringParameters": {name: values[-1] for name, values in (query or {}).items()} or None,
            "multiValueQueryStringParameters": query,
            "pathParameters": None,
            "stageVariables": None,
            "requestContext": {"stage": "v1", "identity": {"sourceIp": "203.0.113.7"}},
        }
        answer = function.lambda_handler(event, None)
        [statement] = answer["policyDocument"]["Statement"]
        assert statement["Resource"] == event["methodArn"]
        assert statement["Action"] == "execute-api:Invoke"
        assert answer["principalId"] in {"billing", "root"}
        return statement["Effect"] == "Allow"

    request.function = function
    return request


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "/topics/orders/keys/1", None),
        ("HEAD", "/topics/orders-2026/keys/a%2Fb", None),
        ("GET", "/topics/%6Frders/keys", None),
        ("GET", "/topics/orders/count", None),
        ("GET", "/topics/orders/find", {"status": ["open"], "topic": ["invoices"]}),
        ("HEAD", "/topics/orders-2026/find", {"count": ["true"]}),
        ("GET", "/topics/orders/changes", {"status": ["open"]}),
        ("GET", "/topics/orders/snapshot", {"status": ["open"]}),
        ("POST", "/topics/orders/keys:read", None),
        ("GET", "/topics/rates/partitions/0/records", None),
        ("GET", "/topics/rates/schemas", None),
        ("PUT", "/topics/invoices/keys/1", None),
        ("DELETE", "/topics/invoices/keys/1", None),
        ("POST", "/topics/invoices", None),
        ("POST", "/topics/invoices/partitions/1", None),
        ("POST", "/v3/clusters/orders/topics/invoices/records", None),
        ("GET", "/v3/clusters/c/topics/orders/partitions", None),
        ("GET", "/v3/clusters/c/topics/orders/configs/cleanup.policy", None),
        ("GET", "/v3/clusters/c/topics/orders/partitions/0/replicas/1", None),
        ("GET", "/join/1", {"topics": ["orders,rates"]}),
        ("GET", "/metadata/partitions", {"topic": ["rates"]}),
        ("GET", "/views/sum-of-it/keys", None),
        ("GET", "/health", None),
        ("POST", "/mcp", None),
    ],
)
def test_token_may(ask, method, path, query):
    assert ask(method, path, query)


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "/topics/invoices/keys/1", None),
        ("POST", "/topics/invoices/keys:read", None),
        ("GET", "/topics/invoices/count", None),
        ("GET", "/topics/invoices/find", {"status": ["open"], "topic": ["orders"], "topics": ["orders"]}),
        ("GET", "/topics/invoices/changes", {"status": ["open"], "topic": ["orders"]}),
        ("GET", "/topics/invoices/snapshot", {"status": ["open"], "topic": ["orders"]}),
        ("POST", "/topics/orders/find", None),
        ("GET", "/topics/rates2/keys/1", None),
        ("GET", "/topics/invoices/keys/orders", None),
        ("GET", "/topics/invoices%2F..%2Forders/keys/1", None),
        ("PUT", "/topics/orders/keys/1", None),
        ("POST", "/topics/orders", None),
        ("POST", "/v3/clusters/invoices/topics/orders/records", None),
        ("GET", "/v3/clusters/orders/topics/invoices", None),
        ("GET", "/topics/invoices/schemas", None),
        ("GET", "/v3/clusters", None),
        ("GET", "/v3/clusters/c/topics/invoices/configs", None),
        ("GET", "/v3/clusters/c/brokers/orders", None),
        ("GET", "/v3/clusters/c/brokers/1/configs", None),
        ("GET", "/v3/clusters/c/consumer-groups", None),
        ("GET", "/v3/clusters/c/consumer-groups/orders/lags", None),
        ("GET", "/brokers", None),
        ("POST", "/push", None),
        ("GET", "/topics", None),
        ("GET", "/clusters", None),
        ("GET", "/views/other", None),
        ("GET", "/join/1", {"topics": ["orders,invoices"]}),
        ("GET", "/join/1", {"topics": ["invoices", "orders"]}),
        ("GET", "/metadata/partitions", {"topic": ["invoices"]}),
        ("GET", "/", None),
        ("POST", "/health", None),
        ("PATCH", "/topics/orders/keys/1", None),
        ("GET", "/mcp", None),
    ],
)
def test_token_may_not(ask, method, path, query):
    assert not ask(method, path, query)


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        TOKEN,
        "Bearer ",
        "Bearer short",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN} {OTHER}",
    ],
)
def test_unknown_token_is_unauthorized_in_the_word_that_api_gateway_knows(ask, authorization):
    with pytest.raises(ask.function.Unauthorized, match=r"^Unauthorized$"):
        ask("GET", "/health", None, authorization)


def test_a_grant_of_everything_allows_every_operation_and_an_empty_one_none():
    everything = grants.Grant("all", ("*",), ("*",), ("*",))
    for path, methods in openapi.document()["paths"].items():
        if path in {"/health", "/mcp"}:
            continue  # any token may ask: what the body is about, the application decides
        real = re.sub(r"{\w+}", "x", path)
        for method in methods:
            need = grants.need_of(find(method.upper(), real), {"topics": ["a,b"], "topic": ["a"]})
            assert need, (method, path)
            assert everything.allows(need)
            assert not grants.Grant("none").allows(need), (method, path)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("", "is not set"),
        ("{", "is not valid JSON"),
        ("{}", "has no token and no rule"),
        ('{"secret-token": {"name": "a"}}', "name \\(number 1\\) that is not a SHA-256"),
        (json.dumps({digest(TOKEN): ["a"]}), "grant \\(number 1\\)"),
        (json.dumps({digest(TOKEN): {"name": "a", "reads": []}}), "grant \\(number 1\\)"),
        (json.dumps({digest(TOKEN): {"read": []}}), "grant \\(number 1\\) without a name"),
        (json.dumps({digest(TOKEN): {"name": "a", "read": "orders"}}), "not an array of patterns"),
    ],
)
def test_error_of_a_faulty_grant_shows_no_secret(given, fault):
    with pytest.raises(SettingsError, match=fault) as raised:
        access.read_policy({"KEYLANE_ACCESS": given})
    assert "secret-token" not in str(raised.value)
    assert digest(TOKEN) not in str(raised.value)


def test_grants_are_read_again_after_a_while(ask, monkeypatch):
    time = FakeTime()
    source = authorizer.PolicySource(os.environ, time.clock)
    assert source.current().grants[digest(TOKEN)].read == ("orders*", "rates")
    monkeypatch.setenv("KEYLANE_ACCESS", json.dumps({digest(TOKEN): {"name": "billing"}}))
    time.move(authorizer.POLICY_TTL_S - 1)
    assert source.current().grants[digest(TOKEN)].read == ("orders*", "rates")
    time.move(1)
    assert source.current().grants[digest(TOKEN)].read == ()


def test_grants_stay_valid_for_minutes_while_their_store_is_away(ask, monkeypatch, caplog):
    time = FakeTime()
    source = authorizer.PolicySource(os.environ, time.clock)
    known = source.current()

    def away(_environment):
        raise SettingsUnavailable("Secrets Manager does not answer")

    monkeypatch.setattr(authorizer.references, "resolved", away)
    for _ in range(14):
        time.move(60)
        assert source.current() is known
    assert "the policy of 840 s ago is used" in caplog.text
    time.move(61)
    with pytest.raises(SettingsUnavailable):
        source.current()
    monkeypatch.undo()
    monkeypatch.setenv("KEYLANE_ACCESS", json.dumps({digest(TOKEN): {"name": "billing"}}))
    assert source.current().grants[digest(TOKEN)].read == ()


def test_a_policy_that_was_edited_wrongly_changes_nothing_for_minutes(ask, monkeypatch, caplog):
    time = FakeTime()
    source = authorizer.PolicySource(os.environ, time.clock)
    known = source.current()
    monkeypatch.setenv("KEYLANE_ACCESS", "{")
    time.move(60)
    assert source.current() is known
    assert "the policy of 60 s ago is used: KEYLANE_ACCESS" in caplog.text
    time.move(authorizer.STALE_S)
    with pytest.raises(SettingsError):
        source.current()


def test_first_request_fails_while_the_store_of_the_grants_is_away(ask, monkeypatch):
    def away(_environment):
        raise SettingsUnavailable("Secrets Manager does not answer")

    monkeypatch.setattr(authorizer.references, "resolved", away)
    with pytest.raises(SettingsUnavailable):
        ask("GET", "/topics/orders")


def test_base_path_of_a_custom_domain_is_not_part_of_the_route(ask, monkeypatch):
    monkeypatch.setenv("KEYLANE_BASE_PATH", "/kafka")
    assert ask("GET", "/kafka/topics/orders")
    assert ask("GET", "/topics/orders")
    assert not ask("GET", "/kafka/topics/invoices")
    assert not ask("GET", "/other/topics/orders")


@pytest.mark.parametrize(
    ("authorization", "said"),
    [
        ("", "has no token"),
        ("  ", "has no token"),
        ("Basic YWRtaW46YWRtaW4=", "is not `Bearer TOKEN`"),
        ("Bearer", "is not `Bearer TOKEN`"),
        ("Bearer two words", "is not `Bearer TOKEN`"),
        ("Bearer 123456789012345", "at least 16 characters"),
        ("bearer 1234567890123456", "the token is not known"),
    ],
)
def test_what_is_wrong_with_a_token_is_said_and_nothing_about_those_that_are_known(authorization, said):
    assert said in grants.why_unknown(authorization)


def test_a_known_token_that_is_too_short_is_refused_and_its_grant_is_named_for_the_log():
    short, long = "x" * 15, "x" * 16
    known = {digest(each): grants.Grant(f"of-{len(each)}") for each in (short, long)}
    assert grants.grant_of(known, f"Bearer {short}") is None
    assert grants.short_token_of(known, f"Bearer {short}") == "of-15"
    assert grants.short_token_of(known, f"Bearer {long}") is None
    assert grants.short_token_of(known, "Bearer y") is None
    assert grants.short_token_of(known, "") is None
