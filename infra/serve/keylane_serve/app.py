"""The server as an ASGI application: requests become events for the handlers, whose responses it sends.

granian speaks HTTP. Its own interface, RSGI, decodes the path, so that a key with `%2F`, or with bytes that
are not UTF-8, could not be read; ASGI passes the path as it was sent.

    1. AdmissionControl: over a bound, 503 (admission).
    2. The body, within its bounds (bodies).
    3. Access, if tokens are required (access).
    4. The handler: in a greenlet, or for `explore` in a thread (functions, greenlets).
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.model.changes import PROBLEM, ChangeEvent
from keylane.model.routes import EXPLORE, READS, STREAMS, function_for, route_for
from keylane.wiring.api import read_api_settings
from keylane_serve import refusals
from keylane_serve.admission import Overloaded
from keylane_serve.bodies import Body, ClientGone
from keylane_serve.greenlets import RequestCancelled, RequestGreenlet, begin, begin_awaited
from keylane_serve.proxy_events import HttpRequest, build_event_in_process
from keylane_serve.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from keylane.api.response import Response
    from keylane_serve.access import TokenAuthorizer
    from keylane_serve.admission import AdmissionControl
    from keylane_serve.functions import Functions
    from keylane_serve.pages import OwnPages

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

_log = logging.getLogger("keylane.serve")
_access_log = logging.getLogger("keylane.access")
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET,HEAD,PUT,POST,DELETE",
    "Access-Control-Allow-Headers": "Authorization,*",
    "Access-Control-Max-Age": "7200",
}
SEND_TIMEOUT_S = 60.0
"""How long a client of a stream may read nothing while there is something to read."""
_HEADER_NAMES: dict[str, bytes] = {}


class ReceivedRequest(NamedTuple):
    """A request before its body is read. `path` and `query` are as they were sent, names in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    pairs: tuple[tuple[str, str], ...]
    source_ip: str
    id: str

    @classmethod
    def of(cls, scope: Scope) -> ReceivedRequest:
        """Read an ASGI scope."""
        pairs = tuple(
            (name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))
            for name, value in scope["headers"]
        )
        path = scope["raw_path"].decode("utf-8", "surrogateescape")
        client = scope.get("client") or ("", 0)
        query = scope["query_string"].decode("utf-8", "surrogateescape")
        return cls(scope["method"], path, query, dict(pairs), pairs, client[0], str(uuid.uuid4()))

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def is_long_poll(self) -> bool:
        """Whether the client asks to wait for a change."""
        return "wait" in self.headers.get("prefer", "") and self.method in READS

    @property
    def declared_bytes(self) -> int | None:
        """The Content-Length, None without one."""
        length = self.headers.get("content-length")
        return int(length) if length is not None else None

    @property
    def has_body(self) -> bool:
        """Whether a body may follow. HTTP/2 announces none."""
        known = "content-length" in self.headers or "transfer-encoding" in self.headers
        return known or self.method not in READS


