"""The resolver that the functions share: a short way for a key's route, and an answer to everything else."""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver

from keylane.api import problems
from keylane.api.event import request_id_of
from keylane.api.read_key import ANSWER_LIMIT_BYTES
from keylane.errors import BadRequest, NullKey, TooLarge
from keylane.metrics.meter import METER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aws_lambda_powertools.event_handler import Response

    from keylane.api.event import Event
    from keylane.api.parameters import Parameter

    KeyRoute = Callable[[Event, str, str], Response[Any]]
    Handler = Callable[..., Response[Any]]

SURELY_HELD = ANSWER_LIMIT_BYTES // 12
"""No text of so many characters escapes to more than an answer may be."""
METHODS = ("GET", "HEAD", "PUT", "DELETE")
KEY_PATH = "/topics/{topic}/keys/{key}"
BYTES: dict[str, Any] = {}
"""The schema of a body that may be any bytes."""
_KEY_PATH = re.compile(r"/topics/([^/]*)/keys(?:/([^/]*))?/*")
_NAMED = re.compile(r"\\\{\w+\\\}")


@dataclass(frozen=True, slots=True)
class Route:
    """A path, its methods, and what the OpenAPI document tells of it.

    `path`: as in `/join/{key}`; the handler gets the event and these parts, percent-encoded.
    `body`: the JSON schema of a request's body, BYTES for any at all, None without one; `bodies`: schemas by
    media type instead, where it isn't plain JSON.
    `answer` names the schema of the answer, `status` and `answer_type` are its own; `refusals` are the
    statuses of problems that this route alone may answer with, beside those that all have. `tells_failures`:
    what has failed may be told in an answer of the same schema, too. `accepted` names the schema of a 202.
    `elsewhere`: methods of the path that another function takes.
    """

    path: str
    methods: tuple[str, ...]
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    body: dict[str, Any] | None = None
    answer: str = ""
    status: int = 200
    refusals: tuple[int, ...] = ()
    bodies: dict[str, Any] = field(default_factory=dict)
    answer_type: str = "application/json"
    tells_failures: bool = False
    accepted: str = ""
    elsewhere: tuple[str, ...] = ()
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        pattern = re.compile(_NAMED.sub("([^/]+)", re.escape(self.path)))
        object.__setattr__(self, "pattern", pattern)


class Resolver(APIGatewayRestResolver):
    """Powertools' resolver; the routes of `/topics/{topic}/keys/{key}` are called straight.

    Powertools takes 50 us around a route, as long as the read of Redis itself; it has all other routes.
    `method`: what the metrics call the request under way; its route's name, if that says nothing else.
    """

    def __init__(self) -> None:
        super().__init__()
        self._key_routes: dict[str, KeyRoute] = {}
        self.table: list[Route] = []
        self.method = ""
        self.exception_handler(Exception)(self._failed)
        self.not_found(self._not_found)

    def key(self, *methods: str, **described: Any) -> Callable[[KeyRoute], KeyRoute]:
        """Register a function of the event and the raw topic and key of its path, percent-encoded both.

        `described`: what else `Route` takes.
        """

        def register(route: KeyRoute) -> KeyRoute:
            self._key_routes.update(dict.fromkeys(methods, route))
            self.table.append(Route(KEY_PATH, methods, route, **described))
            return route

        return register

    def at(self, path: str, *methods: str, **described: Any) -> Callable[[Handler], Handler]:
        """Register a function of the event and the raw parts of its path, as `Route` has it."""

        def register(handler: Handler) -> Handler:
            self.table.append(Route(path, methods, handler, **described))
            return handler

        return register

    def resolve(self, event: Event, context: Any) -> dict[str, Any]:
        """Answer one event; what a route raises becomes a problem document."""
        self.method = "unknown"
        method, path = event["httpMethod"], event["path"]
        key_path = _KEY_PATH.fullmatch(path)
        route: Handler | None = None
        if key_path and key_path[1] and key_path[2]:
            route, parts = self._key_routes.get(method), key_path.groups()
        if route is None:
            found = [(each, match) for each in self.table if (match := each.pattern.fullmatch(path))]
            taking = [(each.handler, match.groups()) for each, match in found if method in each.methods]
            if taking:
                route, parts = taking[0]
            elif found and found[0][0].path != KEY_PATH:
                return proxy_answer(_wrong_method(_methods(each for each, _ in found), event))
            else:
                return super().resolve(event, context)
        self.method = route.__name__
        try:
            response = route(event, *parts)
        except Exception as error:  # noqa: BLE001 (all are answered, the unforeseen ones logged)
            response = problems.response_to(error, request_id_of(event))
        return proxy_answer(_within_bounds(response, event))

    def _failed(self, error: Exception) -> Response[str]:
        return problems.response_to(error, request_id_of(self.current_event.raw_event))

    def _not_found(self, _: Exception) -> Response[str]:
        return _no_route(self.current_event.raw_event)


def serve(app: Resolver, event: Event, context: Any) -> dict[str, Any]:
    """Answer one event, whatever it is; a HEAD as its GET, without the body."""
    begun_s = time.perf_counter()
    answer = _answer(app, event, context)
    METER.request(app.method, answer["statusCode"], (time.perf_counter() - begun_s) * 1000)
    return answer


def _answer(app: Resolver, event: Event, context: Any) -> dict[str, Any]:
    try:
        answer = app.resolve(event, context)
    except Exception as error:  # noqa: BLE001 (the last resort: an event that is none of API Gateway's)
        request_id = request_id_of(event if isinstance(event, dict) else {})
        return proxy_answer(problems.response_to(error, request_id))
    if event["httpMethod"] == "HEAD":
        answer |= {"body": "", "isBase64Encoded": False}
    return answer


def _within_bounds(response: Response[Any], event: Event) -> Response[Any]:
    """The response, or, where Lambda would refuse it, a problem that tells its size."""
    body = response.body
    if body is None or len(body) <= SURELY_HELD:
        return response
    size = len(body) * 4 // 3 if isinstance(body, bytes) else len(json.dumps(body))
    if size <= ANSWER_LIMIT_BYTES:
        return response
    return problems.response_to(TooLarge("answer", size, ANSWER_LIMIT_BYTES), request_id_of(event))


def proxy_answer(response: Response[Any]) -> dict[str, Any]:
    """Give a response the shape that API Gateway takes: bytes as base64, each header a list."""
    body = response.body
    return {
        "statusCode": response.status_code,
        "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
        "isBase64Encoded": isinstance(body, bytes),
        "multiValueHeaders": {name: [value] for name, value in response.headers.items()},
    }


def _methods(routes: Iterable[Route]) -> list[str]:
    """All that the path of these takes, here or elsewhere."""
    return list(dict.fromkeys(method for each in routes for method in each.methods + each.elsewhere))


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
    return _wrong_method(METHODS, event)


def _wrong_method(methods: Sequence[str], event: Event) -> Response[str]:
    allow = ", ".join(methods)
    headers = {"Allow": allow}
    return problems.problem(
        problems.WRONG_METHOD, f"the path takes {allow}", request_id_of(event), headers=headers
    )
