"""The functions behind a Cognito authorizer, on a real cluster: rows by the claims of its events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.issuers import SigningKey, jwks
from tests.support.user_pools import CLIENT, ISSUER, POOL_ARN, event_of, id_claims

from keylane.api.http.gateway import answer
from keylane.app import build_guard
from keylane.wiring.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.support.served import Served

KEY = SigningKey("RS256")


def test_a_caller_of_a_user_pool_has_the_rows_of_their_groups_alone(
    query_function: ModuleType, serve: Callable[..., Served]
):
    served = serve(index=3, fields=(("tenant", "text"),))
    for number, tenant in enumerate(["eu", "us", "eu,us", "eu"]):
        served.put(f"k{number}".encode(), json.dumps({"tenant": tenant}).encode())
    rule = {"issuer": ISSUER, "read": [served.topic], "where": {"tenant": "${cognito:groups}"}}
    known = {"issuer": ISSUER, "audience": CLIENT, "algorithms": ["RS256"], "jwks": jwks(KEY)}
    policy = json.dumps({"issuers": [known], "rules": [rule]})
    guard = build_guard(Runtime(), {"KEYLANE_USER_POOL": POOL_ARN, "KEYLANE_ACCESS": policy})

    def ask(target: str, groups: Any) -> tuple[int, Any]:
        event = event_of(KEY, id_claims(**{"cognito:groups": groups}), "GET", target)
        found = answer(query_function.application, event, None, guard)
        return found["statusCode"], json.loads(found["body"])

    def keys(groups: Any) -> list[str]:
        status, page = ask(f"/topics/{served.topic}/keys", groups)
        assert status == 200
        return [record["key"] for record in page["records"]]

    assert keys(["eu", "us"]) == ["k0", "k1", "k3"]
    assert keys(["eu,us"]) == ["k2"], "the event shows this list as the other one"
    assert keys(["us"]) == ["k1"]
    assert ask(f"/topics/{served.topic}/keys/k1", ["us"])[0] == 200
    assert ask(f"/topics/{served.topic}/keys/k0", ["us"])[0] == 404
    status, refused = ask(f"/topics/{served.topic}/keys/k0", [])
    assert (status, refused["type"]) == (403, "urn:keylane:problem:forbidden")
    assert ask("/topics/another/keys/k0", ["us"])[0] == 403
