"""Applications: each answers the requests of its own routes by its operations, and rejects all others.

`keylane.model.routes` lists all routes. `keylane.app` has the operations, and builds the applications.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from keylane.api.http import problems, unknown_routes
from keylane.api.http.common_parameters import EVENT
from keylane.api.http.parameters import QUERY
from keylane.api.http.preferences import accepts, accepts_document
from keylane.api.http.response import ANSWER_LIMIT_BYTES, Response
from keylane.api.http.scope_checks import NOT_FOR_SCOPES, check_scope
from keylane.api.http.unknown_parameters import refuse_unknown
from keylane.errors import BadRequest, NotAcceptable, NullKey, OutsideScope, TooLarge
from keylane.model import routes
from keylane.model.routes import PermissionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.api.http.parameters import Parameter
    from keylane.api.http.request import Request
    from keylane.api.http.schemas import Schema
    from keylane.config.api import ApiSettings
    from keylane.metrics.meter import Meter
    from keylane.model.routes import Route, Target
    from keylane.ports import Clock

    Handler = Callable[..., Response[Any]]

Parts = TypeVar("Parts")
"""What an application's operations work with: settings, stores, clients."""

FITS_SURELY = ANSWER_LIMIT_BYTES // 12
"""A text of this many characters fits into a response, however many of them JSON escapes."""
SLICE_CHARACTERS = 128 * 1024
"""Of a larger one, which are measured before others have a turn: tenths of a millisecond."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
BYTES: dict[str, Any] = {}
"""The schema of a body that may be any bytes."""
_DOTS = frozenset({".", ".."})


class Compatibility(NamedTuple):
    """How another server takes a request, and answers it: by the words of the setting for the latter."""

    adapt_request: Callable[[Request], Request]
    adapt_answer: Mapping[str, Callable[[Request, Response[Any]], Response[Any]]]


@dataclass(frozen=True, slots=True)
class Operation:
    """What answers a route, and what the OpenAPI document says of it.

    `handler` takes the application, the request, and the variable parts of its path.
    `body`: the JSON schema of a request's body, BYTES for any at all, None without one; `bodies`: schemas by
    media type instead, where it isn't plain JSON.
    `answer`: the schema of the answer, `status` and `answer_type` are its own; `also`: what another status
    with the same schema means; `empty`: what one without a body means. `is_value`: the answer may be a
    record's own value, of any media type.
    `refusals` are the statuses of problems that this route alone may answer with, beside those that all have;
    `reports_failures`: an answer of the same schema may report one of them, too. `accepted`: the schema of a
    202. `other_answers`: schemas of answers of further media types, among which `Accept` chooses.
    `render_error` makes the response to an error that the handler raises, as `problems.response_to` if None.
    `takes_conditions`: what is no parameter in its query is a condition on a field.
    `takes_scope`: it keeps to the scope of a caller that rules apply to; all others refuse such callers.
    `compatible` changes request and answer where `KEYLANE_REST_COMPATIBILITY` asks for another server's.
    """

    route: Route
    handler: Handler
    answer: Schema
    parameters: tuple[Parameter, ...] = ()
    body: Schema | dict[str, Any] | None = None
    status: int = 200
    refusals: tuple[int, ...] = ()
    empty: Mapping[int, str] = field(default_factory=dict)
    bodies: Mapping[str, Any] = field(default_factory=dict)
    answer_type: str = "application/json"
    also: Mapping[int, str] = field(default_factory=dict)
    is_value: bool = False
    reports_failures: bool = False
    accepted: Schema | None = None
    other_answers: Mapping[str, Schema] = field(default_factory=dict)
    render_error: Callable[[Request, Exception], Response[str]] | None = None
    compatible: Compatibility | None = None
    takes_conditions: bool = False
    takes_scope: bool = False
    query_names: frozenset[str] = field(init=False)
    """The names of its query parameters."""
    is_read: bool = field(init=False)
    """Whether it reads topics: an enumeration's members take long to look up."""
    takes_any: bool = field(init=False)
    """Whether it ignores `Accept` here: a write is answered in JSON, a record by rules of its own."""

    def __post_init__(self) -> None:
        kind = self.route.permission.kind
        names = frozenset(each.name for each in self.parameters if each.place == QUERY)
        object.__setattr__(self, "query_names", names)
        object.__setattr__(self, "is_read", kind is PermissionKind.READ)
        object.__setattr__(self, "takes_any", self.is_value or kind is PermissionKind.WRITE)

    def check_scope(self, request: Request, target: Target) -> None:
        """Raise OutsideScope where the rules that apply to the caller do not permit the request."""
        if not self.takes_scope or request.scope is None:
            raise OutsideScope(NOT_FOR_SCOPES)
        takes_events = EVENT in self.parameters
        check_scope(request.scope, request, target, self.route.permission, takes_events=takes_events)

    def check(self, request: Request) -> None:
        """Raise BadRequest for an unknown parameter, NotAcceptable where no JSON document is accepted."""
        if request.query and not self.takes_conditions:
            refuse_unknown(request.query, self.query_names)
        if self.takes_any:
            return
        accept = request.headers.get("accept")
        if not accepts_document(accept) and not accepts(accept, self.answer_type):
            raise NotAcceptable(accept or "", self.answer_type)


