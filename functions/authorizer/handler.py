"""Which token may do what: API Gateway asks before each request (a REQUEST authorizer, not cached)."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.access.grants import grant_of, need_of
from keylane.ports import Clock
from keylane.wiring.api import read_api_settings
from keylane.wiring.authorizer import GrantsSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_log = logging.getLogger("keylane")
grants = GrantsSource(Clock())
settings = cache(read_api_settings)


class Unauthorized(Exception):
    """API Gateway answers 401 for this word and no other."""


class AccessRequest(NamedTuple):
    """A request to the API. `path` is percent-encoded, `query` has all values of each parameter."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    authorization: str
    method_arn: str


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Allow or deny the one request of the event. Raises Unauthorized for an unknown token."""
    request = parse_access_request(event)
    grant = grant_of(grants.current(), request.authorization)
    if grant is None:
        raise Unauthorized("Unauthorized")
    need = need_of(request.method, request.path, request.query)
    is_allowed = need is not None and grant.allows(need)
    if not is_allowed:
        _log.warning("%s may not %s %s", grant.name, request.method, request.path[:300])
    return render_policy(grant.name, request.method_arn, is_allowed=is_allowed)


def parse_access_request(event: dict[str, Any]) -> AccessRequest:
    """Parse the event of a REQUEST authorizer."""
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    query = event.get("multiValueQueryStringParameters") or {}
    authorization = headers.get("authorization") or ""
    path = settings().path_of(event["path"])
    return AccessRequest(event["httpMethod"], path, query, authorization, event["methodArn"])


def render_policy(caller: str, method_arn: str, *, is_allowed: bool) -> dict[str, Any]:
    """Return the policy with which API Gateway accepts the caller's request or answers 403."""
    statement = {
        "Action": "execute-api:Invoke",
        "Effect": "Allow" if is_allowed else "Deny",
        "Resource": method_arn,
    }
    return {
        "principalId": caller,
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
    }
