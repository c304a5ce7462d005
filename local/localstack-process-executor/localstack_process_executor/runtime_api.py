"""The Lambda Runtime API (2018-06-01) of one runtime process, on a loopback port of its own.

A runtime (`python -m awslambdaric`, or any other) with AWS_LAMBDA_RUNTIME_API=`address` polls it for
invocations and posts their answers, as on AWS, one at a time. Standard library only.
"""

import contextlib
import json
import queue
import re
import threading
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"
# Lambda's limit for a synchronous response: 6 MiB, and 100 bytes for what surrounds it.
MAX_ANSWER_BYTES = 6 * 1024 * 1024 + 100
_PATH = re.compile(r"^/2018-06-01/runtime/(?:invocation/([^/]+)(?:/(response|error))?|(init/error))$")
_OK = b'{"status":"OK"}'


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an invocation: the handler's JSON, or Lambda's error object if `failed`."""

    failed: bool
    payload: bytes


def failure(kind: str, message: str) -> Answer:
    """Return the error that Lambda itself answers with when the runtime cannot."""
    return Answer(failed=True, payload=json.dumps({"errorType": kind, "errorMessage": message}).encode())


# A runtime exits when its answer is rejected as too large, so its process has to be restarted.
TOO_LARGE = failure(
    "Function.ResponseSizeTooLarge",
    f"Response payload size exceeded maximum allowed payload size ({MAX_ANSWER_BYTES} bytes).",
)


class InitError(Exception):
    """The runtime could not load the handler; `payload` is the error object that it posted."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(payload.decode("utf-8", "replace"))
        self.payload = payload


class RuntimeGone(Exception):
    """The runtime ended before it received the invocation, which can be given to another one."""


@dataclass(slots=True)
class _Invocation:
    request_id: str
    headers: Mapping[str, str]
    event: bytes
    answer: Future[Answer]
    delivered: bool = False


class RuntimeApi:
    """Serves the Runtime API to one process; callers use `invoke`."""

    def __init__(self) -> None:
        """Listen on a free port."""
        # Done at the runtime's first request for an invocation; InitError if the handler cannot be loaded.
        self.ready: Future[None] = Future()
        self._queue: queue.SimpleQueue[_Invocation | None] = queue.SimpleQueue()
        self._current: _Invocation | None = None
        self._gone = False
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.address = f"{HOST}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="lambda-runtime-api", daemon=True).start()

    def invoke(self, request_id: str, headers: Mapping[str, str], event: bytes, timeout_s: float) -> Answer:
        """Hand `event` (JSON) to the runtime and return its answer. The caller ensures one call at a time.

        Raises TimeoutError after `timeout_s`: the runtime is still busy then, and has to be killed.
        Raises RuntimeGone if the runtime has ended without receiving the event.
        """
        invocation = _Invocation(request_id, headers, event, Future())
        with self._lock:
            if self._gone:
                raise RuntimeGone
            self._current = invocation
        self._queue.put(invocation)
        return invocation.answer.result(timeout_s)

    def end(self, reason: str) -> None:
        """Report to waiting callers that the runtime's process has ended, and stop listening."""
        with self._lock:
            self._gone = True
            invocation = self._current
        with contextlib.suppress(InvalidStateError):
            self.ready.set_exception(InitError(failure("Runtime.ExitError", reason).payload))
        if invocation:
            with contextlib.suppress(InvalidStateError):
                if invocation.delivered:
                    message = f"RequestId: {invocation.request_id} Error: {reason}"
                    invocation.answer.set_result(failure("Runtime.ExitError", message))
                else:
                    invocation.answer.set_exception(RuntimeGone())
        self._queue.put(None)  # releases the thread that waits for the runtime's next invocation
        self._server.shutdown()
        self._server.server_close()

    def take_next(self) -> _Invocation | None:
        """Wait for the next invocation for the runtime; return None if the runtime has ended."""
        with contextlib.suppress(InvalidStateError):
            self.ready.set_result(None)
        invocation = self._queue.get()
        if invocation:
            invocation.delivered = True
        return invocation

    def take_answer(self, request_id: str, *, failed: bool, payload: bytes) -> tuple[int, bytes]:
        """Accept the runtime's answer; return status and body of the response to the runtime."""
        invocation = self._current
        if invocation is None or invocation.request_id != request_id or invocation.answer.done():
            return 400, b'{"errorType":"InvalidRequestID","errorMessage":"no such invocation"}'
        too_large = len(payload) > MAX_ANSWER_BYTES
        with contextlib.suppress(InvalidStateError):
            invocation.answer.set_result(TOO_LARGE if too_large else Answer(failed, payload))
        return (413, b'{"errorType":"RequestEntityTooLarge"}') if too_large else (202, _OK)

    def take_init_error(self, payload: bytes) -> None:
        """Accept the runtime's error about a handler that it could not load."""
        with contextlib.suppress(InvalidStateError):
            self.ready.set_exception(InitError(payload))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: RuntimeApi) -> None:
        self.api = api
        super().__init__((HOST, 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a killed runtime drops its connection."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one segment avoid the wait for a delayed acknowledgement
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        match = _PATH.match(self.path)
        if match is None or match[1] != "next":
            self._reply(404, b'{"errorType":"NotFound"}')
        elif invocation := self.server.api.take_next():
            self._reply(200, invocation.event, invocation.headers)
        else:
            self.close_connection = True

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        payload = self.rfile.read(size)
        if len(payload) < size:
            # The runtime was killed while it sent this: a part of an answer is none.
            self.close_connection = True
            return
        match = _PATH.match(self.path)
        if match and match[3]:
            self.server.api.take_init_error(payload)
            self._reply(202, _OK)
        elif match and match[2]:
            reply = self.server.api.take_answer(match[1], failed=match[2] == "error", payload=payload)
            self._reply(*reply)
        else:
            self._reply(404, b'{"errorType":"NotFound"}')

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""
