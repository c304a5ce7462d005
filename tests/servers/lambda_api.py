"""The Lambda functions behind a stand-in for API Gateway: each invocation in a process of AWS's runtime."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.support.proxy_events import (
    HttpRequest,
    HttpResponse,
    build_proxy_event,
    parse_function_response,
    render_message,
)

from keylane.model.routes import FUNCTIONS, find
from keylane_cli.invoke import describe_function
from keylane_local.process.lambda_process import LambdaProcess
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from keylane_local.process.lambda_process import Function


class _Environments:
    """The environments of one function: as many as there are invocations at once, kept warm."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._idle: queue.LifoQueue[LambdaProcess] = queue.LifoQueue()
        self._all: list[LambdaProcess] = []

    def invoke(self, event: bytes, request_id: str) -> bytes | None:
        """Return the function's response; None if it failed."""
        try:
            environment = self._idle.get_nowait()
        except queue.Empty:
            environment = LambdaProcess(self._function).__enter__()
            self._all.append(environment)
        response = environment.call(event, request_id)
        self._idle.put(environment)
        return None if response.failed else response.payload

    def stop(self) -> None:
        for environment in self._all:
            environment.stop()


class _Gateway(ThreadingHTTPServer):
    # Two hundred clients may connect at once.
    request_queue_size = 256

    def __init__(self, functions: Mapping[str, _Environments]) -> None:
        super().__init__((HOST, 0), _Exchange)
        self.functions = functions


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Gateway

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = HttpRequest(
            self.command, self.path, tuple(self.headers.items()), body, self.client_address[0]
        )
        answer = self._answer(request)
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        # An answer to HEAD tells the length of what GET has.
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        function = find(request.method, urlsplit(request.target).path).function
        request_id = str(uuid.uuid4())
        event = json.dumps(build_proxy_event(request, request_id)).encode()
        payload = self.server.functions[function].invoke(event, request_id)
        if payload is None:
            return render_message(502, "Internal server error")
        return parse_function_response(payload)

    def send_error(self, code: int, *_: object) -> None:
        """Refuse what no function sees, such as a path of over 64 KiB, without a body.

        What was not read of it must not be taken for the next request: the connection ends.
        """
        self.send_response_only(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def lambda_api(folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the URL of an API whose functions have these variables; each logs into a file of `folder`."""
    functions = {
        name: _Environments(describe_function(name, None, folder / f"{name}.log", variables))
        for name in FUNCTIONS
    }
    gateway = _Gateway(functions)
    threading.Thread(target=gateway.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://{HOST}:{gateway.server_address[1]}"
    finally:
        gateway.shutdown()
        gateway.server_close()
        for each in functions.values():
            each.stop()
