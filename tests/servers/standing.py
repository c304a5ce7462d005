"""The standing server as a process of a test."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

READY = "keylane: ready on"
START_S = 120
PROGRAM = (sys.executable, "-m", "keylane_client.cli")


def plain_variables(redis_nodes: str, kafka: str) -> dict[str, str]:
    """Return the settings of a server over these, without TLS and logins."""
    return {
        "KEYLANE_REDIS_NODES": redis_nodes,
        "KEYLANE_REDIS_TLS": "false",
        "KEYLANE_KAFKA_BOOTSTRAP": kafka,
        "KEYLANE_KAFKA_SECURITY": "plaintext",
    }


class StandingServer:
    """`keylane serve` with the options and variables of a test. `program`: what is started as `keylane`."""

    def __init__(
        self, log: Path, variables: Mapping[str, str], *options: str, program: Sequence[str] = PROGRAM
    ) -> None:
        self.port = Ports().any()
        own = {name: value for name, value in os.environ.items() if not name.startswith("KEYLANE_")}
        command = [*program, "serve", "--port", str(self.port), *options]
        self._begin(log, command, {**own, **variables})

    def _begin(
        self, log: Path, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def wait_ready(self, workers: int = 1) -> None:
        """Wait until so many of its processes accept connections: each does once it can serve."""
        until_s = time.monotonic() + START_S
        with contextlib.ExitStack() as connections:
            while len(self._accepting()) < workers:
                assert self.process.poll() is None, f"it ended: {self.log}"
                assert time.monotonic() < until_s, f"it is not ready: {self.log}"
                with contextlib.suppress(OSError):
                    connections.enter_context(socket.create_connection((HOST, self.port), START_S))
                time.sleep(0.05)

    def _accepting(self) -> list[psutil.Process]:
        """Its processes that have a connection to its port."""
        return [
            process
            for process in psutil.Process(self.process.pid).children(recursive=True)
            if any(each.laddr.port == self.port and each.raddr for each in _connections(process))
        ]

    def connect(self, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """Return a new connection, which closes itself at the end of a `with contextlib.closing`."""
        if tls is not None:
            return http.client.HTTPSConnection(HOST, self.port, timeout=60, context=tls)
        return http.client.HTTPConnection(HOST, self.port, timeout=60)

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request; return status, headers by lower-case name, and body."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(
                method, path, body, {name.replace("_", "-"): headers[name] for name in headers}
            )
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Kill all of its processes: one that serves would outlive that which started it."""
        first = psutil.Process(self.process.pid)
        for each in (first, *first.children(recursive=True)):
            each.kill()
        self.process.wait(60)


def _connections(process: psutil.Process) -> list[Any]:
    """Return a process's connections; none of one that has ended."""
    try:
        return process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return []


S = TypeVar("S", bound=StandingServer)


def standing(
    log: Path, variables: Mapping[str, str], *options: str, workers: int = 1
) -> contextlib.AbstractContextManager[StandingServer]:
    """A server that is ready; it stops with the block."""
    return ready(StandingServer(log, variables, *options), workers)


@contextlib.contextmanager
def ready(server: S, workers: int = 1) -> Iterator[S]:
    """Yield the server once it is ready; stop it afterwards."""
    try:
        server.wait_ready(workers)
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
