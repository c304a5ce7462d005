"""The job's process and its signals: nothing that a transform starts keeps it, or is kept by it."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest
from tests.servers.own import eventually

THREAD = """
import threading, time
from keylane_spark import __main__ as job

def main(_):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    {end}

job.main = main
print("said", end="")
job.run()
"""


@pytest.mark.parametrize(("end", "code"), [("return 5", 5), ("raise ValueError('a bug')", 1)])
def test_a_thread_that_never_ends_does_not_keep_a_job_that_has_ended(end, code):
    command = [sys.executable, "-c", THREAD.format(end=end)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "said")
    assert ("ValueError: a bug" in done.stderr) == (code == 1)


PROCESSES = """
import multiprocessing, time
from keylane_spark import __main__ as job

def main(_):
    for _ in range(2):
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,)).start()
    print(*(each.pid for each in multiprocessing.active_children()))
    return 0

job.main = main
job.run()
"""


def test_processes_that_a_transform_has_started_end_with_the_job():
    done = subprocess.run(
        [sys.executable, "-c", PROCESSES], capture_output=True, text=True, timeout=60, check=True
    )
    left = [int(each) for each in done.stdout.split()]
    assert len(left) == 2
    eventually(lambda: not any(psutil.pid_exists(each) for each in left))


POOL = """
import multiprocessing, threading
from keylane_spark import __main__ as job

def transform():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(abs, [-1, 2]), flush=True)
    print("ended", flush=True)

def until_ended(*_):
    thread = threading.Thread(target=transform)
    thread.start()
    thread.join()
    return 0

job.until_ended = until_ended
job.run([])
"""


def test_a_pool_of_processes_in_a_transform_ends():
    done = subprocess.run(
        [sys.executable, "-c", POOL], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[1, 2]\nended\n")


FORKED = """
import os, signal, threading, time
from keylane_spark import __main__ as job

os.register_at_fork(after_in_child=lambda: time.sleep(2))

def transform():
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    os.kill(child, signal.SIGTERM)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), *signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)

def until_ended(*_):
    thread = threading.Thread(target=transform)
    thread.start()
    thread.join()
    held = os.popen("grep SigBlk /proc/self/status").read().split()[1]
    print(int(held, 16))
    return 0

job.until_ended = until_ended
job.run([])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_process_that_is_ended_while_it_is_forked_ends_and_no_signal_stays_blocked():
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["15", "0"]), done.stderr
