"""Which token may do what: API Gateway asks before each request (a REQUEST authorizer, not cached)."""

from __future__ import annotations

import logging
from typing import Any

from keylane.access.grants import grant_of, need_of
from keylane.wiring.authorizer import access_maker

_log = logging.getLogger("keylane")
grants = access_maker()


class Unauthorized(Exception):
    """API Gateway answers 401 for this word and no other."""


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Allow or deny the one request of the event. Raises Unauthorized for a token that is not known."""
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    grant = grant_of(grants(), headers.get("authorization") or "")
    if grant is None:
        raise Unauthorized("Unauthorized")
    query = event.get("multiValueQueryStringParameters") or {}
    need = need_of(event["httpMethod"], event["path"], query)
    is_allowed = need is not None and grant.allows(need)
    if not is_allowed:
        _log.warning("%s may not %s %s", grant.name, event["httpMethod"], event["path"][:300])
    return {
        "principalId": grant.name,
        "policyDocument": {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Action": "execute-api:Invoke",
                    "Effect": "Allow" if is_allowed else "Deny",
                    "Resource": event["methodArn"],
                }
            ],
        },
    }