class Operations(dict[str, Operation]):
    """The operations of one function, by the names of their routes. `function`: one of `routes.FUNCTIONS`."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function

    def operation(self, answer: Schema, **described: Any) -> Callable[[Handler], Handler]:
        """Register what answers the route of its name; `described`: what else `Operation` takes."""

        def register(handler: Handler) -> Handler:
            route = routes.BY_NAME[handler.__name__]
            self[route.name] = Operation(route, handler, answer, **described)
            return handler

        return register


class Application(Generic[Parts]):
    """One function's operations with what they work with.

    `open_parts` and `read_settings` are called until they return, by the requests that need them: what is
    wrong with the environment is each request's error until it is mended.
    """

    def __init__(
        self,
        operations: Operations,
        open_parts: Callable[[], Parts],
        read_settings: Callable[[], ApiSettings],
        *,
        meter: Meter,
        clock: Clock,
    ) -> None:
        self.meter = meter
        self.clock = clock
        self._operations = operations
        self._open_parts = open_parts
        self._read_settings = read_settings
        self._parts: Parts | None = None
        self._settings: ApiSettings | None = None

    def parts(self) -> Parts:
        """Return what the operations work with. Raises SettingsError, SettingsUnavailable."""
        if self._parts is None:
            self._parts = self._open_parts()
        return self._parts

    def settings(self) -> ApiSettings:
        """Return what the API serves. Raises SettingsError, SettingsUnavailable."""
        if self._settings is None:
            self._settings = self._read_settings()
        return self._settings

    def respond(self, request: Request, target: Target | None = None) -> Response[Any]:
        """Answer a request; an error becomes a problem document. `target`: where it leads, if that is known.

        A HEAD is answered as a GET, without the body.
        """
        begun_s = time.perf_counter()
        operation, cors_headers, compatibility = None, NO_HEADERS, ""
        try:
            settings = self.settings()
            cors_headers = settings.cors_headers
            found = target or routes.find(request.method, settings.path_of(request.path))
            _check_segments(found.path)
            if found.route is not None and "" not in found.parts:
                operation = self._operations.get(found.route.name)
            if operation is None:
                response: Response[Any] = self._refuse(request, found.path)
            else:
                if request.scope is not None:
                    operation.check_scope(request, found)
                if operation.compatible and (compatibility := settings.rest_compatibility):
                    request = operation.compatible.adapt_request(request)
                operation.check(request)
                if operation.is_read:
                    _check_served(settings, request, found)
                response = self._within_bounds(operation.handler(self, request, *found.parts), request.id)
        except Exception as error:  # noqa: BLE001 (all are answered, the unforeseen ones logged)
            render = None if operation is None else operation.render_error
            response = render(request, error) if render else problems.response_to(error, request.id)
            problems.let_go(error)
        if compatibility and operation is not None and operation.compatible is not None:
            adapt = operation.compatible.adapt_answer.get(compatibility)
            response = adapt(request, response) if adapt else response
        if operation is not None:
            response.method = response.method or operation.route.name
        if request.method == "HEAD":
            response.body = ""
        return self._finish(response, cors_headers, begun_s)

    def respond_within(self, request: Request) -> Response[Any]:
        """Answer a request that another one leads to; its path has no base path."""
        return self.respond(request, routes.find(request.method, request.path))

    def fail(self, error: Exception, request_id: str) -> Response[str]:
        """Answer a request that can't be read."""
        return self._finish(problems.response_to(error, request_id), NO_HEADERS, time.perf_counter())

    def refuse(self, response: Response[str]) -> Response[str]:
        """Return a response that was made before an operation was looked for, as `respond` would.

        Raises SettingsError, SettingsUnavailable.
        """
        return self._finish(response, self.settings().cors_headers, time.perf_counter())

    def finish(self, response: Response[Any], route: Route, request_id: str, begun_s: float) -> Response[Any]:
        """Return a response that was made without `respond`, as `respond` would. `begun_s`: perf_counter's.

        Raises SettingsError, SettingsUnavailable.
        """
        response = self._within_bounds(response, request_id)
        response.method = response.method or route.name
        return self._finish(response, self.settings().cors_headers, begun_s)

    def _within_bounds(self, response: Response[Any], request_id: str) -> Response[Any]:
        """Return the response, or a problem that reports its size if it is too large for Lambda."""
        body = response.body
        if not isinstance(body, str | bytes) or len(body) <= FITS_SURELY:
            return response
        size = len(body) * 4 // 3 if isinstance(body, bytes) else _size_in_json(body, self.clock.give_way)
        if size <= ANSWER_LIMIT_BYTES:
            return response
        problem = problems.response_to(TooLarge("answer", size, ANSWER_LIMIT_BYTES), request_id)
        problem.ages, problem.method = response.ages, response.method
        return problem

    def _finish(
        self, response: Response[Any], cors_headers: Mapping[str, str], begun_s: float
    ) -> Response[Any]:
        """Return the response with what all have; its numbers are noted."""
        if cors_headers:
            response.headers.update(cors_headers)
        meter = self.meter
        for topic, age_ms in response.ages:
            meter.observe("AnswerAge", age_ms, topic)
        if response.problem:
            meter.count("Problems", 1, response.problem)
        taken_ms = (time.perf_counter() - begun_s) * 1000
        meter.request(response.method or "unknown", response.status_code, taken_ms)
        return response

    def _refuse(self, request: Request, path: str) -> Response[str]:
        """Return the problem of a path and method for which this function has no operation."""
        method, request_id = request.method, request.id
        found = routes.routes_at(path)
        own = [each for each in found if each.name in self._operations]
        if own and own[0].path != routes.KEY_PATH:
            methods = [method for each in (*own, *found) for method in each.methods]
            return unknown_routes.wrong_method(path, methods, request_id)
        topic, is_key_path, key = _topic_and_key(path)
        if not is_key_path:
            return unknown_routes.unknown_route(path, request_id)
        if method in routes.KEY_METHODS and not topic:
            return problems.response_to(BadRequest("the topic's name is empty", "topic"), request_id)
        if method in routes.KEY_METHODS and not key:
            return problems.response_to(NullKey(), request_id)
        return unknown_routes.wrong_method(path, routes.KEY_METHODS, request_id)


