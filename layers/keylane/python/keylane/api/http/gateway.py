"""API Gateway's REST APIs: its proxy events (payload format 1.0) as requests, responses as it takes them."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from keylane.access.callers import SOURCES, Caller
from keylane.access.scope_codec import CONTEXT_NAME, UNTIL_NAME, decode_scope
from keylane.access.scopes import Scope
from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.http.router import Application
from keylane.errors import BadRequest
from keylane.ports import Clock, Deadline

MARGIN_MS = 2_000
"""A function's work ends this long before its timeout: then its response is still sent."""


class Guard(Protocol):
    """Decides who may do what, where API Gateway has verified the token, and no authorizer function has."""

    def admit(self, request: Request, event: Mapping[str, Any]) -> Request | Response[str]:
        """Return the request with its caller's scope, or the refusal. Raises KeylaneError."""


def answer(
    application: Application[Any], event: Any, context: Any, guard: Guard | None = None
) -> dict[str, Any]:
    """Answer one event, even a malformed one, with what API Gateway takes from a function."""
    try:
        request = request_of(event, deadline_of(context, application.clock))
        admitted = guard.admit(request, event) if guard else request
        if isinstance(admitted, Request):
            response = application.respond(admitted)
        else:
            response = application.refuse(admitted)
    except Exception as error:  # noqa: BLE001 (the last resort: an event that API Gateway did not make)
        response = application.fail(error, request_id_of(event) if isinstance(event, dict) else "unknown")
    return to_proxy_response(response)


def request_of(event: Mapping[str, Any], deadline: Deadline | None = None) -> Request:
    """Return the request of a proxy event. Raises BadRequest for a body that is not base64 as marked."""
    context = event.get("requestContext") or {}
    several = event.get("multiValueHeaders")
    if several:
        headers = {
            name.lower(): ", ".join(values) if values[1:] else values[0] for name, values in several.items()
        }
    else:
        headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    query = event.get("multiValueQueryStringParameters")
    if query is None:
        single = event.get("queryStringParameters")
        query = {name: [each] for name, each in single.items()} if single else {}
    body = event.get("body")
    return Request(
        event["httpMethod"],
        event["path"],
        query,
        headers,
        _content(body, is_base64=event.get("isBase64Encoded")) if body else b"",
        _EventSender(context),
        str(context.get("requestId") or "unknown"),
        _within_token(context, deadline),
        f"/{context.get('stage', '')}",
        scope_in(context),
    )


def scope_in(context: Mapping[str, Any]) -> Scope | None:
    """Return the scope that the authorizer has put into an event's context; None for an unscoped caller.

    Raises ValueError for one that can't be read: nobody is unscoped by mistake.
    """
    found = _object(context, "authorizer").get(CONTEXT_NAME)
    if found is None:
        return None
    if not isinstance(found, str):
        raise ValueError("the scope of the authorizer is not a string")  # noqa: TRY004 (as any other)
    return decode_scope(found)


def _within_token(context: Mapping[str, Any], deadline: Deadline | None) -> Deadline | None:
    """Return the deadline, or the end of the token that the authorizer has verified. Raises ValueError."""
    found = _object(context, "authorizer").get(UNTIL_NAME)
    return deadline if found is None or deadline is None else deadline.or_at_ms(float(found) * 1000)


def request_id_of(event: Mapping[str, Any]) -> str:
    """Return API Gateway's id of the request: it is in its logs and in the client's response."""
    return str((event.get("requestContext") or {}).get("requestId") or "unknown")


def deadline_of(context: Any, clock: Clock) -> Deadline | None:
    """Return the end of a function's work, from Lambda's context object; None where there is none."""
    if context is None:
        return None
    return Deadline.after_ms(context.get_remaining_time_in_millis() - MARGIN_MS, clock)


def to_proxy_response(response: Response[Any]) -> dict[str, Any]:
    """Return what API Gateway takes from a function: bytes as base64, each header a list."""
    body = response.body
    return {
        "statusCode": response.status_code,
        "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
        "isBase64Encoded": isinstance(body, bytes),
        "multiValueHeaders": {name: [value] for name, value in response.headers.items()},
    }


def _content(body: str, *, is_base64: bool | None) -> bytes:
    try:
        return base64.b64decode(body, validate=True) if is_base64 else body.encode()
    except ValueError as error:
        raise BadRequest(
            "the body is marked as base64 in the event, but is not valid base64", "body"
        ) from error


class _EventSender:
    """The sender that an event's context names; the context is looked at only where the name is asked for."""

    __slots__ = ("_context",)

    def __init__(self, context: Mapping[str, Any]) -> None:
        self._context = context

    def name(self, sources: Sequence[str] = SOURCES) -> str:
        """See `Sender.name`."""
        return _caller_of(self._context).name(sources)


def _caller_of(context: Mapping[str, Any]) -> Caller:
    authorizer, identity = _object(context, "authorizer"), _object(context, "identity")
    principal = authorizer.get("principalId") or _object(authorizer, "claims").get("sub")
    found = principal, identity.get("userArn"), identity.get("apiKeyId"), identity.get("sourceIp")
    return Caller(*[each if isinstance(each, str) else "" for each in found])


def _object(source: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = source.get(name)
    return found if isinstance(found, dict) else {}
