"""One process of the server: what granian calls, `keylane_serve.worker:build` (ASGI)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from keylane.errors import KeylaneError
from keylane.wiring import runtime
from keylane.wiring.api import read_api_settings
from keylane.wiring.tracing import open_tracing
from keylane_serve.access import TokenAuthorizer
from keylane_serve.admission import AdmissionControl
from keylane_serve.app import ServerApp
from keylane_serve.function_metrics import FunctionMetrics
from keylane_serve.functions import Functions
from keylane_serve.greenlets import run_request
from keylane_serve.metric_files import EVERY_S, MetricFiles
from keylane_serve.options import ServerOptions
from keylane_serve.pages import OwnPages
from keylane_serve.runtime import ServerRuntime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from keylane_serve.request_spans import RequestSpans

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

THREADS = 16
"""For what blocks and is rare: connecting, secrets, the Schema Registry, SQS and S3."""
SWITCH_S = 0.001
"""How long the loop may go on while the thread with Kafka's reports waits; Python's default is 5 ms."""
YOUNG_OBJECTS = 10_000
"""The garbage collector runs after so many new objects. Requests that run hold some thousand, which it would
look at in vain: with Python's default of 700 it takes 4 % of a lookup."""
READY = "keylane: ready"
SERVICE = "keylane-serve"
"""The server's name in spans, unless OTEL_SERVICE_NAME has another."""
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
LISTENS_POLL_S = 0.01
_log = logging.getLogger("keylane.serve")


async def say_ready(options: ServerOptions) -> None:
    """Print that the server is ready once its port accepts connections: granian opens it after the start."""
    while True:
        with contextlib.suppress(OSError):
            _, connection = await asyncio.open_connection(options.host, options.port)
            connection.close()
            break
        await asyncio.sleep(LISTENS_POLL_S)
    print(f"{READY} on {options.url}", flush=True)


class ServerProcess:
    """The application with its start and its stop."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._metrics = FunctionMetrics()
        self._executor = ThreadPoolExecutor(THREADS, "keylane-blocking")
        self._functions = Functions(options.functions)
        self._files = MetricFiles(options.metrics, self._metrics) if options.metrics else None
        self._pages = OwnPages(self._metrics, self._flush_metrics, self._files, options.console)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = threading.get_ident()
        self._runtime: ServerRuntime | None = None
        self._app: ServerApp | None = None
        self._spans: RequestSpans | None = None

    def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> Awaitable[None]:
        """Serve as an ASGI application."""
        if scope["type"] == "lifespan":
            return self._live(receive, send)
        assert self._app is not None  # noqa: S101 - for the type checker: no request comes before the start
        return self._app.answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._open()
        except KeylaneError as error:
            _log.error("the server can't start: %s", error)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        announcing = asyncio.ensure_future(say_ready(self._options))
        await receive()
        announcing.cancel()
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self) -> None:
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        running = self._runtime = ServerRuntime(self._executor, self._take_metrics)
        runtime.install(running)
        authorizer = None
        if self._options.requires_tokens:
            authorizer = TokenAuthorizer(running.clock, self._executor)
            await run_request(authorizer.reload)
        await self._functions.open()
        self._write_metrics()
        self._loop.add_signal_handler(signal.SIGTERM, self._begin_stop)
        admission = AdmissionControl(self._options.limits)
        self._spans = self._open_spans()
        self._app = ServerApp(
            self._functions,
            admission,
            self._pages,
            authorizer,
            logs_access=self._options.logs_access,
            spans=self._spans,
        )
        _collect_requests_alone()

    def _open_spans(self) -> RequestSpans | None:
        tracing = open_tracing(os.environ, SERVICE, _log.warning)
        if tracing is None:
            return None
        from keylane_serve.request_spans import RequestSpans  # noqa: PLC0415 (extra `otel`)

        scheme = "https" if self._options.tls_certificate else "http"
        return RequestSpans(tracing, read_api_settings(), scheme)

    def _begin_stop(self) -> None:
        """End the streams, for which granian would wait in vain; then have granian stop the process.

        granian's own handler of SIGTERM is replaced by this one. That of SIGINT does the same, and stays.
        """
        self._pages.is_ready = False
        if self._runtime is not None:
            self._runtime.streams.end_all()
        os.kill(os.getpid(), signal.SIGINT)

    async def _close(self) -> None:
        self._functions.close()
        if self._runtime is not None:
            self._runtime.close()
        if self._spans is not None:
            self._spans.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _take_metrics(self, lines: str) -> None:
        if threading.get_ident() != self._loop_thread:
            assert self._loop is not None  # noqa: S101 - for the type checker: there are no threads before
            self._loop.call_soon_threadsafe(self._take_metrics, lines)
            return
        for line in lines.encode().splitlines():
            self._metrics.take_line(line)

    def _flush_metrics(self) -> None:
        """Bring what the meters and the streams have counted into the metrics of the process."""
        self._functions.flush_meters()
        if self._runtime is not None:
            self._metrics.numbers |= self._runtime.streams.numbers()

    def _write_metrics(self) -> None:
        """Write the metrics for the other processes, again and again."""
        if self._files is not None and self._loop is not None:
            self._flush_metrics()
            self._files.write()
            self._loop.call_later(EVERY_S, self._write_metrics)


def _collect_requests_alone() -> None:
    """Have the garbage collector look at what requests leave, and not at what the process has loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def build() -> ServerProcess:
    """Build the application of a process that granian has started."""
    sys.setswitchinterval(SWITCH_S)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr, force=True)
    return ServerProcess(ServerOptions.from_environment(os.environ))
