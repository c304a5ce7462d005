"""A Schema Registry whose answers a test sets: for the failures that a real one shows rarely.

Its regular answers follow docs.confluent.io, "Schema Registry API Reference".
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.client import RegistryClient
from keylane.adapters.registry.login import RegistrySettings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    Answer = tuple[int, bytes]


TIMEOUT_MS = 20_000
"""More than any registry of a test takes that answers."""


def client_of(url: str, timeout_ms: float = TIMEOUT_MS, **settings: Any) -> RegistryClient:
    """A client with a circuit of its own."""
    return RegistryClient(RegistrySettings(url, **settings), Circuit(timeout_ms))


class RegistryDouble:
    """`answers`: path -> status and body, or a function that writes to the socket itself.

    `pause`: is called before each answer.
    """

    def __init__(self, port: int, *, is_tls: bool) -> None:
        self.pause: Callable[[], object] = lambda: None
        self.url = f"{'https' if is_tls else 'http'}://127.0.0.1:{port}"
        self.answers: dict[str, Answer | Callable[[Any], None]] = {}
        self.asked: list[str] = []
        self.credentials: list[str | None] = []
        self.login: tuple[str, str] | None = None
        """The only user and password that are accepted; None for all requests."""

    def has(self, path: str, document: Any, status: int = 200) -> None:
        self.answers[path] = status, json.dumps(document).encode()

    def accepts(self, given: str | None) -> bool:
        if self.login is None:
            return True
        return given == f"Basic {base64.b64encode(':'.join(self.login).encode()).decode()}"

    def lacks(self, path: str) -> None:
        self.has(path, {"error_code": 40403, "message": "Schema not found"}, 404)


@contextlib.contextmanager
def serve_double(context: ssl.SSLContext | None = None) -> Iterator[RegistryDouble]:
    """Serve until the block ends; a path that `answers` lacks is a 404 that is not a registry's."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            served.credentials.append(self.headers["Authorization"])
            served.pause()
            # What is not deleted is answered with deleted ones, too.
            plain = self.path.removesuffix("?deleted=true")
            answer = served.answers.get(self.path, served.answers.get(plain, (404, b"<html>not here</html>")))
            if not served.accepts(self.headers["Authorization"]):
                answer = 401, b'{"error_code": 401, "message": "Unauthorized"}'
            if callable(answer):
                with contextlib.suppress(OSError):
                    answer(self.wfile)
                return
            status, body = answer
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    served = RegistryDouble(server.server_address[1], is_tls=context is not None)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
