"""Starts granian with the processes of the server: `python -m keylane_server.server`, or `keylane serve`.

granian binds the port and starts the processes. At SIGTERM it accepts nothing more and waits for the answers
to what runs. Each process ends by itself within `drain_s`; one that can't is killed `KILLED_AFTER_S` later.
"""

import os
import socket
import tempfile
import threading
import time
from typing import Any

from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings, HTTP2Settings
from granian.log import LogLevels
from granian.server.mp import MPServer, WorkerProcess

from keylane_server.options import METRICS_FOLDER, VARIABLE, ServerOptions
from keylane_server.sending import PIECE_BYTES_2, STREAMS

TARGET = "keylane_server.worker:build"
BACKLOG = 1_024
HEADER_TIMEOUT_MS = 75_000
"""For the head of a request, and for the next one on a kept connection: hyper has one timer for both.

Longer than load balancers keep a connection (60 s): else a request meets one that is being closed (502).
"""
HEAD_BYTES = 128 * 1024
"""Of the head of a request: a target of 64 KiB, and as much for headers. A client that never ends its head
keeps as much."""
START_EVERY_S = 5.0
"""A process that dies is started again at once, but not sooner than so long after its last start."""
KILLED_AFTER_S = 5
"""After `drain_s`: a busy machine takes its time to end a process."""
START_FAILED = 1
"""The exit code of a process that can't start: its settings are wrong, for example."""


def serve(options: ServerOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError where the port is taken."""
    check_port(options.host, options.port)
    with tempfile.TemporaryDirectory(prefix="keylane-serve-") as folder:
        if options.workers > 1:
            os.environ[METRICS_FOLDER] = folder
        os.environ[VARIABLE] = options.to_variable()
        _make_server(options).serve()


class SupervisedWorker(WorkerProcess):
    """granian's process, for whose end one thread waits: the others wait for that thread.

    Where two wait for the process, one of them takes what the other has just reaped for alive, and says that
    it was killed because it did not stop.
    """

    def _watch(self) -> None:
        self._watching = threading.Thread(target=self._watcher)
        self._watching.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the process, at most `timeout` seconds."""
        self._watching.join(timeout)

    def is_alive(self) -> bool:
        """Tell whether the process has not been seen to end."""
        return self._watching.is_alive()


class SupervisedServer(MPServer):
    """granian's server, which starts a process again whenever it dies, and ends where the first start fails.

    granian itself ends all processes where one dies twice within 5.5 s, and forgets some deaths. These names
    are private: `_serve_loop`, `_respawn_workers`, `_reload`, `_spawn_worker`, and `_watch` above. A release
    that renames the first starts nothing again (test_standing_server_and_kafka.py). Without the last two it
    may say that a process was killed which had ended; without the others it ends.
    """

    def _spawn_worker(self, *arguments: Any, **named: Any) -> WorkerProcess:
        worker = super()._spawn_worker(*arguments, **named)
        worker.__class__ = SupervisedWorker
        return worker

    def _serve_loop(self, spawn_target: Any, target_loader: Any) -> None:
        while not self.interrupt_signal and not self._has_failed_to_start():
            due = [index for index in self.interrupt_children if self._start_in_s(index) <= 0]
            for index in due:
                self.interrupt_children.remove(index)
            self._respawn_workers(due, spawn_target, target_loader)
            next_s = min((self._start_in_s(index) for index in self.interrupt_children), default=None)
            self.main_loop_interrupt.wait(next_s)
            self.main_loop_interrupt.clear()
            if self.reload_signal:
                self._reload(spawn_target, target_loader)  # type: ignore[no-untyped-call]
        if self.interrupt_signal:
            self.interrupt_children.clear()  # they would make an exit code of 1

    def _start_in_s(self, index: int) -> float:
        return float(self.wrks[index].birth + START_EVERY_S - time.monotonic())

    def _has_failed_to_start(self) -> bool:
        return any(
            self.wrks[index].inner.exitcode == START_FAILED and index not in self.respawned_wrks
            for index in self.interrupt_children
        )


def _make_server(options: ServerOptions) -> SupervisedServer:
    return SupervisedServer(
        TARGET,
        factory=True,
        address=options.host,
        port=options.port,
        interface=Interfaces.ASGI,
        workers=options.workers,
        loop=Loops.uvloop,
        http=HTTPModes.auto,
        websockets=False,
        backlog=BACKLOG,
        backpressure=options.limits.connections,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=HEAD_BYTES),
        http2_settings=HTTP2Settings(
            max_headers_size=HEAD_BYTES, max_concurrent_streams=STREAMS, max_send_buffer_size=PIECE_BYTES_2
        ),
        log_level=LogLevels.warning,
        ssl_cert=options.tls_certificate,
        ssl_key=options.tls_key,
        workers_kill_timeout=options.drain_s + KILLED_AFTER_S,
    )


def check_port(host: str, port: int) -> None:
    """Raise OSError where another program listens: its processes and ours would share the connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def main() -> None:
    """Serve with the options of the environment."""
    serve(ServerOptions.from_environment(os.environ))


if __name__ == "__main__":
    main()
