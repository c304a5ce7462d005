"""A whole stack under a steady load, and the report of a scenario."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

import redis
from harness import ResultRow, report
from load import Reads, Writes
from verdict import figures, lost, statuses, went_back

from keylane_local.process.processes import tail

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from keylane_local.stack.stack import Stack

TOPIC = "outage"
UP = "all parts up"


class ScenarioRun:
    """A scenario's stack under its load."""

    def __init__(self, stack: Stack, chosen: argparse.Namespace) -> None:
        self.stack = stack
        self.chosen = chosen
        self.writes = Writes(stack, TOPIC, chosen.keys, chosen.value_bytes)
        self.reads = Reads(stack.http_url, TOPIC, chosen.keys, chosen.reads_per_s)

    def __enter__(self) -> Self:
        self.writes.fill()
        if lost(self.stack, TOPIC, self.writes.acknowledged):
            raise SystemExit("the state was not whole before anything happened")
        self.writes.steadily(self.chosen.writes_per_s)
        self.reads.start()
        time.sleep(self.chosen.quiet_s)  # while the functions' environments start
        self.begin_s = time.monotonic()
        time.sleep(self.chosen.quiet_s)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.rest()
        if kind:
            print(tail(self.stack.job.log))

    def rest(self) -> None:
        """End the load."""
        self.reads.stop()
        self.writes.stop()

    def row(self, name: str, from_s: float, to_s: float) -> ResultRow:
        return ResultRow(name, figures(self.reads.between(from_s, to_s)))

    def finish(self, bench: str, rows: Sequence[ResultRow], facts: dict[str, Any]) -> None:
        """Check every key after the load has ended, and report the results."""
        seen = self.reads.between(self.begin_s, time.monotonic())
        facts |= {
            "failed reads by status": statuses(seen),
            "reads that went back in time": went_back(seen),
            "records that Kafka refused": self.writes.refused,
            "keys lost": f"{lost(self.stack, TOPIC, self.writes.acknowledged)} of {self.chosen.keys}",
        }
        aim = "no failed read, no key lost"
        report(f"outage-{bench}", "ms", rows, reference=UP, settings=vars(self.chosen), facts=facts, aim=aim)


def wait_until(stack: Stack, holds: Callable[[], bool], what: str, within_s: float = 300) -> float:
    """Return the time at which the condition holds; exit if it never does or the job has ended."""
    until_s = time.monotonic() + within_s
    while not holds():
        if not stack.job.running:
            raise SystemExit(f"the job ended before {what} came")
        if time.monotonic() > until_s:
            raise SystemExit(f"{what} did not come within {within_s:.0f} s")
        time.sleep(0.1)
    return time.monotonic()


class Memory:
    """Sum of used_memory of all primaries, sampled four times a second during the block."""

    def __init__(self, stack: Stack) -> None:
        self._clients = [redis.Redis(port=node.port) for node in stack.redis.primaries()]
        self._samples: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)
        self._look()
        for client in self._clients:
            client.close()

    def told(self) -> dict[str, float]:
        found = {"before": self._samples[0], "peak": max(self._samples), "after": self._samples[-1]}
        return {name: round(size / 2**20, 1) for name, size in found.items()}

    def _run(self) -> None:
        while not self._over.wait(0.25):
            self._look()

    def _look(self) -> None:
        self._samples.append(sum(client.info("memory")["used_memory"] for client in self._clients))
