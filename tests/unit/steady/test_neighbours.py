from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
from tests.servers.own import eventually
from tests.steady.neighbours import busy
from tests.support.project_files import ROOT

STARTS_AND_SAYS = """
import os, time
from tests.steady.neighbours import busy
with busy(1, os.getpid()) as [one]:
    print(one.pid, flush=True)
    time.sleep(600)
"""


def test_neighbours_use_the_processor_and_end_with_the_block():
    with busy(2, os.getpid()) as running:
        found = [psutil.Process(process.pid) for process in running]
        eventually(lambda: all(sum(process.cpu_times()[:2]) > 0.2 for process in found))
    assert [process.returncode for process in running] == [-signal.SIGKILL] * 2


def test_neighbours_end_with_a_process_that_was_killed():
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_SAYS], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        neighbour = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        eventually(lambda: not neighbour.is_running() or neighbour.status() == psutil.STATUS_ZOMBIE)
