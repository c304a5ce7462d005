"""What the parts of bench_peers.py share: servers that take turns under the same load, and their cost."""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import ResultRow
from parts import family_seconds
from wrk import FAILED, figures_of, good_answers, run_wrk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psutil

RECIPE = "see tests/bench/PEERS.md"
WARM_UP_S = 5
QUIET = {"log_level": 0}
"""For clients that are still there when their broker stops."""
UNIT = "/s, ms, CPU in us an answer"


@dataclass(frozen=True, slots=True)
class Contender:
    """A server under load, with the processes of the servers behind it."""

    name: str
    url: str
    process: psutil.Process
    behind: Mapping[str, Sequence[psutil.Process]]

    def seconds(self) -> dict[str, float]:
        """Return the seconds that the server, and those behind it, have computed so far."""
        behind = {f"CPU of {name}": sum(map(family_seconds, each)) for name, each in self.behind.items()}
        return {"CPU": family_seconds(self.process)} | behind


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk sends: to which path, by which script, over how many connections, for how long."""

    path: str
    script: str
    connections: int
    seconds: int


def measured(
    contender: Contender, load: Load, settle: Callable[[], object] = lambda: None
) -> tuple[int, dict[str, float]]:
    """Put the load on a server; return its good answers, and its figures with the CPU of an answer.

    `settle` returns once the work behind the answers is done, too.
    """
    before = contender.seconds()
    printed = run_wrk(f"{contender.url}{load.path}", load.script, load.connections, load.seconds)
    settle()
    after = contender.seconds()
    good = good_answers(printed)
    figures = figures_of(printed)
    return good, figures | {name: (after[name] - before[name]) / good * 1e6 for name in after}


def in_turns(turns: Mapping[str, Callable[[], dict[str, float]]], rounds: int) -> list[ResultRow]:
    """Measure each in each round, in an order that changes; return `medians`."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in turns}
    order = list(turns.items())
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for name, measure in order:
            samples[name].append(measure())
        order.reverse()
    return [ResultRow(name, medians(taken)) for name, taken in samples.items()]


def medians(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure; of failures the most, because a median would hide them."""
    names = dict.fromkeys(name for each in samples for name in each)
    counts = {name: max if name == FAILED else statistics.median for name in names}
    return {name: counts[name](each.get(name, 0.0) for each in samples) for name in names}


def why_not_served(peer: str, variable: str) -> str:
    """Return why a peer that is an HTTP server cannot be measured, or an empty string."""
    command = shlex.split(os.environ.get(variable, ""))
    if not command:
        return f"{peer}: not installed ({variable} is not set), {RECIPE}"
    if shutil.which(command[0]) is None:
        return f"{peer}: {command[0]} ({variable}) is no program, {RECIPE}"
    return "" if shutil.which("wrk") else f"{peer}: wrk is not installed: apt-get install wrk"


def wait_until(is_done: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until it is done; exit after so many seconds."""
    until_s = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > until_s:
            raise SystemExit(f"{what} after {seconds:.0f} s")
        time.sleep(0.2)
