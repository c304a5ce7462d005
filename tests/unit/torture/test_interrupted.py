"""Ctrl-C: the torture ends at once, and so does all that it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
from tests.servers.own import eventually
from tests.torture.__main__ import INTERRUPTED

from keylane_local.tools import project_root

POLLS = """\
import signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs in the background ignore it
from confluent_kafka import Producer
from tests.torture import __main__ as torture
from tests.torture.run import Outcome

def run(self, configuration, schedule):
    if not self.outcomes:
        return Outcome(schedule, 1.0, [], 7, 0, 0)
    server = subprocess.Popen(["sleep", "600"], start_new_session=True)
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    written = Path(sys.argv[2], "pid")
    written.write_text(str(server.pid))
    written.rename(sys.argv[1])
    while True:
        producer.poll(600)

torture.Stacks.run = run
torture.main(["-n", "3", "--seed", "1", "--keep", sys.argv[2]])
"""
ENDS_WITHIN_S = 60
"""A tenth of the poll; it takes a second of a quiet machine."""


def test_ctrl_c_during_a_poll_kills_the_servers_and_prints_the_report_so_far(tmp_path: Path):
    started = tmp_path / "server.pid"
    torture = subprocess.Popen(
        [sys.executable, "-c", POLLS, str(started), str(tmp_path)],
        cwd=project_root(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        eventually(lambda: started.exists() or torture.poll() is not None, 120)
        torture.send_signal(signal.SIGINT)
        printed, errors = torture.communicate(timeout=ENDS_WITHIN_S)
    finally:
        torture.kill()
    assert torture.returncode == INTERRUPTED, errors
    assert '"schedules": 1,' in printed
    assert '"reads": 7,' in printed
    assert errors == ""
    eventually(lambda: not psutil.pid_exists(int(started.read_text())))
