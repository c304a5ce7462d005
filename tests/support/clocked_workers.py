"""Spark's daemon for Python workers on a machine with another clock: `spark.python.daemon.module`.

Executors inherit the environment of their worker. Its `TEST_CLOCK_AHEAD_S` says by how many seconds the wall
clock is ahead. What asks `time.time` and `time.time_ns` gets that time; `datetime` and compiled code do not.
The module is sent to executors alone, without its folder, and imports nothing of the project before.
"""

from __future__ import annotations

import os
import sys
import time

VARIABLE = "TEST_CLOCK_AHEAD_S"
CLOCK_LINE = "the clock of this machine: "


def move(ahead_s: int) -> None:
    """Move this process's wall clock, and those of the workers that it forks."""
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + ahead_s
    time.time_ns = lambda: nanoseconds() + ahead_s * 1_000_000_000


if __name__ == "__main__":
    move(int(os.environ[VARIABLE]))
    from keylane_spark.stream import worker_daemon

    worker_daemon.load()
    sys.stderr.write(f"{CLOCK_LINE}{time.time():.0f}\n")
    worker_daemon.daemon.manager()
