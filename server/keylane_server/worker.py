"""One process of the server: what granian calls, `keylane_server.worker:build` (ASGI)."""

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

from keylane.config.login import read_login
from keylane.config.table import SETTINGS
from keylane.errors import KeylaneError
from keylane.formats import json_text
from keylane.formats.quick_json import is_surely_json
from keylane.metrics.emf import EmfLog
from keylane.metrics.meter import Meter
from keylane.wiring.tracing import open_tracing
from keylane_server.access import TokenAuthorizer
from keylane_server.admission import AdmissionControl, Overloaded
from keylane_server.allocator import limit_allocator
from keylane_server.app import ServerApp
from keylane_server.applications import Applications
from keylane_server.greenlets import run_request
from keylane_server.logs import configure_logging
from keylane_server.metrics import ServerMetrics
from keylane_server.options import ServerOptions
from keylane_server.pages import OwnPages
from keylane_server.refusals import refusal_of
from keylane_server.runtime import ServerRuntime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from keylane_server.request_spans import RequestSpans

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

THREADS = 16
"""For what blocks and is rare: Kafka's metadata, secrets. Others have threads of their own (runtime)."""
SWITCH_S = 0.001
"""How long the loop may go on while the thread with Kafka's reports waits; Python's default is 5 ms."""
YOUNG_OBJECTS = 10_000
"""The garbage collector runs after so many new objects. Requests that run hold some thousand, which it would
look at in vain: with Python's default of 700 it takes 4 % of a lookup."""
READY = "keylane: ready"
SERVICE = "keylane-serve"
"""The server's name in spans, unless OTEL_SERVICE_NAME has another."""
ANSWERED_AT, ENDED_AT = 0.8, 0.95
"""Parts of `drain_s` after which all requests are answered, and after which the process ends."""
LISTENS_POLL_S = 0.01
FLUSH_EVERY_S = 1.0
LINES_EVERY_S = 60.0
"""CloudWatch's metrics have a value a minute."""
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

    def __init__(self, options: ServerOptions, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._executor = ThreadPoolExecutor(THREADS, "keylane-blocking")
        self._metrics = metrics = ServerMetrics(_open_lines(environment) if options.emf else None)
        self._pages = OwnPages(metrics, self._flush_meters, options.console)
        # Half of the places: the others are for reads and writes that wait for nothing else.
        callers_limit = max(1, min(options.limits.running, options.limits.writing) // 2)
        self._runtime = ServerRuntime(self._executor, metrics, callers_limit)
        self._applications = Applications(self._runtime, environment)
        self._app: ServerApp | None = None
        self._spans: RequestSpans | None = None
        self._authorizer: TokenAuthorizer | None = None

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
        except Exception:  # noqa: BLE001 (whatever it is, nothing can be served)
            # granian takes an error of ours for an application without a start, and would serve it.
            _log.exception("the server can't start")
            await send({"type": "lifespan.startup.failed", "message": "see the log"})
            return
        await send({"type": "lifespan.startup.complete"})
        announcing = asyncio.ensure_future(say_ready(self._options))
        await receive()
        announcing.cancel()
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        authorizer = None
        if self._options.requires_tokens:
            meter = Meter(self._runtime.open_metrics(""))
            authorizer = TokenAuthorizer(self._environment, self._runtime.clock, self._executor, meter)
            self._authorizer = authorizer
            await run_request(authorizer.reload)
            authorizer.keep_current()
        if login := read_login(self._environment):
            self._pages.offer_login(login)
        await self._applications.open()
        if self._options.workers > 1:
            self._flush_again(loop)
        if self._options.emf:
            loop.call_later(LINES_EVERY_S, self._write_lines_again, loop)
        loop.add_signal_handler(signal.SIGTERM, self._begin_stop)
        self._watch_parent(loop, os.getppid())
        self._spans = self._open_spans()
        self._app = ServerApp(
            self._applications,
            AdmissionControl(self._options.limits),
            self._pages,
            self._options,
            authorizer,
            self._spans,
        )
        _collect_requests_alone()

    def _open_spans(self) -> RequestSpans | None:
        tracing = open_tracing(self._environment, SERVICE, _log.warning)
        if tracing is None:
            return None
        from keylane_server.request_spans import RequestSpans  # noqa: PLC0415 (extra `otel`)

        scheme = "https" if self._options.tls_certificate else "http"
        return RequestSpans(tracing, scheme)

    def _begin_stop(self) -> None:
        """End the streams, for which granian would wait in vain; then have granian stop the process.

        Before `drain_s` is over, what still runs is answered, and then the process ends, whatever its threads
        wait for. granian's own handler of SIGTERM is replaced by this one. That of SIGINT does the same, and
        stays.
        """
        self._pages.is_ready = False
        self._runtime.streams.end_all()
        stopping = Overloaded("the server is being stopped")
        self._runtime.lines.end_all(refusal_of(stopping, "stream"))
        assert self._app is not None  # noqa: S101 - for the type checker
        drain_s = self._options.drain_s
        asyncio.get_running_loop().call_later(drain_s * ANSWERED_AT, self._app.give_up)
        ending = threading.Timer(drain_s * ENDED_AT, _end_now)
        ending.daemon = True
        ending.start()
        os.kill(os.getpid(), signal.SIGINT)

    async def _close(self) -> None:
        self._flush_meters()
        self._metrics.write_lines()
        await self._applications.close()
        self._runtime.close()
        if self._spans is not None:
            self._spans.close()
        if self._authorizer is not None:
            self._authorizer.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _flush_meters(self) -> None:
        self._applications.flush_meters()
        if self._authorizer is not None:
            self._authorizer.meter.flush()

    def _flush_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand on what the meters have, again and again: any process may be asked for the metrics of all."""
        self._flush_meters()
        loop.call_later(FLUSH_EVERY_S, self._flush_again, loop)

    def _watch_parent(self, loop: asyncio.AbstractEventLoop, parent: int) -> None:
        """Stop once the process that started this one was killed: nobody else would, and it has the port."""
        if os.getppid() == parent:
            loop.call_later(FLUSH_EVERY_S, self._watch_parent, loop, parent)
            return
        _log.error("the server stops: its first process has ended")
        self._begin_stop()

    def _write_lines_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._flush_meters()
        self._metrics.write_lines()
        loop.call_later(LINES_EVERY_S, self._write_lines_again, loop)


def _open_lines(environment: Mapping[str, str]) -> EmfLog:
    namespace = "KEYLANE_METRICS_NAMESPACE"  # a wrong one is reported by each application that is opened
    return EmfLog(environment.get(namespace, "").strip() or str(SETTINGS[namespace].default))


def _end_now() -> None:
    _log.error("the process ends: a thread or a client holds it up")
    os._exit(0)


def _collect_requests_alone() -> None:
    """Have the garbage collector look at what requests leave, and not at what the process has loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def build() -> ServerProcess:
    """Build the application of a process that granian has started."""
    limit_allocator()
    sys.setswitchinterval(SWITCH_S)
    configure_logging()
    json_text.ask_first(is_surely_json)
    return ServerProcess(ServerOptions.from_environment(os.environ), os.environ)
