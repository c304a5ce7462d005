"""A user pool of Cognito: its tokens, and the events of a REST API that has verified them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.support.proxy_events import HttpRequest, build_proxy_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.issuers import SigningKey

POOL_ARN = "arn:aws:cognito-idp:eu-central-1:123456789012:userpool/eu-central-1_AbCdEfGhI"
ISSUER = "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_AbCdEfGhI"
CLIENT = "6an6jbhc8qh494sh33d1ope8d3"
SUBJECT = "940805d0-a810-42da-9515-a213e211bbd1"


def _claims(**more: Any) -> dict[str, Any]:
    now_s = int(time.time())
    found = {"sub": SUBJECT, "iss": ISSUER, "auth_time": now_s, "iat": now_s, "exp": now_s + 3600, **more}
    return {name: each for name, each in found.items() if each is not None}


def id_claims(**more: Any) -> dict[str, Any]:
    """Claims of an id token; None removes one."""
    own = {"aud": CLIENT, "token_use": "id", "email_verified": True, "cognito:username": "ann"}
    return _claims(**(own | more))


def access_claims(**more: Any) -> dict[str, Any]:
    """Claims of an access token, which has its client in `client_id`."""
    own = {"client_id": CLIENT, "token_use": "access", "scope": "keylane/read", "username": "ann"}
    return _claims(**(own | more))


def shown(claims: Mapping[str, Any]) -> dict[str, str]:
    """Claims as the event of a REST API shows them: all are text."""
    return {name: _text(name, value) for name, value in claims.items()}


def _text(name: str, value: Any) -> str:
    if name in {"exp", "iat"}:
        return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(value))
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def event_of(
    key: SigningKey, claims: Mapping[str, Any], method: str, target: str, *, scheme: str = "Bearer "
) -> dict[str, Any]:
    """The event of a request with a token that the pool has signed, behind a Cognito authorizer."""
    headers = (("Authorization", f"{scheme}{key.token(claims)}"),)
    event = build_proxy_event(HttpRequest(method, target, headers, b"", "127.0.0.1"), "request-1")
    event["requestContext"]["authorizer"] = {"claims": shown(claims)}
    return event
