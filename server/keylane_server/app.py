"""The server as an ASGI application: it passes requests to the applications, and sends their responses.

granian speaks HTTP. Its own interface, RSGI, decodes the path, so that a key with `%2F`, or with bytes that
are not UTF-8, could not be read; ASGI passes the path as it was sent.

    0. A plain look-up of a key has a fast path (lookups).
    1. What the HTTP parser lets through and we do not: 400 (received).
    2. Where the request leads: its route, for all that follows.
    3. Access, if tokens are required (access): a stranger's body is not read.
    4. The body, within its bounds (bodies).
    5. AdmissionControl: over a bound, 503 (admission).
    6. The operation: in a greenlet (greenlets), in the explore process, or in the body parser if the body is
       large (child_process).
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from keylane.api.http.preferences import LONGEST_ACCEPT
from keylane.api.http.request import is_host
from keylane.errors import BadRequest
from keylane.model.changes import PROBLEM, ChangeEvent
from keylane.model.routes import EXPLORE, PRODUCE, READS, STREAMS
from keylane_server import refusals
from keylane_server.admission import Overloaded, ReadPlace, WaitRefused
from keylane_server.bodies import Body
from keylane_server.greenlets import RequestBounds, RequestCancelled, begin_awaited
from keylane_server.lines import LineBody
from keylane_server.lookups import PlainLookups
from keylane_server.pages import PROBES
from keylane_server.received import ReceivedRequest, new_request_id
from keylane_server.refusals import ServerStops
from keylane_server.replies import ReplyBudget, RequestReplies
from keylane_server.sending import DIRECT_BYTES, Outbox, is_direct
from keylane_server.sites import OwnSites
from keylane_server.streamed_bodies import StreamedBody, Turns
from keylane_server.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from keylane.access.policy import Policy
    from keylane.api.http.request import Request
    from keylane.api.http.response import Response
    from keylane_server.access import TokenAuthorizer
    from keylane_server.admission import AdmissionControl
    from keylane_server.applications import Applications
    from keylane_server.options import ServerOptions
    from keylane_server.pages import MakePage, OwnPages
    from keylane_server.request_spans import RequestSpans

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
SHOWN_METHOD, SHOWN_CHARACTERS = 20, 2_000
"""Of a method and of a target in the log of access."""


class _Encoded(dict[str, bytes]):
    """Names of headers as bytes."""

    def __missing__(self, name: str) -> bytes:
        encoded = self[name] = name.encode()
        return encoded


_HEADER_NAMES = _Encoded()


class ServerApp:
    """Answers requests. `authorizer`: None if anyone may send them. `spans`: None if none are exported."""

    def __init__(
        self,
        applications: Applications,
        admission: AdmissionControl,
        pages: OwnPages,
        options: ServerOptions,
        authorizer: TokenAuthorizer | None = None,
        spans: RequestSpans | None = None,
    ) -> None:
        self._applications = applications
        self._settings = applications.settings
        self._admission = admission
        applications.write_place = admission.write_of_read
        self._pages = pages
        self._authorizer = authorizer
        self._logs_access = options.logs_access
        self._spans = spans
        # Their requests have no span and no line in a log.
        is_watched = options.logs_access or spans is not None or (authorizer and authorizer.is_audited)
        sites = None if authorizer else OwnSites(applications.settings.cors_headers, options.host)
        self._sites = sites
        self._lookups = None
        if not is_watched:
            may_ask = sites.is_host if sites else is_host
            self._lookups = PlainLookups.open(applications.query, admission, authorizer, may_ask)
        self._outbox = Outbox(admission)
        self._turns = Turns()
        self._reply_budget = ReplyBudget()
        self._answering: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def give_up(self) -> None:
        """Answer all requests that still run: the server stops. Streams end by themselves."""
        self._is_over = True
        if self._answering:
            _log.error("%d requests are answered with 504: the server stops", len(self._answering))
        for task in self._answering:
            task.cancel()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if self._lookups is not None and (lookup := self._lookups.ask(scope)) is not None:
            found = await self._lookups.answer(lookup)
            if found is not None:
                await self._send_response(scope, receive, send, found, lookup.request_id)
                return
        request = ReceivedRequest(scope, new_request_id())
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._answering.add(task)
        try:
            await self._answer_any(request, scope, receive, send)
        except RequestCancelled:
            return
        except asyncio.CancelledError:
            if not self._is_over:
                raise
            task.uncancel()
            refused = self._refused(ServerStops(), request.id)
            await self._send_response(scope, receive, send, refused, request.id)
        finally:
            self._answering.discard(task)

    async def _answer_any(self, request: ReceivedRequest, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request on the way of all."""
        begun_s = time.perf_counter()
        fault = request.find_fault(scope["http_version"])
        own = self._pages.find(request.path) if request.method in READS else None
        if own is not None and not fault:
            await self._answer_page(own, request, scope, receive, send)
            return
        request.find_target(self._settings.path_of(request.path))
        try:
            if self._spans is None:
                response = await self._respond(request, receive, fault)
            else:
                with self._spans.of(request) as span:
                    response = await self._respond(request, receive, fault)
                    span.answered(response)
            if isinstance(response.body, StreamedBody):
                self._answering.discard(asyncio.current_task())
                await self._stream(send, receive, response, request)
            else:
                self._answering.discard(asyncio.current_task())
                await self._send_response(scope, receive, send, response, request.id)
        finally:
            self._admission.end(request.source_ip)
        if self._logs_access:
            taken_ms = (time.perf_counter() - begun_s) * 1000
            target = request.shown_target[:SHOWN_CHARACTERS]
            shown = request.source_ip, request.method[:SHOWN_METHOD], target, response.status_code
            _access_log.info("%s %s %s %d %.1f ms %s", *shown, taken_ms, request.id)

    async def _answer_page(
        self, make: MakePage, request: ReceivedRequest, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer with a page of the server's own: it takes an address's share and a place, as any read.

        Probes take none: a server that has enough to do lives.
        """
        admission, places = self._admission, self._admission.reads
        is_counted = request.path not in PROBES
        try:
            if is_counted:
                admission.begin(request.source_ip)
                if self._sites is not None:
                    self._sites.check(request)
                await places.enter()
            try:
                page = await make(request.last.get("accept", "")[:LONGEST_ACCEPT])
            finally:
                if is_counted:
                    places.leave()
            body = b"" if request.method == "HEAD" else page.body
            await self._send_whole(scope, receive, send, _start_of(page.status, page.headers), body)
        except refusals.REFUSED as error:
            await self._send_response(scope, receive, send, self._refused(error, request.id), request.id)
        finally:
            if is_counted:
                admission.end(request.source_ip)

    async def _respond(self, request: ReceivedRequest, receive: Receive, fault: str) -> Response[Any]:
        is_write = request.target.function == PRODUCE
        body = Body(self._admission, is_write=is_write) if request.has_body else None
        try:
            self._admission.begin(request.source_ip)
            if fault:
                raise BadRequest(fault)
            if self._sites is not None:
                self._sites.check(request)
            is_preflight = request.method == "OPTIONS" and self._settings.cors_headers
            if is_preflight:  # of a stranger, whose body is not read
                return await self._preflight()
            if self._authorizer is not None:
                request.access = await self._authorizer.authorize(request)
            if body is None:
                complete = request.with_body(b"")
            else:
                await body.read(receive, request.declared_bytes)
                complete = request.with_body(body.data)
            return await self._admit(request, complete, receive)
        except refusals.REFUSED as error:
            return await self._refuse(error, request.id, body, receive)
        finally:
            if body is not None:
                body.release()

    async def _admit(self, request: ReceivedRequest, complete: Request, receive: Receive) -> Response[Any]:
        """Answer a request whose body is there, once it has a place. Raises Overloaded."""
        function, route = request.target.function, request.target.route
        if function == EXPLORE:
            return await self._applications.explore_process.respond(complete, request.target)
        # A small read, of one key, does not wait behind those of many records.
        is_small = function == PRODUCE or route is None or route.name == KEY_ROUTE
        replies = None if is_small else RequestReplies(self._reply_budget)
        waits = request.is_long_poll or (route is not None and route.name in STREAMS)
        try:
            return await (self._wait if waits else self._run)(request, complete, receive, replies)
        except WaitRefused as error:
            raise Overloaded(str(error)) from None
        finally:
            if replies is not None:
                replies.release()

    async def _wait(
        self,
        request: ReceivedRequest,
        complete: Request,
        receive: Receive,
        replies: RequestReplies | None,
    ) -> Response[Any]:
        """Answer a request that waits for a change; a stream keeps its place."""
        admission, policy = self._admission, self._policy
        admission.enter_long_poll()
        is_streaming = False
        try:
            bounds = RequestBounds(admission.pause_long_poll_s, replies)
            response = await self._begin(request, complete, receive, bounds)
            is_streaming = isinstance(response.body, StreamedBody)
            if not is_streaming:
                self._authorize_again(request, policy)
        finally:
            if not is_streaming:
                admission.leave_long_poll()
        return response

    async def _run(
        self,
        request: ReceivedRequest,
        complete: Request,
        receive: Receive,
        replies: RequestReplies | None,
    ) -> Response[Any]:
        """Answer a read, which gives its place to others where it waits, or a write."""
        admission, is_write = self._admission, request.target.function == PRODUCE
        places, policy = admission.writes if is_write else admission.reads, self._policy
        if not places.enter_at_once():
            await places.enter()
        read = None if is_write else ReadPlace(admission)
        try:
            bounds = RequestBounds(read.give if read else None, replies)
            response = await self._begin(request, complete, receive, bounds)
            if read is not None and read.has_paused:
                self._authorize_again(request, policy)
        finally:
            (read or places).leave()
        return response

    @property
    def _policy(self) -> Policy | None:
        return self._authorizer.policy if self._authorizer is not None else None

    def _authorize_again(self, request: ReceivedRequest, policy: Policy | None) -> None:
        """Refuse what another policy, which has come while the request waited, does not permit."""
        if self._authorizer is not None and self._authorizer.policy is not policy:
            self._authorizer.authorize_again(request)

    async def _refuse(
        self, error: Exception, request_id: str, body: Body | None, receive: Receive
    ) -> Response[Any]:
        if body is not None:
            body.release()
            await body.discard(receive)
        return self._refused(error, request_id)

    async def _stream(
        self, send: Send, receive: Receive, response: Response[Any], request: ReceivedRequest
    ) -> None:
        """Send events until the client goes, or does not read for a while, or the stream ends."""
        stream: EventStream | LineBody = response.body
        watching = asyncio.ensure_future(_call_when_gone(receive, stream.leave))
        try:
            response.headers["x-amzn-RequestId"] = request.id
            await send(_start_of(response.status_code, response.headers))
            async for chunk in stream.chunks(lambda: self._refuse_stream(request)):
                await self._turns.take()  # granian may take it at once
                async with stream.sending():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            stream.count_as_cut()
            _log.warning("request %s: the client reads nothing: its stream ends", request.id)
        finally:
            watching.cancel()
            stream.close()
            self._admission.leave_long_poll()

    def _refuse_stream(self, request: ReceivedRequest) -> ChangeEvent | None:
        """Return the last event of a stream whose token no longer permits what it did."""
        try:
            if self._authorizer is not None:
                self._authorizer.authorize_again(request)
        except refusals.REFUSED as error:
            return ChangeEvent(PROBLEM, str(self._refused(error, request.id).body))
        return None

    def _begin(
        self,
        request: ReceivedRequest,
        complete: Request,
        receive: Receive,
        bounds: RequestBounds,
    ) -> Awaitable[Response[Any]]:
        """Begin what answers the request: in a greenlet, or in another process."""
        if complete.body and _takes_long(complete):
            return self._applications.body_parser.respond(complete, request.target)
        is_long_poll = request.is_long_poll
        if is_long_poll and self._authorizer:
            complete = complete._replace(deadline=self._authorizer.end_of(request.access))
        answer = partial(self._applications.respond, complete, request.target)
        if is_long_poll:
            return _run_while_wanted(answer, receive, bounds)
        return begin_awaited(answer, bounds=bounds)[1]

    def _refused(self, error: Exception, request_id: str) -> Response[str]:
        response = refusals.refusal_of(error, request_id)
        self._pages.metrics.count_refusal(response.status_code)
        response.headers.update(self._settings.cors_headers)
        return response

    async def _preflight(self) -> Response[Any]:
        from keylane.api.http.response import Response  # noqa: PLC0415 (for browsers alone)

        return Response(204, None, None, {**self._settings.cors_headers, **_PREFLIGHT})

    async def _send_response(
        self, scope: Scope, receive: Receive, send: Send, response: Response[Any], request_id: str
    ) -> None:
        # Its text need not stay for as long as the client takes to read the bytes.
        body, response.body = response.body, None
        # A large one is encoded piece by piece, where its bytes are as many as its characters.
        if isinstance(body, str) and (len(body) <= DIRECT_BYTES or not body.isascii()):
            body = body.encode("utf-8", "surrogatepass")
        headers = response.headers
        if "Content-Type" not in headers and response.status_code != _NO_CONTENT:
            headers["Content-Type"] = "application/json"
        headers["x-amzn-RequestId"] = request_id
        try:
            await self._send_whole(
                scope, receive, send, _start_of(response.status_code, headers), body or b""
            )
        except Overloaded as error:
            await self._send_response(scope, receive, send, self._refused(error, request_id), request_id)

    async def _send_whole(
        self, scope: Scope, receive: Receive, send: Send, start: dict[str, Any], body: bytes | str
    ) -> None:
        """Send an answer, in pieces where it is large: its bytes, or ASCII. Raises Overloaded."""
        if is_direct(body, scope):
            await send(start)
            await send({"type": "http.response.body", "body": body})
        else:
            await self._outbox.send(send, receive, scope, start, body)


_NO_CONTENT = 204
KEY_ROUTE = "get_key"
LARGE_BODY_BYTES = 64 * 1024
"""A body of JSON that is larger may take more than 50 ms: to parse it, and for its thousands of records."""


def _takes_long(request: Request) -> bool:
    """Whether a request's body may hold up all others. That of a PUT is taken as it is."""
    if "content-encoding" in request.headers:
        return True  # whatever it becomes
    return len(request.body) > LARGE_BODY_BYTES and request.method != "PUT"


def _start_of(status: int, headers: dict[str, str]) -> dict[str, Any]:
    """Return the message that begins a response."""
    names = _HEADER_NAMES
    pairs = [(names[name], value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


async def _run_while_wanted(
    answer: Callable[[], Response[Any]], receive: Receive, bounds: RequestBounds
) -> Response[Any]:
    """Run a request that ends when its client goes."""
    running, ended = begin_awaited(answer, is_cancellable=True, bounds=bounds)
    if ended.done():
        return await ended
    watching = asyncio.ensure_future(_call_when_gone(receive, running.cancel))
    try:
        return await ended
    finally:
        watching.cancel()


async def _call_when_gone(receive: Receive, call: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    call()
