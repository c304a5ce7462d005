"""What servers under load share: wrk, turns under the same load, and their cost.

wrk is Debian's package wrk: a load generator in Python would be the bottleneck.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import ResultRow
from stage import family_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psutil


FAILED = "failed, %"
DONE = """
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, latency:percentile(50),
    latency:percentile(99)))
end
"""


def require_wrk() -> None:
    """Exit if the load generator is not installed."""
    if shutil.which("wrk") is None:
        sys.exit("this benchmark needs wrk: apt-get install wrk")


def load(url: str, script: str, connections: int, seconds: int) -> dict[str, float]:
    """Run wrk; return good answers a second, percentiles in milliseconds, and the share that failed, if any.

    Failed requests are reported at once, too. Exits if no request succeeded.
    """
    return figures_of(run_wrk(url, script, connections, seconds))


def run_wrk(url: str, script: str, connections: int, seconds: int) -> str:
    """Run wrk; return what it has printed, for `figures_of` and `good_answers`."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script + DONE)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", file.name, url]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def good_answers(printed: str) -> int:
    """Return how many requests succeeded, of what wrk has printed."""
    answers, _, refused, *_ = _counts(printed)
    return answers - refused


def _counts(printed: str) -> list[int]:
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", printed)
    if found is None:
        sys.exit(f"wrk did not finish: {printed}")
    return [int(each) for each in found.groups()]


def figures_of(printed: str) -> dict[str, float]:
    """Return the figures of what wrk has printed; see `load`."""
    answers, taken_us, refused, unanswered, p50_us, p99_us = _counts(printed)
    good, failed = answers - refused, refused + unanswered
    if good <= 0:
        sys.exit(f"no request succeeded: {printed}")
    figures = {"per_s": good / taken_us * 1e6, "p50": p50_us / 1000, "p99": p99_us / 1000}
    if failed:
        figures[FAILED] = 100 * failed / (good + failed)
        print(
            f"{failed} of {good + failed} requests failed ({figures[FAILED]:.3g} %): "
            f"{refused} with a status of 400 or more, {unanswered} without an answer",
            file=sys.stderr,
        )
    return figures


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
