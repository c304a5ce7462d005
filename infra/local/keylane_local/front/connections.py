"""The front's HTTP connections: aiohttp's, with problem documents, and with answers for half-closed ones.

aiohttp has no hook for either, so this module overrides methods of its `RequestHandler` and uses four private
names: `_messages`, the requests that wait, and among them `_ErrInfo`, what could not be parsed; `_waiter`,
which is None while a request is answered; `_close`, which ends a connection after the current answer. If they
change, tests/integration/local/test_front_connections.py fails.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from keylane_local.front.refusals import HEADER_LIMIT_BYTES, LINE_LIMIT_BYTES, refusal_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_request import BaseRequest

    from keylane_serve.proxy_events import HttpResponse

    Serve = Callable[[BaseRequest], Awaitable[web.StreamResponse]]

_log = logging.getLogger("keylane.front")
_PARSER_ERRORS = (HttpProcessingError, web.RequestPayloadError)


def to_web_response(response: HttpResponse, request_id: str) -> web.Response:
    """Return what aiohttp sends."""
    sent = web.Response(status=response.status, body=response.body)
    sent.headers.popall("Content-Type", None)
    for name, value in response.headers:
        sent.headers.add(name, value)
    sent.headers["x-amzn-RequestId"] = request_id
    return sent


class FrontConnection(RequestHandler):
    """One connection of a client."""

    def __init__(self, *args: Any, count_refusal: Callable[[int], None], **options: Any) -> None:
        super().__init__(*args, **options)
        self._count_refusal = count_refusal
        self.payload: StreamReader | None = None
        """The body of the last request that was begun."""

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that the parser refuses; other errors are logged with their trace."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client has gone in the middle of its body
        if not isinstance(exc, _PARSER_ERRORS) or request.writer.output_size:
            return super().handle_error(request, status, exc, message)
        request_id = str(uuid.uuid4())
        refusal = refusal_of(exc, message or str(exc))
        self._count_refusal(refusal.kind.status)
        _log.info("%s refused: %d %s %s", request.remote, refusal.kind.status, refusal.detail, request_id)
        response = to_web_response(refusal.render(request_id), request_id)
        response.force_close()
        return response

    def data_received(self, data: bytes) -> None:
        """Parse; a body that turns out to be malformed fails the request that reads it."""
        super().data_received(data)
        body = self.payload
        if self._messages and self._waiter is None and body is not None and not body.is_eof():
            last = self._messages[-1][0]
            if isinstance(last, _ErrInfo):
                with contextlib.suppress(RuntimeError):  # the request waits for data: there is none
                    body.read_nowait()
                body.set_exception(last.exc)
                body.feed_eof()

    def eof_received(self) -> bool | None:  # type: ignore[override]  # asyncio takes both
        """Keep a connection that the client has half closed until its complete requests are answered."""
        bodies = [payload for _, payload in self._messages]
        if self._waiter is None and self.payload is not None:
            bodies.append(self.payload)
        if not bodies or not all(body.is_eof() for body in bodies):
            return None
        if len(bodies) == 1:
            self._close = True
        return True


class FrontListener(web.Server):
    """Makes the connections. `serve` answers a request, `count_refusal` counts those that it never sees."""

    def __init__(self, serve: Serve, count_refusal: Callable[[int], None]) -> None:
        super().__init__(serve, request_factory=self._begin_request)
        self._count_refusal = count_refusal

    def __call__(self) -> RequestHandler:
        """Make the handler of a new connection."""
        return FrontConnection(
            self,
            loop=self._loop,
            access_log=None,
            auto_decompress=False,
            max_line_size=LINE_LIMIT_BYTES,
            max_field_size=HEADER_LIMIT_BYTES,
            count_refusal=self._count_refusal,
        )

    def _begin_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if isinstance(protocol, FrontConnection):
            protocol.payload = payload
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop)
