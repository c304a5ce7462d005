"""Which token may do what: API Gateway asks before each request (a REQUEST authorizer, not cached)."""

import os
from typing import Any

from keylane.app import authorizer
from keylane.app.authorizer import AccessRequest, NotAuthorized
from keylane.wiring.runtime import Runtime

decider = authorizer.build(Runtime(), os.environ)


class Unauthorized(Exception):
    """API Gateway answers 401 for this word and no other."""


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Allow or deny the one request of the event. Raises Unauthorized for an unknown token."""
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    query = event.get("multiValueQueryStringParameters") or {}
    authorization = headers.get("authorization") or ""
    try:
        found = decider.decide(AccessRequest(event["httpMethod"], event["path"], query, authorization))
    except NotAuthorized as error:
        raise Unauthorized("Unauthorized") from error
    statement = {
        "Action": "execute-api:Invoke",
        "Effect": "Allow" if found.is_allowed else "Deny",
        "Resource": event["methodArn"],
    }
    return {
        "principalId": found.caller,
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
    }
