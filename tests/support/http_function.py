"""A function's handler behind a real HTTP server, for tests of what clients' libraries do by themselves."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.support.proxy_events import HttpRequest, build_proxy_event, parse_function_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    LambdaHandler = Callable[[dict[str, Any], Any], dict[str, Any]]


@contextlib.contextmanager
def over_http(handler: LambdaHandler) -> Iterator[str]:
    """Serve POST requests by the handler; give the server's URL."""

    class Requests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = HttpRequest("POST", self.path, tuple(self.headers.items()), body, "127.0.0.1")
            answer = handler(build_proxy_event(request, "request-1"), None)
            response = parse_function_response(json.dumps(answer).encode())
            self.send_response(response.status)
            for name, value in response.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
