from __future__ import annotations

import subprocess
import sys

import psutil
from tests.servers.own import eventually, suspended

BUSY = """
import threading
for _ in range(3):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


def test_a_process_does_nothing_while_it_is_suspended_and_goes_on_then():
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        seen = psutil.Process(process.pid)
        with suspended(process.pid):
            states = {psutil.Process(each.id).status() for each in seen.threads()}
            assert states == {psutil.STATUS_STOPPED}
            used = seen.cpu_times()
            assert seen.cpu_times() == used
        eventually(lambda: seen.cpu_times() != used)
        process.kill()
