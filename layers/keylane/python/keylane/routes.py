"""The resolver that the functions share: a short way for a key's route, and an answer to everything else."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver

from keylane import problems
from keylane.api import request_id_of
from keylane.errors import BadRequest, NullKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools.event_handler import Response

    from keylane.api import Event

    KeyRoute = Callable[[Event, str, str], Response[Any]]

METHODS = ("GET", "HEAD", "PUT", "DELETE")
_KEY_PATH = re.compile(r"/topics/([^/]*)/keys(?:/([^/]*))?/*")


class Resolver(APIGatewayRestResolver):
    """Powertools' resolver; the routes of `/topics/{topic}/keys/{key}` are called straight.

    Powertools takes 50 us around a route, as long as the read of Redis itself; it has all other routes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._key_routes: dict[str, KeyRoute] = {}
        self.exception_handler(Exception)(self._failed)
        self.not_found(self._not_found)

    def key(self, *methods: str) -> Callable[[KeyRoute], KeyRoute]:
        """Register a function of the event and the raw topic and key of its path, percent-encoded both."""

        def register(route: KeyRoute) -> KeyRoute:
            self._key_routes.update(dict.fromkeys(methods, route))
            return route

        return register

    def resolve(self, event: Event, context: Any) -> dict[str, Any]:
        """Answer one event; what a key's route raises becomes a problem document."""
        route = self._key_routes.get(event["httpMethod"])
        path = _KEY_PATH.fullmatch(event["path"])
        if not (route and path and path[1] and path[2]):
            return super().resolve(event, context)
        try:
            response = route(event, path[1], path[2])
        except Exception as error:  # noqa: BLE001 (all are answered, the unforeseen ones logged)
            response = problems.response_to(error, request_id_of(event))
        return proxy_answer(response)

    def _failed(self, error: Exception) -> Response[str]:
        return problems.response_to(error, request_id_of(self.current_event.raw_event))

    def _not_found(self, _: Exception) -> Response[str]:
        return _no_route(self.current_event.raw_event)


def serve(app: Resolver, event: Event, context: Any) -> dict[str, Any]:
    """Answer one event, whatever it is; a HEAD as its GET, without the body."""
    try:
        answer = app.resolve(event, context)
    except Exception as error:  # noqa: BLE001 (the last resort: an event that is none of API Gateway's)
        request_id = request_id_of(event if isinstance(event, dict) else {})
        return proxy_answer(problems.response_to(error, request_id))
    if event["httpMethod"] == "HEAD":
        answer |= {"body": "", "isBase64Encoded": False}
    return answer


def proxy_answer(response: Response[Any]) -> dict[str, Any]:
    """Give a response the shape that API Gateway takes: bytes as base64, each header a list."""
    body = response.body
    return {
        "statusCode": response.status_code,
        "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
        "isBase64Encoded": isinstance(body, bytes),
        "multiValueHeaders": {name: [value] for name, value in response.headers.items()},
    }


def _no_route(event: Event) -> Response[str]:
    """Tell what is wrong with a path and method that no route of the function takes."""
    request_id = request_id_of(event)
    path = _KEY_PATH.fullmatch(event["path"])
    if not path:
        detail = "keys are at /topics/{topic}/keys/{key}; a slash in a key is written %2F"
        return problems.problem(problems.UNKNOWN_ROUTE, detail, request_id)
    if event["httpMethod"] in METHODS and not path[1]:
        return problems.response_to(BadRequest("the topic's name is empty", "topic"), request_id)
    if event["httpMethod"] in METHODS and not path[2]:
        return problems.response_to(NullKey(), request_id)
    allow = ", ".join(METHODS)
    headers = {"Allow": allow}
    return problems.problem(problems.WRONG_METHOD, f"the path takes {allow}", request_id, headers=headers)
