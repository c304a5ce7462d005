"""Ctrl-C while `keylane up` has the job read its file again."""

from __future__ import annotations

import signal
import sys

import pytest
from tests.servers.own import eventually

from keylane_local.stack import stack as stacks
from keylane_local.stack.plan import StackOptions

JOB = """
import os, signal

def read(*_):
    os.kill(os.getppid(), signal.SIGUSR1)
    print("keylane: ready", flush=True)

signal.signal(signal.SIGHUP, read)
print("keylane: ready", flush=True)
while True:
    signal.pause()
"""
"""Stands for the job; whoever has it read its file again is interrupted meanwhile."""


class JobAlone(stacks.Stack):
    """A stack whose only part is the job."""

    @property
    def parts(self):
        return (self.job,) if self.state else ()

    def _describe_parts(self, state):
        super()._describe_parts(state)
        if state:
            self.job.program.command = [sys.executable, "-c", JOB]


@pytest.fixture
def stack(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "_prepare", lambda _: None)
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)  # SIGINT may be ignored here
    config = tmp_path / "keylane.toml"
    config.write_text("[topics.a]")
    found = JobAlone(
        tmp_path / "data", config, options=StackOptions(outside_kafka="k:1", outside_redis="r:1")
    )
    found.up()
    yield found
    found.down()
    signal.signal(signal.SIGUSR1, before)


def test_a_job_that_reads_its_file_again_serves_on_and_is_asked_again_by_the_next_call(stack):
    process = stack.job.program.process
    stack.config.write_text("[topics.a]\n[topics.b]")
    with pytest.raises(KeyboardInterrupt):
        stack.up()
    assert stack.job.program.process == process
    eventually(lambda: stack.job.program.changed_inputs() == ["keylane.toml"])
