"""The standing server of a checkout, as a process with a port."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from tests.contract.hosts import http1
from tests.contract.hosts.case import Answer

from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.hosts.case import Case
    from tests.contract.hosts.checkouts import Checkout

BROKEN = "ASGI Lifespan errored"
"""granian goes on without an application that raised while it started."""
NOT_STARTED = -1
"""The status of an answer that a server could not give."""
START_S = 120
STOP_S = 30
_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ")


class ServerHost:
    """A server that is ready, or one that could not start: then each answer says why."""

    def __init__(
        self, checkout: Checkout, variables: dict[str, str], log: Path, *, requires_tokens: bool
    ) -> None:
        self._port = Ports().any()
        self._log = log
        self._begun_bytes = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                checkout.server_command(),
                env=checkout.server_environment(self._port, variables, requires_tokens=requires_tokens),
                cwd=checkout.root,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._is_ready = self._wait()

    @property
    def beside(self) -> ServerHost:
        """What takes a request at the same time: the same server."""
        return self

    def send(self, case: Case) -> Answer:
        if not self._is_ready:
            return Answer(NOT_STARTED, (), "\n".join(self._faults()).encode())
        return http1.exchange(self._port, case)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _faults(self) -> list[str]:
        lines = [_TIME.sub("", line) for line in self._own_log().splitlines() if line]
        return [line for line in lines if "can't start" in line] or lines[-1:]

    def _wait(self) -> bool:
        until_s = time.monotonic() + START_S
        while not self._accepts():
            if self._process.poll() is not None or BROKEN in self._own_log():
                return False
            assert time.monotonic() < until_s, f"it is not ready: {self._own_log()[-2000:]}"
            time.sleep(0.02)
        return BROKEN not in self._own_log()

    def _accepts(self) -> bool:
        """Whether its port is open: that is so once the application has started."""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self._port)):
            return True
        return False

    def _own_log(self) -> str:
        return self._log.read_bytes()[self._begun_bytes :].decode("utf-8", "replace")


@contextlib.contextmanager
def server_host(
    checkout: Checkout, variables: dict[str, str], log: Path, *, requires_tokens: bool = False
) -> Iterator[ServerHost]:
    """Yield the server; stop it afterwards."""
    host = ServerHost(checkout, variables, log, requires_tokens=requires_tokens)
    try:
        yield host
    finally:
        host.stop()
