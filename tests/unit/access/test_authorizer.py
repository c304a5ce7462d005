"""JWTs at the authorizer function: API Gateway's events, what it answers, and what functions make of that."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import load_handler
from tests.support.issuers import AUDIENCE, NAME, JwksServer, SigningKey, claims, jwks
from tests.support.proxy_events import HttpRequest, build_proxy_event

from keylane.access.scope_codec import CONTEXT_NAME, decode_scope
from keylane.access.scopes import KeyRule, PermittedRows
from keylane.api.http.gateway import request_of, scope_in
from keylane.errors import IssuerUnavailable
from keylane.ports import Clock, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

ARN = "arn:aws:execute-api:eu-central-1:123456789012:abcdef1234/v1/"
KEY = SigningKey("EdDSA")
RULES = [
    {"name": "own", "issuer": NAME, "read": ["orders"], "write": ["orders"], "key": "${sub}/*"},
    {"name": "rates", "issuer": NAME, "when": {"scope": "rates"}, "read": ["rates*"]},
    {"name": "sums", "issuer": NAME, "views": ["sums"], "key": "${sub}"},
    {"name": "tenants", "issuer": NAME, "read": ["invoices"], "where": {"tenant": "${tenants}"}},
]


def policy(**issuer: Any) -> str:
    given = {"jwks": jwks(KEY)} if "jwks_uri" not in issuer else {}
    known = {"issuer": NAME, "audience": AUDIENCE, "algorithms": ["EdDSA"], **given, **issuer}
    return json.dumps({"issuers": [known], "rules": RULES})


def an_event(
    token: str, method: str = "GET", path: str = "/topics/orders/keys/1", **more: Any
) -> dict[str, Any]:
    """What API Gateway asks of the authorizer about a request."""
    return {
        "type": "REQUEST",
        "methodArn": f"{ARN}{method}{path}",
        "path": path,
        "httpMethod": method,
        "headers": {"Authorization": f"Bearer {token}"},
        "requestContext": {"stage": "v1", "authorizer": {CONTEXT_NAME: "{}"}},
        **more,
    }


@pytest.fixture
def ask(monkeypatch) -> Callable[..., dict[str, Any]]:
    monkeypatch.setenv("KEYLANE_ACCESS", policy())
    function = load_handler("authorizer")

    def request(
        method: str, path: str, token: str, query: dict[str, list[str]] | None = None
    ) -> dict[str, Any]:
        event = an_event(token, method, path, multiValueQueryStringParameters=query)
        answer = function.lambda_handler(event, None)
        assert answer["principalId"] == f"{NAME}|ann"
        assert all(isinstance(each, str) for each in answer["context"].values())
        return answer

    request.function = function  # type: ignore[attr-defined]
    return request


def effect_of(answer: dict[str, Any]) -> str:
    [statement] = answer["policyDocument"]["Statement"]
    assert statement["Resource"].startswith(ARN)
    return statement["Effect"]


@pytest.mark.parametrize(
    ("method", "path", "query", "rules"),
    [
        ("GET", "/topics/orders/keys/ann%2F1", None, ["own"]),
        ("GET", "/topics/orders/keys", None, ["own"]),
        ("PUT", "/topics/orders/keys/bob%2F1", None, ["own"]),
        ("POST", "/topics/orders", None, ["own"]),
        ("GET", "/topics/rates.eu/find", {"a": ["b"]}, ["rates"]),
        ("GET", "/join/1", {"topics": ["orders,rates"]}, ["own", "rates"]),
        ("GET", "/views/sums/keys/ann", None, ["sums"]),
        ("GET", "/health", None, []),
        ("POST", "/mcp", None, ["own", "rates", "sums"]),
    ],
)
def test_a_request_whose_topics_rules_name_goes_on_with_these_rules(ask, method, path, query, rules):
    answer = ask(method, path, KEY.token(claims(scope="rates")), query)
    assert effect_of(answer) == "Allow"
    scope = decode_scope(answer["context"][CONTEXT_NAME])
    assert [each.rows.rule for each in scope.rules] == rules
    assert scope.caller == f"{NAME}|ann"


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "/topics/customers/keys/1", None),
        ("GET", "/topics/rates/keys/1", None),
        ("PUT", "/topics/invoices/keys/1", None),
        ("GET", "/topics/sums/keys/ann", None),
        ("GET", "/views/orders/keys/ann", None),
        ("GET", "/join/1", {"topics": ["orders,customers"]}),
        ("GET", "/join/1", {"topics": ["customers", "orders"]}),
        ("GET", "/topics/orders%2F..%2Fcustomers/keys/1", None),
        ("GET", "/topics", None),
        ("GET", "/views", None),
        ("GET", "/brokers", None),
        ("GET", "/v3/clusters", None),
        ("POST", "/push", None),
        ("GET", "/", None),
    ],
)
def test_a_request_whose_topics_no_rule_names_is_denied(ask, method, path, query):
    answer = ask(method, path, KEY.token(claims()), query)
    assert effect_of(answer) == "Deny"
    assert decode_scope(answer["context"][CONTEXT_NAME]).rules == ()


def test_a_token_of_a_list_stays_unscoped_beside_issuers(monkeypatch):
    token = "eyJ0aGlz.aXMgbm90.YSBKV1Qh"  # a listed token may look like a JWT
    digest = hashlib.sha256(token.encode()).hexdigest()
    access = json.dumps(json.loads(policy()) | {digest: {"name": "billing", "read": ["orders"]}})
    monkeypatch.setenv("KEYLANE_ACCESS", access)
    function = load_handler("authorizer")
    answer = function.lambda_handler(an_event(token), None)
    assert answer["principalId"] == "billing"
    assert "context" not in answer
    assert effect_of(answer) == "Allow"


def test_a_listed_token_has_its_grant_as_a_scope_where_the_body_names_the_topics(monkeypatch):
    token = "a-token-of-these-tests"
    digest = hashlib.sha256(token.encode()).hexdigest()
    grant = {"name": "billing", "read": ["orders*"], "write": ["invoices"], "views": ["sums"]}
    monkeypatch.setenv("KEYLANE_ACCESS", json.dumps({digest: grant}))
    function = load_handler("authorizer")
    answer = function.lambda_handler(an_event(token, "POST", "/mcp"), None)
    assert (answer["principalId"], effect_of(answer)) == ("billing", "Allow")
    scope = decode_scope(answer["context"][CONTEXT_NAME])
    [rule] = scope.rules
    assert (rule.read, rule.write, rule.views) == (("orders*",), ("invoices",), ("sums",))
    assert rule.rows == PermittedRows("billing")
    assert "context" not in function.lambda_handler(an_event(token, path="/health"), None)


@pytest.mark.parametrize(
    "token",
    [
        SigningKey("EdDSA").token(claims()),
        KEY.token(claims(aud="other")),
        KEY.token(claims(exp=1)),
        KEY.token(claims(), alg="none"),
        "a.b.c",
    ],
    ids=["signature", "audience", "expired", "algorithm", "form"],
)
def test_a_token_that_is_refused_is_unauthorized_in_the_word_that_api_gateway_knows(ask, token):
    with pytest.raises(ask.function.Unauthorized, match=r"^Unauthorized$"):
        ask("GET", "/topics/orders/keys/1", token)


@pytest.mark.parametrize("other", ["Bearer a-token-of-somebody-else", ""])
def test_of_two_tokens_neither_counts(ask, other):
    given = [f"Bearer {KEY.token(claims())}", other]
    event = an_event(KEY.token(claims()), multiValueHeaders={"Authorization": given})
    with pytest.raises(ask.function.Unauthorized, match=r"^Unauthorized$"):
        ask.function.lambda_handler(event, None)


def test_the_scope_reaches_the_function_and_nothing_else_makes_one(ask):
    answer = ask("GET", "/topics/orders/keys/ann%2F1", KEY.token(claims()))
    http = HttpRequest(
        "GET",
        "/topics/orders/keys/ann%2F1?keylaneScope=x",
        ((CONTEXT_NAME, "x"), ("authorization", "Bearer x")),
        b"",
        "10.0.0.7",
    )
    event = build_proxy_event(http, "id-1")
    assert request_of(event).scope is None
    event["requestContext"]["authorizer"] = {"principalId": answer["principalId"], **answer["context"]}
    request = request_of(event)
    assert request.scope is not None
    assert request.scope.reads("orders")[0].key == KeyRule("ann/", is_prefix=True)
    assert request.caller.name() == f"authorizer:{NAME}|ann"


def test_a_function_waits_no_longer_than_the_token_lasts(ask):
    now_ms = Clock().now_ms()
    answer = ask("GET", "/topics/orders/keys/ann%2F1", KEY.token(claims(exp=now_ms // 1000 + 3)))
    event = build_proxy_event(HttpRequest("GET", "/topics/orders/keys/ann%2F1", (), b"", "10.0.0.7"), "id-1")
    event["requestContext"]["authorizer"] = answer["context"]
    leeway_s = 30
    for given_s, expected_s in ((5, 5), (60, 3 + leeway_s)):
        deadline = request_of(event, Deadline.after_ms(given_s * 1000, Clock())).deadline
        assert deadline is not None
        assert deadline.remaining_s == pytest.approx(expected_s, abs=1)
    assert request_of(event).deadline is None


@pytest.mark.parametrize("text", ["", "{}", "null", 1, True, {"v": 1}])
def test_a_scope_that_cannot_be_read_makes_nobody_unscoped(text):
    with pytest.raises(ValueError, match="scope"):
        scope_in({"authorizer": {CONTEXT_NAME: text}})


def test_claims_of_cognito_make_no_scope():
    assert scope_in({"authorizer": {"claims": {CONTEXT_NAME: "{}"}}}) is None


def test_a_scope_that_api_gateway_would_not_take_is_denied(ask, caplog):
    answer = ask("GET", "/topics/invoices/keys/1", KEY.token(claims(tenants=[f"t{n}" for n in range(100)])))
    assert effect_of(answer) == "Allow"
    many = KEY.token(claims(tenants=[f"tenant-{n:04}" for n in range(800)]))
    answer = ask.function.lambda_handler(an_event(many, path="/topics/invoices/keys/1"), None)
    assert effect_of(answer) == "Deny"
    assert "context" not in answer
    assert "takes more than API Gateway hands on" in caplog.text


def test_keys_are_fetched_by_the_first_token_and_an_issuer_that_is_away_is_no_wrong_token(monkeypatch, ask):
    event = an_event(KEY.token(claims()))
    with JwksServer(KEY) as server:
        monkeypatch.setenv("KEYLANE_ACCESS", policy(jwks_uri=server.uri))
        function = load_handler("authorizer")
        for _ in range(3):
            assert effect_of(function.lambda_handler(event, None)) == "Allow"
        assert server.asked == 1
        thief = SigningKey("EdDSA")
        for kid in ("a", "../b", "c"):
            with pytest.raises(function.Unauthorized):
                function.lambda_handler(an_event(thief.token(claims(), kid=kid)), None)
        assert server.asked == 1
    other = load_handler("authorizer")
    for _ in range(2):
        with pytest.raises(IssuerUnavailable):
            other.lambda_handler(event, None)
    assert effect_of(function.lambda_handler(event, None)) == "Allow"


def test_an_audit_line_says_who_by_which_rule_and_nothing_of_keys(monkeypatch, caplog):
    monkeypatch.setenv("KEYLANE_ACCESS", policy())
    monkeypatch.setenv("KEYLANE_ACCESS_AUDIT", "true")
    function = load_handler("authorizer")
    for method, path in (
        ("GET", "/topics/orders/keys/ann%2Fsecret"),
        ("DELETE", "/topics/rates/keys/secret"),
    ):
        function.lambda_handler(an_event(KEY.token(claims()), method, path), None)
    lines = [each.getMessage() for each in caplog.records if each.name == "keylane.audit"]
    names = "caller", "rules", "route", "method", "kind", "names", "result"
    assert [json.loads(line) for line in lines] == [
        dict(zip(names, (f"{NAME}|ann", *values), strict=True))
        for values in (
            (["own"], "get_key", "GET", "read", ["orders"], "allowed"),
            ([], "delete_key", "DELETE", "write", ["rates"], "denied"),
        )
    ]


def test_the_authorizer_loads_cryptography_for_issuers_alone(monkeypatch):
    code = """
import json, os, sys
from keylane.app import authorizer
from keylane.app.authorizer import AccessRequest, NotAuthorized
from keylane.wiring.runtime import Runtime
os.environ["KEYLANE_ACCESS"] = json.dumps({"0" * 64: {"name": "a"}})
try:
    authorizer.build(Runtime(), os.environ).decide(AccessRequest("GET", "/health", {}, "Bearer a.b.c"))
except NotAuthorized:
    pass
assert not {"cryptography", "ssl", "http.client", "asyncio"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
