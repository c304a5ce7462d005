"""Tokens of a user pool behind API Gateway's Cognito authorizer: events of REST APIs, and forged ones."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.issuers import SigningKey, jwks
from tests.support.proxy_events import HttpRequest, build_proxy_event
from tests.support.user_pools import CLIENT, ISSUER, POOL_ARN, access_claims, event_of, id_claims

from keylane.access.pool_claims import confirmed
from keylane.api.http.gateway import request_of
from keylane.api.http.request import Request
from keylane.app import build_guard
from keylane.app.authorizer import AccessRequest, NotAuthorized
from keylane.app.authorizer import build as build_authorizer
from keylane.app.user_pool import PoolGuard, issuer_of_pool
from keylane.errors import SettingsError
from keylane.ports import Clock, Deadline
from keylane.wiring.runtime import Runtime

if TYPE_CHECKING:
    from keylane.access.scopes import Scope

KEY = SigningKey("RS256")
STRANGER = SigningKey("RS256")
RULES = [
    {"name": "own", "issuer": ISSUER, "read": ["orders"], "write": ["orders"], "key": "${sub}/*"},
    {"name": "group", "issuer": ISSUER, "when": {"cognito:groups": "sales"}, "read": ["prices"]},
    {"name": "tenants", "issuer": ISSUER, "read": ["invoices"], "where": {"tenant": "${cognito:groups}"}},
    {"name": "checked", "issuer": ISSUER, "when": {"email_verified": True}, "read": ["mails"]},
    {"name": "word", "issuer": ISSUER, "when": {"email_verified": "true"}, "read": ["words"]},
    {"name": "level", "issuer": ISSUER, "when": {"level": 3}, "read": ["levels"]},
    {"name": "scopes", "issuer": ISSUER, "when": {"scope": "keylane/read"}, "read": ["scoped"]},
]


def environment(**more: str) -> dict[str, str]:
    known = {"issuer": ISSUER, "audience": CLIENT, "algorithms": ["RS256"], "jwks": jwks(KEY)}
    access = json.dumps({"issuers": [known], "rules": RULES})
    return {"KEYLANE_USER_POOL": POOL_ARN, "KEYLANE_ACCESS": access, **more}


def admit(event: dict[str, Any], settings: dict[str, str] | None = None) -> Request | Any:
    guard = PoolGuard(Runtime(), environment() if settings is None else settings)
    return guard.admit(request_of(event), event)


def scope_in_function(claims: dict[str, Any], path: str = "/mcp", method: str = "POST") -> Scope | None:
    found = admit(event_of(KEY, claims, method, path))
    assert isinstance(found, Request), found.body
    return found.scope


CLAIMS = [
    partial(id_claims),
    partial(id_claims, **{"cognito:groups": ["sales"]}),
    partial(id_claims, **{"cognito:groups": ["sales", "eu"]}),
    partial(id_claims, **{"cognito:groups": ["sales,eu"]}),
    partial(id_claims, **{"cognito:groups": "sales,eu"}),
    partial(id_claims, **{"cognito:groups": "[sales eu]"}),
    partial(id_claims, **{"cognito:groups": ["a b", "c"]}),
    partial(id_claims, **{"cognito:groups": []}),
    partial(id_claims, email_verified="true"),
    partial(id_claims, level=3),
    partial(id_claims, level="3"),
    partial(id_claims, sub="a,b"),
    partial(id_claims, sub="ann/x"),
    partial(access_claims),
    partial(access_claims, scope="keylane/read keylane/write"),
]


@pytest.mark.parametrize("make_claims", CLAIMS, ids=lambda make: f"{make.func.__name__} {make.keywords}")
def test_a_function_makes_the_scope_that_the_authorizer_makes_of_the_same_token(make_claims):
    claims = make_claims()
    asked = AccessRequest("POST", "/mcp", {}, f"Bearer {KEY.token(claims)}")
    assert scope_in_function(claims) == build_authorizer(Runtime(), environment()).decide(asked).scope


def test_a_list_and_the_text_that_the_event_shows_for_it_are_two_things():
    def rules(groups: Any) -> list[str]:
        scope = scope_in_function(id_claims(**{"cognito:groups": groups}))
        assert scope is not None
        return [each.rows.rule for each in scope.rules]

    assert "group" in rules(["sales", "eu"])
    assert "group" not in rules(["sales,eu"])
    assert "group" not in rules("sales,eu")


def test_a_request_gets_the_rules_of_its_topic_alone_and_one_of_no_rule_is_forbidden():
    scope = scope_in_function(id_claims(), "/topics/orders/keys/1", "GET")
    assert scope is not None
    assert [each.rows.rule for each in scope.rules] == ["own"]
    assert scope.caller == f"{ISSUER}|{id_claims()['sub']}"
    for method, path in (("GET", "/topics/prices/keys/1"), ("GET", "/topics"), ("POST", "/push")):
        answer = admit(event_of(KEY, id_claims(), method, path))
        assert answer.status_code == 403
        assert json.loads(answer.body)["type"] == "urn:keylane:problem:forbidden"


def test_a_function_waits_no_longer_than_the_token_lasts():
    event = event_of(KEY, id_claims(exp=int(time.time()) + 3), "GET", "/topics/orders/keys/1")
    guard = PoolGuard(Runtime(), environment())
    found = guard.admit(request_of(event, Deadline.after_ms(60_000, Clock())), event)
    assert isinstance(found, Request)
    assert found.deadline is not None
    assert found.deadline.remaining_s < 60 - 20


def test_a_token_without_the_word_bearer_counts_as_api_gateway_takes_it():
    event = event_of(KEY, id_claims(), "GET", "/topics/orders/keys/1", scheme="")
    assert isinstance(admit(event), Request)


FORGED = id_claims(**{"cognito:groups": ["sales"]})


def forged_second_header() -> dict[str, Any]:
    event = event_of(KEY, id_claims(), "GET", "/topics/prices/keys/1")
    event["multiValueHeaders"]["Authorization"].append(f"Bearer {STRANGER.token(FORGED)}")
    return event


def forged_header_in_another_case() -> dict[str, Any]:
    event = event_of(KEY, id_claims(), "GET", "/topics/prices/keys/1")
    event["multiValueHeaders"]["authorization"] = [f"Bearer {STRANGER.token(FORGED)}"]
    return event


def unverified() -> dict[str, Any]:
    request = HttpRequest(
        "GET", "/topics/prices/keys/1", (("Authorization", f"Bearer {KEY.token(FORGED)}"),), b"", "127.0.0.1"
    )
    return build_proxy_event(request, "1")


def claims_of_a_lambda_authorizer() -> dict[str, Any]:
    event = unverified()
    event["requestContext"]["authorizer"] = {"claims": json.dumps(FORGED), "principalId": "ann"}
    return event


def with_claims(**more: Any) -> dict[str, Any]:
    return event_of(KEY, id_claims(**more), "GET", "/topics/orders/keys/1")


@pytest.mark.parametrize(
    "event",
    [
        forged_second_header(),
        forged_header_in_another_case(),
        unverified(),
        claims_of_a_lambda_authorizer(),
        with_claims(aud="another-client"),
        with_claims(token_use="access"),
        with_claims(token_use="refresh"),
        with_claims(token_use=None),
        with_claims(token_use=["id"]),
        with_claims(iss="https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Another"),
        with_claims(exp=int(time.time()) - 60),
        with_claims(cnf={"jkt": "1"}),
        event_of(KEY, access_claims(aud=CLIENT, client_id="another"), "GET", "/topics/orders/keys/1"),
        event_of(KEY, id_claims(), "GET", "/topics/orders/keys/1", scheme="Basic "),
        event_of(SigningKey("ES256"), id_claims(), "GET", "/topics/orders/keys/1"),
    ],
    ids=range(15),
)
def test_what_the_event_does_not_confirm_is_refused(event):
    answer = admit(event)
    assert not isinstance(answer, Request)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_token_that_is_not_the_one_of_the_event_gives_what_both_say():
    """API Gateway sends the token that it has verified; if it did not, no claim would be gained by it."""
    event = event_of(KEY, id_claims(**{"cognito:groups": ["eu"]}), "POST", "/mcp")
    event["multiValueHeaders"]["Authorization"] = [f"Bearer {STRANGER.token(FORGED | {'level': 3})}"]
    found = admit(event)
    assert isinstance(found, Request)
    assert found.scope is not None
    assert "group" not in [each.rows.rule for each in found.scope.rules]
    assert "level" not in [each.rows.rule for each in found.scope.rules]


@pytest.mark.parametrize(
    ("value", "shown", "counts"),
    [
        ("a,b", "a,b", True),
        (["a", "b"], "a,b", True),
        (["a", "b"], "[a b]", True),
        (["a"], "a", True),
        (["a", "c"], "a,b", False),
        (True, "true", True),
        (True, "1", False),
        (1, "1", True),
        (1, "true", False),
        (1.5, "1.5", False),
        ({"a": "b"}, "{a=b}", False),
        ([{"a": "b"}], '{"a":"b"}', False),
        (None, "null", False),
        ("a", ["a"], False),
        ("a", None, False),
    ],
    ids=str,
)
def test_a_claim_counts_if_the_event_shows_it_as_it_shows_such_values(value, shown, counts):
    assert ("claim" in confirmed({"claim": value}, {"claim": shown})) is counts
    assert confirmed({"claim": value}, {}) == {}


def test_the_recorded_claims_of_a_rest_api_are_those_of_its_token():
    """As a function behind a REST API printed them, ids changed."""
    shown = {
        "sub": "940805d0-a810-42da-9515-a213e211bbd1",
        "aud": "6an6jbhc8qh494sh33d1ope8d3",
        "email_verified": "true",
        "event_id": "cd5c1cab-e2ea-11e7-9614-c1a21c8b3f9a",
        "token_use": "id",
        "auth_time": "1513492092",
        "iss": "https://cognito-idp.us-east-1.amazonaws.com/us-east-1_AbCdEfGhI",
        "cognito:username": "ann@example.org",
        "exp": "Sun Dec 17 07:28:12 UTC 2017",
        "iat": "Sun Dec 17 06:28:12 UTC 2017",
        "email": "ann@example.org",
    }
    token = shown | {"email_verified": True, "auth_time": 1513492092, "exp": 1513495692, "iat": 1513492092}
    assert confirmed(token, shown) == token


def test_a_policy_without_the_pool_is_misconfigured():
    with pytest.raises(SettingsError, match=r"has no issuer https://cognito-idp\.eu-west-1"):
        admit(
            event_of(KEY, id_claims(), "GET", "/topics/orders/keys/1"),
            environment(
                KEYLANE_USER_POOL="arn:aws:cognito-idp:eu-west-1:123456789012:userpool/eu-west-1_Ab1"
            ),
        )
    with pytest.raises(SettingsError, match="KEYLANE_ACCESS"):
        admit(event_of(KEY, id_claims(), "GET", "/x"), {"KEYLANE_USER_POOL": POOL_ARN})
    with pytest.raises(SettingsError, match="KEYLANE_USER_POOL"):
        admit(event_of(KEY, id_claims(), "GET", "/x"), environment(KEYLANE_USER_POOL="eu-west-1_Ab1"))


def test_without_a_pool_no_claim_of_an_event_counts():
    assert build_guard(Runtime(), environment(KEYLANE_USER_POOL="")) is None
    assert request_of(event_of(KEY, id_claims(), "GET", "/topics/orders/keys/1")).scope is None


def test_the_issuer_of_a_pool_is_that_of_its_partition():
    assert issuer_of_pool(POOL_ARN) == ISSUER
    china = "arn:aws-cn:cognito-idp:cn-north-1:123456789012:userpool/cn-north-1_Ab1"
    assert issuer_of_pool(china) == "https://cognito-idp.cn-north-1.amazonaws.com.cn/cn-north-1_Ab1"


def test_a_server_takes_access_tokens_of_a_pool_by_their_client():
    claims = access_claims()
    asked = AccessRequest("GET", "/topics/orders/keys/1", {}, f"Bearer {KEY.token(claims)}")
    decider = build_authorizer(Runtime(), environment())
    assert decider.decide(asked).is_allowed
    for wrong in ({"client_id": "another"}, {"token_use": "id"}, {"client_id": None}):
        token = KEY.token({name: each for name, each in (claims | wrong).items() if each is not None})
        with pytest.raises(NotAuthorized):
            decider.decide(asked._replace(authorization=f"Bearer {token}"))
