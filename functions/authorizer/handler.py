"""Which token may do what: API Gateway asks before each request (a REQUEST authorizer, not cached).

What a JWT permits of the request's topics travels in the context, as one string: API Gateway hands it to the
function behind it, and no client can set it. It is of this one request, so results must not be cached: with a
time to live, API Gateway would use it for the token's next request, whatever that is about.
"""

import json
import logging
import math
import os
from typing import Any

from keylane.access.scope_codec import CONTEXT_NAME, UNTIL_NAME, encode_scope
from keylane.app import authorizer
from keylane.app.authorizer import AccessRequest, NotAuthorized
from keylane.wiring.runtime import Runtime

RESULT_LIMIT_BYTES = 8_000
"""API Gateway takes 8 KB of an authorizer's result."""
decider = authorizer.build(Runtime(), os.environ)
_log = logging.getLogger("keylane")


class Unauthorized(Exception):
    """API Gateway answers 401 for this word and no other."""


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Allow or deny the one request of the event. Raises Unauthorized for an unknown token."""
    query = event.get("multiValueQueryStringParameters") or {}
    authorization = _only_authorization(event)
    try:
        found = decider.decide(AccessRequest(event["httpMethod"], event["path"], query, authorization))
    except NotAuthorized as error:
        raise Unauthorized("Unauthorized") from error
    result = _result(event, found, is_allowed=found.is_allowed)
    if len(json.dumps(result)) <= RESULT_LIMIT_BYTES:
        return result
    _log.error("%s is refused: what their token permits takes more than API Gateway hands on", found.caller)
    return _result(event, found._replace(scope=None), is_allowed=False)


def _only_authorization(event: dict[str, Any]) -> str:
    """Return the header with the token, "" without one. Raises Unauthorized for several."""
    several = event.get("multiValueHeaders") or {
        name: [value] for name, value in (event.get("headers") or {}).items()
    }
    found = [each for name, values in several.items() if name.lower() == "authorization" for each in values]
    if len(found) > 1:
        raise Unauthorized("Unauthorized")
    return str(found[0] or "") if found else ""


def _result(event: dict[str, Any], found: authorizer.Decision, *, is_allowed: bool) -> dict[str, Any]:
    statement = {
        "Action": "execute-api:Invoke",
        "Effect": "Allow" if is_allowed else "Deny",
        "Resource": event["methodArn"],
    }
    result = {
        "principalId": found.caller,
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
    }
    if found.scope is None:
        return result
    until = {UNTIL_NAME: str(found.until_s)} if math.isfinite(found.until_s) else {}
    return {**result, "context": {CONTEXT_NAME: encode_scope(found.scope), **until}}
