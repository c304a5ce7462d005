"""A stack in the foreground ends with its command, and its command with the stack."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from keylane_local.errors import PartFailed
from keylane_local.stack import foreground

SCRIPT = Path(__file__).parents[3] / "infra" / "docker" / "keylane.sh"


class FakeStack:
    """A stack that counts how often it was stopped; `look` is called when its part is looked at."""

    def __init__(self, look):
        self.stopped = 0
        self._look = look

    @property
    def parts(self):
        return [SimpleNamespace(name="job", running=self._look())]

    def down(self):
        self.stopped += 1


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    return True


def test_sigterm_ends_the_wait_and_stops_the_stack():
    stack = FakeStack(terminate)
    before = signal.getsignal(signal.SIGTERM)
    with foreground.stopped_afterwards(stack):
        foreground.stay(stack)
        assert stack.stopped == 0
    assert stack.stopped == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_during_the_start_stops_what_has_started():
    stack = FakeStack(lambda: True)
    with pytest.raises(KeyboardInterrupt), foreground.stopped_afterwards(stack):
        terminate()
    assert stack.stopped == 1


def test_a_part_that_ends_ends_the_command_with_its_name_and_stops_the_others():
    looks = iter([True, False])
    stack = FakeStack(lambda: next(looks))
    with pytest.raises(PartFailed, match="job failed: it has ended"), foreground.stopped_afterwards(stack):
        foreground.stay(stack)
    assert stack.stopped == 1


@pytest.mark.parametrize(
    ("given", "run"),
    [
        (["demo"], "demo --foreground --http-host 0.0.0.0"),
        (["up", "--no-job"], "up --no-job --foreground --http-host 0.0.0.0"),
        (
            ["server", "--authorization", "none"],
            "server --host 0.0.0.0 --authorization tokens --authorization none",
        ),
        (["job", "--config", "a b.toml"], "job --config a b.toml"),
        (["--help"], "--help"),
    ],
)
def test_in_a_container_http_listens_for_others_and_a_server_alone_asks_for_tokens(tmp_path, given, run):
    program = tmp_path / "keylane"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([SCRIPT, *given], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout == f"{run}\n"