def _check_segments(path: str) -> None:
    """Raise BadRequest for a path that others read as another one (RFC 3986, 5.2.4)."""
    if "/." in path and not _DOTS.isdisjoint(path.split("/")):
        raise BadRequest("the path has a segment . or ..: ask for such a key with key_format=base64")


def _check_served(settings: ApiSettings, request: Request, target: Target) -> None:
    """Raise TopicNotServed for a topic that the request names, and that is not read here."""
    # Of a repeated parameter the operation reads the last value, too.
    query = request.query and {name: values[-1:] for name, values in request.query.items()}
    for topic in target.names(query) or ():
        settings.topics.check(topic)


def _size_in_json(text: str, give_way: Callable[[], None]) -> int:
    """Return how many characters a text has as a string of JSON."""
    size = 2
    for at in range(0, len(text), SLICE_CHARACTERS):
        size += len(quote(text[at : at + SLICE_CHARACTERS])) - 2
        give_way()
    return size


def _topic_and_key(path: str) -> tuple[str, bool, str]:
    """Split a key's path, which may lack the key: its topic, whether it is one at all, its key."""
    match = routes.KEY_PATTERN.fullmatch(path) or routes.KEY_PATTERN.fullmatch(f"{path}/")
    return (match[1], True, match[2]) if match else ("", False, "")
