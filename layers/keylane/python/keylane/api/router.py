"""The resolver that the functions share: it passes an event to its handler, and rejects all other events.

`keylane.model.routes` lists all routes; a function registers handlers for its own.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keylane.api import problems, unknown_routes
from keylane.api.event import headers_of, query_of, request_id_of, with_headers_read
from keylane.api.preferences import accepts, accepts_document
from keylane.api.response import ANSWER_LIMIT_BYTES, Response, to_proxy_response
from keylane.api.unknown_parameters import refuse_unknown
from keylane.config.api import ApiSettings
from keylane.errors import BadRequest, NotAcceptable, NullKey, TooLarge
from keylane.metrics.meter import NO_METER, Meter
from keylane.model import routes
from keylane.model.routes import Match, PermissionKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.api.event import Event
    from keylane.api.parameters import Parameter
    from keylane.model.routes import Route

    Handler = Callable[..., Response[Any]]

FITS_SURELY = ANSWER_LIMIT_BYTES // 12
"""A text of this many characters fits into a response, however many of them JSON escapes."""
RECORD = "Record"
"""The schema of the answer that is a record's own value, of any media type."""
BYTES: dict[str, Any] = {}
"""The schema of a body that may be any bytes."""
_KEY_METHODS = [method for each in routes.ROUTES if each.path == routes.KEY_PATH for method in each.methods]


@dataclass(frozen=True, slots=True)
class Operation:
    """A route with its handler, and what the OpenAPI document says of it.

    `body`: the JSON schema of a request's body, BYTES for any at all, None without one; `bodies`: schemas by
    media type instead, where it isn't plain JSON.
    `answer` names the schema of the answer, `status` and `answer_type` are its own; `refusals` are the
    statuses of problems that this route alone may answer with, beside those that all have.
    `reports_failures`: an answer of the same schema may report a failure, too. `accepted` names the schema of
    a 202. `other_answers`: schemas of answers of further media types, among which `Accept` chooses.
    `render_error` makes the response to an error that the handler raises, as `problems.response_to` if None.
    """

    route: Route
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    body: dict[str, Any] | None = None
    answer: str = ""
    status: int = 200
    refusals: tuple[int, ...] = ()
    bodies: dict[str, Any] = field(default_factory=dict)
    answer_type: str = "application/json"
    reports_failures: bool = False
    accepted: str = ""
    other_answers: dict[str, str] = field(default_factory=dict)
    render_error: Callable[[Event, Exception], Response[str]] | None = None
    query_names: frozenset[str] = field(init=False)
    """The names of its query parameters."""
    is_read: bool = field(init=False)
    """Whether it reads topics: an enumeration's members take long to look up."""

    def __post_init__(self) -> None:
        names = frozenset(each.name for each in self.parameters if each.place == "query")
        object.__setattr__(self, "query_names", names)
        object.__setattr__(self, "is_read", self.route.permission.kind is PermissionKind.READ)

    def check(self, event: Event) -> None:
        """Raise BadRequest for an unknown query parameter, NotAcceptable where no JSON document is accepted.

        A write is answered in JSON whatever is accepted, and a record's answer depends on its value.
        """
        if query := query_of(event):
            refuse_unknown(query, self.query_names)
        if self.answer == RECORD or self.route.permission.kind is PermissionKind.WRITE:
            return
        accept = headers_of(event).get("accept")
        if not accepts_document(accept) and not accepts(accept, self.answer_type):
            raise NotAcceptable(accept or "", self.answer_type)


