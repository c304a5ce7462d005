"""What a child process of the server runs: `child_process` starts it, and says how they talk.

A few threads have applications of their own, as each environment of Lambda has them: their clients block. The
process ends with the one that started it, whose end closes the socket.
"""

import logging
import os
import pickle
import resource
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from keylane.api.http.request import Request
from keylane.api.http.router import Application
from keylane.app import explore, produce, query
from keylane.metrics.meter import MetricSink
from keylane.model.routes import EXPLORE, PRODUCE, QUERY, Target
from keylane.wiring.runtime import Runtime
from keylane_server.allocator import limit_allocator
from keylane_server.child_process import SIZE, packed
from keylane_server.logs import configure_logging

THREADS = 4
MEMORY_BYTES = 1024 * 1024 * 1024
"""Of a process's data: 32 bodies of 6 MiB that wait, and four that are parsed, take 600 MB. A request over it
ends the process; the next one starts it again."""
_BUILD: dict[str, Callable[..., Application[Any]]] = {
    QUERY: query.build,
    PRODUCE: produce.build,
    EXPLORE: explore.build,
}
_log = logging.getLogger("keylane.serve")


class _RecordedCalls:
    """See `MetricSink`: what is called, to be called by the server."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def add_number(self, *arguments: Any) -> None:
        """See `MetricSink.add_number`."""
        self.calls.append(("add_number", arguments))

    def add_samples(self, metric: str, labels: tuple[str, ...], samples: Sequence[tuple[float, int]]) -> None:
        """See `MetricSink.add_samples`."""
        self.calls.append(("add_samples", (metric, labels, samples)))

    def flush(self) -> None:
        """See `MetricSink.flush`: an answer takes them along."""


class _ThreadRuntime(Runtime):
    """See `Runtime`; `metrics` are recorded. `applications`: those of a thread, once they are asked for."""

    def __init__(self) -> None:
        self.metrics = _RecordedCalls()
        self.applications: dict[str, Application[Any]] = {}

    def open_metrics(self, namespace: str) -> MetricSink:  # noqa: ARG002 (of CloudWatch)
        """See `Runtime.open_metrics`."""
        return self.metrics

    def application(self, function: str, environment: Mapping[str, str]) -> Application[Any]:
        """Return the application of a function."""
        found = self.applications.get(function)
        if found is None:
            if function == QUERY:
                self.write = self.application(PRODUCE, environment).respond_within
            found = self.applications[function] = _BUILD[function](self, environment)
        return found


class _Threads:
    """Answer requests, each thread with applications of its own."""

    def __init__(self, connection: socket.socket, environment: Mapping[str, str]) -> None:
        self._connection = connection
        self._environment = environment
        self._sending = threading.Lock()
        self._local = threading.local()

    def answer(self, number: int, request: Request, target: Target) -> None:
        try:
            self._answer(number, request, target)
        except Exception:  # noqa: BLE001 (the application answers its own: another process has to go on)
            _log.exception("a process beside the server's ends")
            os._exit(1)

    def _answer(self, number: int, request: Request, target: Target) -> None:
        local = self._local
        if not hasattr(local, "runtime"):
            local.runtime = _ThreadRuntime()
        runtime: _ThreadRuntime = local.runtime
        application = runtime.application(target.function, self._environment)
        response = application.respond(request, target)
        application.meter.flush()
        calls, runtime.metrics.calls = runtime.metrics.calls, []
        message = packed((number, response, calls))
        with self._sending:
            self._connection.sendall(message)


def main(descriptor: int, environment: Mapping[str, str]) -> None:
    """Answer requests until the server's process closes the socket."""
    limit_allocator()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    configure_logging()
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rb") as messages:
        threads, answers = ThreadPoolExecutor(THREADS), _Threads(connection, environment)
        while size := messages.read(SIZE.size):
            message = pickle.loads(messages.read(*SIZE.unpack(size)))  # noqa: S301 (see `child_process`)
            threads.submit(answers.answer, *message)
    # Threads that wait for Kafka would hold up the end, and nobody waits for their answers.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), os.environ)
