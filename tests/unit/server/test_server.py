"""The process above those of the server, on real processes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from keylane_local.process.ports import HOST, Ports
from keylane_server.options import ServerOptions
from keylane_server.server import _make_server

if TYPE_CHECKING:
    import pytest

REAPED_S = 0.3
"""Between the end of a process and the moment at which the thread that reaped it goes on: a busy machine."""


def end_at_once(*_arguments: object) -> None:
    os._exit(0)


def test_a_process_that_ends_by_itself_is_not_said_to_be_killed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    wait = os.waitpid

    def wait_and_go_on_late(pid: int, options: int) -> tuple[int, int]:
        reaped = wait(pid, options)
        if reaped[0] > 0:
            time.sleep(REAPED_S)
        return reaped

    monkeypatch.setattr(os, "waitpid", wait_and_go_on_late)
    server = _make_server(ServerOptions(HOST, Ports().any()))
    for private in ("_ssp", "_shd", "_sso"):
        setattr(server, private, None)
    worker = server._spawn_worker(0, end_at_once, None)
    worker.start()
    server.wrks.append(worker)
    server._stop_workers()
    assert not worker.is_alive()
    assert worker.inner.exitcode in {0, -15}
    assert "refused to gracefully stop" not in "".join(capfd.readouterr())