class Resolver:
    """Calls the handler of an event's route with the event and the percent-encoded parts of its path.

    `settings` returns the settings of the API; it is called for each request, and may raise SettingsError.
    """

    def __init__(
        self, function: str, meter: Meter = NO_METER, settings: Callable[[], ApiSettings] = ApiSettings
    ) -> None:
        self.function = function
        self.meter = meter
        self.settings = settings
        self.operations: dict[str, Operation] = {}
        self._key_operations: dict[str, Operation] = {}

    def operation(self, **described: Any) -> Callable[[Handler], Handler]:
        """Register the handler of the route that has its name; `described`: what else `Operation` takes."""

        def register(handler: Handler) -> Handler:
            route = routes.BY_NAME[handler.__name__]
            operation = self.operations[route.name] = Operation(route, handler, **described)
            if route.path == routes.KEY_PATH:
                self._key_operations.update(dict.fromkeys(route.methods, operation))
            return handler

        return register

    def resolve(self, event: Event) -> Response[Any]:
        """Answer one event; an exception of its handler becomes a problem document."""
        name, settings, operation = "", None, None
        try:
            settings = self.settings()
            event = with_headers_read(event)
            method, path = event["httpMethod"], settings.path_of(event["path"])
            found = self._operation_at(method, path)
            if found is None:
                response: Response[Any] = self._refuse(method, path, request_id_of(event))
            else:
                match, operation = found
                name = operation.route.name
                operation.check(event)
                if operation.is_read:
                    # Of a repeated parameter the handler reads the last value, too.
                    query = {parameter: (value,) for parameter, value in query_of(event).items()}
                    for topic in match.names(query) or ():
                        settings.topics.check(topic)
                response = _within_bounds(operation.handler(event, *match.parts), event)
        except Exception as error:  # noqa: BLE001 (all are answered, the unforeseen ones logged)
            if operation is not None and operation.render_error is not None:
                response = operation.render_error(event, error)
            else:
                response = problems.response_to(error, request_id_of(event))
        response.method = response.method or name
        if settings and settings.cors_headers:
            response.headers.update(settings.cors_headers)
        return response

    def _operation_at(self, method: str, path: str) -> tuple[Match, Operation] | None:
        """Return this function's route for a method and path, and its operation."""
        key_path = routes.KEY_PATTERN.fullmatch(path)
        if key_path:
            # The route that has to be fast: the table's other patterns are not tried.
            found = self._key_operations.get(method)
            parts = key_path.groups()
            return (Match(found.route, parts), found) if found and all(parts) else None
        match = routes.route_for(method, path)
        if match is None or match.route.name not in self.operations:
            return None
        return match, self.operations[match.route.name]

    def _refuse(self, method: str, path: str, request_id: str) -> Response[str]:
        """Return the problem of a path and method for which this function has no handler."""
        found = [match.route for match in routes.routes_at(path)]
        own = [each for each in found if each.name in self.operations]
        if own and own[0].path != routes.KEY_PATH:
            methods = [method for each in (*own, *found) for method in each.methods]
            return unknown_routes.wrong_method(path, methods, request_id)
        topic, is_key_path, key = _topic_and_key(path)
        if not is_key_path:
            return unknown_routes.unknown_route(path, request_id)
        if method in _KEY_METHODS and not topic:
            return problems.response_to(BadRequest("the topic's name is empty", "topic"), request_id)
        if method in _KEY_METHODS and not key:
            return problems.response_to(NullKey(), request_id)
        return unknown_routes.wrong_method(path, _KEY_METHODS, request_id)


def serve(app: Resolver, event: Event, context: Any) -> dict[str, Any]:
    """Answer one event, even a malformed one, with what API Gateway takes from a function."""
    return to_proxy_response(respond(app, event))


def respond(app: Resolver, event: Event) -> Response[Any]:
    """Answer one event, even a malformed one. A HEAD is answered as a GET, without the body."""
    begun_s = time.perf_counter()
    try:
        response = app.resolve(event)
        if event["httpMethod"] == "HEAD":
            response.body = ""
    except Exception as error:  # noqa: BLE001 (the last resort: an event that API Gateway did not make)
        response = problems.response_to(error, request_id_of(event if isinstance(event, dict) else {}))
    for topic, age_ms in response.ages:
        app.meter.observe("AnswerAge", age_ms, topic)
    if response.problem:
        app.meter.count("Problems", 1, response.problem)
    taken_ms = (time.perf_counter() - begun_s) * 1000
    app.meter.request(response.method or "unknown", response.status_code, taken_ms)
    return response


def _within_bounds(response: Response[Any], event: Event) -> Response[Any]:
    """Return the response, or a problem that reports its size if it is too large for Lambda."""
    body = response.body
    if not isinstance(body, str | bytes) or len(body) <= FITS_SURELY:
        return response
    size = len(body) * 4 // 3 if isinstance(body, bytes) else len(json.dumps(body))
    if size <= ANSWER_LIMIT_BYTES:
        return response
    problem = problems.response_to(TooLarge("answer", size, ANSWER_LIMIT_BYTES), request_id_of(event))
    problem.ages, problem.method = response.ages, response.method
    return problem


def _topic_and_key(path: str) -> tuple[str, bool, str]:
    """Split a key's path, which may lack the key: its topic, whether it is one at all, its key."""
    match = routes.KEY_PATTERN.fullmatch(path) or routes.KEY_PATTERN.fullmatch(f"{path}/")
    return (match[1], True, match[2]) if match else ("", False, "")