class ServerApp:
    """Answers requests. `authorizer`: None if anyone may send them."""

    def __init__(
        self,
        functions: Functions,
        admission: AdmissionControl,
        pages: OwnPages,
        authorizer: TokenAuthorizer | None = None,
        *,
        logs_access: bool = False,
    ) -> None:
        self._functions = functions
        self._admission = admission
        self._pages = pages
        self._authorizer = authorizer
        self._logs_access = logs_access
        self._settings = read_api_settings()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        begun_s = time.perf_counter()
        request = ReceivedRequest.of(scope)
        accept = request.headers.get("accept", "")
        page = await self._pages.find(request.path, accept) if request.method in READS else None
        if page is not None:
            await _send(send, page.status, page.headers, b"" if request.method == "HEAD" else page.body)
            return
        try:
            response = await self._respond(request, receive)
        except (ClientGone, RequestCancelled):
            return
        if isinstance(response.body, EventStream):
            await self._stream(send, receive, response, request)
        else:
            await self._send_response(send, response, request)
        if self._logs_access:
            taken_ms = (time.perf_counter() - begun_s) * 1000
            shown = request.source_ip, request.method, request.target, response.status_code
            _access_log.info("%s %s %s %d %.1f ms %s", *shown, taken_ms, request.id)

    async def _respond(self, request: ReceivedRequest, receive: Receive) -> Response[Any]:
        admission = self._admission
        is_long_poll = request.is_long_poll or self._is_stream(request)
        is_streaming = False
        try:
            if is_long_poll:
                admission.enter_long_poll()
            else:
                await admission.enter()
        except Overloaded as error:
            if request.has_body:
                await Body(admission).discard(receive)
            return self._refused(error, request.id)
        body = Body(admission)
        try:
            if request.has_body:
                await body.read(receive, request.declared_bytes)
            response = await self._admitted(request, body, receive)
        except refusals.REFUSED as error:
            body.release()
            if request.has_body:
                await body.discard(receive)
            return self._refused(error, request.id)
        else:
            is_streaming = isinstance(response.body, EventStream)
            return response
        finally:
            body.release()
            if not is_long_poll:
                admission.leave()
            elif not is_streaming:
                admission.leave_long_poll()

    def _is_stream(self, request: ReceivedRequest) -> bool:
        """Whether the request is for a stream, which keeps its place until it ends."""
        if not request.path.rstrip("/").endswith("/changes"):
            return False
        found = route_for(request.method, self._settings.path_of(request.path))
        return found is not None and found.route.name in STREAMS

    async def _stream(
        self, send: Send, receive: Receive, response: Response[Any], request: ReceivedRequest
    ) -> None:
        """Send events until the client goes, or does not read for a while, or the stream ends."""
        stream: EventStream = response.body
        watching = asyncio.ensure_future(_leave_when_gone(receive, stream))
        try:
            response.headers["x-amzn-RequestId"] = request.id
            await _start(send, response.status_code, response.headers)
            async for chunk in stream.chunks(lambda: self._refuse_stream(request)):
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            _log.warning("request %s: the client reads nothing: its stream ends", request.id)
        finally:
            watching.cancel()
            stream.close()
            self._admission.leave_long_poll()

    def _refuse_stream(self, request: ReceivedRequest) -> ChangeEvent | None:
        """Return the last event of a stream whose token is no longer valid."""
        try:
            self._authorize(request)
        except refusals.REFUSED as error:
            return ChangeEvent(PROBLEM, str(self._refused(error, request.id).body))
        return None

    def _authorize(self, request: ReceivedRequest) -> str | None:
        """Return the caller's name, None where anyone may call. Raises NotAuthorized, NotAllowed."""
        if self._authorizer is None:
            return None
        if self._authorizer.is_due:
            begin(self._authorizer.reload_or_log, _ignore)
        path = self._settings.path_of(request.path)
        return self._authorizer.caller_of(request.method, path, request.query, request.headers)

    async def _admitted(self, request: ReceivedRequest, body: Body, receive: Receive) -> Response[Any]:
        path = self._settings.path_of(request.path)
        if request.method == "OPTIONS" and self._settings.cors_headers:
            return self._preflight()
        function = function_for(request.method, path)
        received = HttpRequest(request.method, request.target, request.pairs, body.data, request.source_ip)
        event = build_event_in_process(received, request.id)
        if (caller := self._authorize(request)) is not None:
            event["requestContext"]["authorizer"] = {"principalId": caller}
        if function == EXPLORE:
            return await self._functions.answer_in_thread(event)
        return await self._run(function, event, receive if request.is_long_poll else None)

    async def _run(self, function: str, event: dict[str, Any], receive: Receive | None) -> Response[Any]:
        """Run a handler in a greenlet. `receive`: of a request that ends when its client goes."""
        running, ended = begin_awaited(lambda: self._functions.answer(function, event))
        if receive is None or ended.done():
            return await ended
        watching = asyncio.ensure_future(_cancel_when_gone(receive, running))
        try:
            return await ended
        finally:
            watching.cancel()

    def _refused(self, error: Exception, request_id: str) -> Response[str]:
        response = refusals.refusal_of(error, request_id)
        self._pages.metrics.count_refusal(response.status_code)
        response.headers.update(self._settings.cors_headers)
        return response

    def _preflight(self) -> Response[Any]:
        from keylane.api.response import Response  # noqa: PLC0415 (for browsers alone)

        return Response(204, None, None, {**self._settings.cors_headers, **_PREFLIGHT})

    async def _send_response(self, send: Send, response: Response[Any], request: ReceivedRequest) -> None:
        body = response.body
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        headers = response.headers
        if "Content-Type" not in headers and response.status_code != _NO_CONTENT:
            headers["Content-Type"] = "application/json"
        headers["x-amzn-RequestId"] = request.id
        await _send(send, response.status_code, headers, body or b"")


_NO_CONTENT = 204


async def _send(send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    await _start(send, status, headers)
    await send({"type": "http.response.body", "body": body})


async def _start(send: Send, status: int, headers: dict[str, str]) -> None:
    names = _HEADER_NAMES
    pairs = [
        (names.get(name) or names.setdefault(name, name.encode()), value.encode())
        for name, value in headers.items()
    ]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _leave_when_gone(receive: Receive, stream: EventStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.leave()


async def _cancel_when_gone(receive: Receive, running: RequestGreenlet) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    running.cancel()


def _ignore(_: object, error: BaseException | None) -> None:
    if error is not None:
        _log.error("%s", error)
