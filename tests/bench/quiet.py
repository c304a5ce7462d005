"""Whether this machine has nothing else to do: figures of a busy one say nothing."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

import psutil

ALLOWED_CORES = 0.15
"""What other processes may keep busy: a machine at rest has its timers and daemons."""
LOOK_S = 1.5
BUSY = "KEYLANE_BENCH_BUSY"
"""The variable with which benchmarks run on a busy machine too: `make bench` has looked already."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How many cores other processes kept busy, how much of one the host took away, and the busiest."""

    cores: float
    stolen: float
    busiest: tuple[str, ...] = ()

    @property
    def is_quiet(self) -> bool:
        return self.cores + self.stolen <= ALLOWED_CORES

    def __str__(self) -> str:
        most = f": {', '.join(self.busiest)}" if self.busiest else ""
        stolen = f"; the host took {self.stolen:.2f} of one away" if self.stolen >= 0.01 else ""
        return f"other processes keep {self.cores:.2f} of {os.cpu_count()} cores busy{most}{stolen}"


def look(seconds: float = LOOK_S) -> Usage:
    """Watch the machine for so long."""
    before, began_s, times = _computed_s(), time.monotonic(), psutil.cpu_times()
    own_s = time.process_time()
    time.sleep(seconds)
    own_s = time.process_time() - own_s
    took_s, after = time.monotonic() - began_s, psutil.cpu_times()
    idle_s = sum(getattr(after, name, 0.0) - getattr(times, name, 0.0) for name in ("idle", "iowait"))
    stolen_s = getattr(after, "steal", 0.0) - getattr(times, "steal", 0.0)
    busy_s = (os.cpu_count() or 1) * took_s - idle_s - stolen_s - own_s
    return Usage(max(busy_s, 0.0) / took_s, stolen_s / took_s, _busiest(before, _computed_s(), took_s))


def require(*, within_s: float = 0.0) -> None:
    """Exit unless the machine is quiet, or gets quiet in time, or the variable BUSY is set."""
    if os.environ.get(BUSY):
        return
    until_s = time.monotonic() + within_s
    while not (seen := look()).is_quiet:
        if time.monotonic() > until_s:
            sys.exit(f"{seen}. End them, or measure anyway with --busy")


def _computed_s() -> dict[tuple[int, str], float]:
    found = {}
    for process in psutil.process_iter(("pid", "name", "cpu_times")):
        if process.pid != os.getpid() and (times := process.info["cpu_times"]):
            found[process.pid, process.info["name"]] = times.user + times.system
    return found


def _busiest(
    before: dict[tuple[int, str], float], after: dict[tuple[int, str], float], took_s: float
) -> tuple[str, ...]:
    shares = {each: (seconds - before.get(each, 0.0)) / took_s for each, seconds in after.items()}
    most = [each for each in sorted(shares, key=lambda each: -shares[each])[:3] if shares[each] > 0.01]
    return tuple(f"{name} (pid {pid}) {shares[pid, name]:.2f}" for pid, name in most)
