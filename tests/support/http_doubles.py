"""HTTP servers in threads of the tests: doubles of others' servers, and a function's handler behind one."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.support.proxy_events import HttpRequest, build_proxy_event, parse_function_response

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

    LambdaHandler = Callable[[dict[str, Any], Any], dict[str, Any]]


HOST = "127.0.0.1"


class Exchange(BaseHTTPRequestHandler):
    """One request and its answer."""

    server: _Server

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return lambda: self.server.reply(self)
        raise AttributeError(name)

    def body(self) -> bytes:
        """What the request has after its headers."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":  # its answer tells the length of what GET has
            self.wfile.write(body)

    def send_error(self, code: int, *_: object) -> None:
        """Refuse what cannot be read as a request, such as a path of over 64 KiB, without a body.

        What was not read of it must not be taken for the next request: the connection ends.
        """
        self.send_response_only(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class HttpDouble:
    """Has `reply` answer each request, until it is closed: the port refuses connections from then on."""

    def __init__(
        self,
        reply: Callable[[Exchange], object],
        *,
        protocol: str = "HTTP/1.0",
        context: ssl.SSLContext | None = None,
    ) -> None:
        handler = type("OneExchange", (Exchange,), {"protocol_version": protocol})
        self._server = _Server((HOST, 0), handler)
        self._server.reply = reply
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if context else 'http'}://{HOST}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Two hundred clients may connect at once.
    request_queue_size = 256
    reply: Callable[[Exchange], object]


@contextlib.contextmanager
def over_http(handler: LambdaHandler) -> Iterator[str]:
    """Serve POST requests by the handler; give the server's URL."""

    def reply(asked: Exchange) -> None:
        request = HttpRequest("POST", asked.path, tuple(asked.headers.items()), asked.body(), "127.0.0.1")
        answer = handler(build_proxy_event(request, "request-1"), None)
        response = parse_function_response(json.dumps(answer).encode())
        asked.answer(response.status, response.body, response.headers)

    with HttpDouble(reply) as server:
        yield server.url
