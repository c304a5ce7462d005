"""Processes of a checkout: its job, its server. All of its code comes from there, the servers' from here."""

from __future__ import annotations

import contextlib
import http.client
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from tests.support import jobs
from tests.support.replies import Reply
from tests.torture.mutants import environment_of

from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.contract.hosts.checkouts import Checkout
    from tests.support.jobs import RunningJob

READY = "keylane: ready on"
WITHIN_S = 120


def start_job(checkout: Checkout, kafka: str, redis: str, folder: Path, config: str) -> RunningJob:
    """Start the checkout's job with a checkpoint folder of its own."""
    path = environment_of(checkout.root)["PYTHONPATH"]
    return jobs.start(kafka, redis, folder, config, PYTHONPATH=path)


class CheckoutServer:
    """The standing server of a checkout."""

    def __init__(self, checkout: Checkout, variables: Mapping[str, str], log: Path) -> None:
        self.port = Ports().any()
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                checkout.server_command(),
                env=checkout.server_environment(self.port, dict(variables), requires_tokens=False),
                cwd=checkout.root,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def wait_ready(self) -> None:
        until_s = time.monotonic() + WITHIN_S
        while READY not in (text := self._log.read_text(encoding="utf-8", errors="replace")):
            assert self._process.poll() is None, text[-2000:]
            assert time.monotonic() < until_s, text[-2000:]
            time.sleep(0.05)

    def ask(self, method: str, path: str, body: str = "", headers: Mapping[str, str] | None = None) -> Reply:
        """Send one request over a connection of its own."""
        with contextlib.closing(http.client.HTTPConnection(HOST, self.port, timeout=60)) as connection:
            connection.request(method, path, body or None, dict(headers or {}))
            answer = connection.getresponse()
            given = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, given, answer.read())

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextlib.contextmanager
def serving(checkout: Checkout, variables: Mapping[str, str], log: Path) -> Iterator[CheckoutServer]:
    """Yield the checkout's server once it is ready; stop it afterwards."""
    server = CheckoutServer(checkout, variables, log)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()
