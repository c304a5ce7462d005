"""Metrics of a function: aggregated in its process, and written to its log as lines of EMF.

CloudWatch turns these lines (the embedded metric format) into metrics. A request records its numbers in
memory, about a microsecond each; a line of powertools for every request would take 24 us, a sixth of a read.
At the end of a request the numbers are aggregated, written and reset, at most once a second. After a pause a
few more writes are allowed, so that rare events appear at once. Nothing runs between requests, because the
function is frozen then. The clock is the wall clock, because other clocks may stop while the function is
frozen. An environment that ends loses its unwritten numbers: at most the last second of a busy one.

A distribution is written as values with their counts, in steps of a quarter of an octave. Its percentiles are
at most 9 % off; sum, minimum and maximum are exact.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from keylane import __version__
from keylane.metrics.catalogue import COUNTER, HISTOGRAM, METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMESPACE = "Keylane"
BURST = 5
"""How many writes are allowed within a second, after a pause."""
STEPS = 4
"""The steps of an octave."""
LEAST = 0.001
"""Smaller values count as this one: 0 has no logarithm."""
OTHER = "(other)"
NOTES_LIMIT = 1_000
"""How many numbers are noted before they are summed up."""
LABELS_LIMIT = 200
"""How many sets of labels a metric may have in a process; all others are counted as OTHER."""
VALUES_LIMIT = 100
"""The most values of a metric that CloudWatch accepts in a line."""


class Distribution:
    """Counts of values by their step on a logarithmic scale."""

    __slots__ = ("counts", "least", "most", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0.0
        self.least = math.inf
        self.most = 0.0

    def add(self, samples: Sequence[tuple[float, int]]) -> None:
        """Add values, each with how often it occurred."""
        counts = self.counts
        for value, times in samples:
            step = round(math.log2(max(value, LEAST)) * STEPS)
            counts[step] = counts.get(step, 0) + times
            self.total += value * times
        self.least = min(self.least, min(samples)[0])
        self.most = max(self.most, max(samples)[0])

    def render(self) -> dict[str, Any]:
        """Return the distribution in CloudWatch's format, without values if there are too many."""
        statistics = {
            "Count": sum(self.counts.values()),
            "Sum": self.total,
            "Min": self.least,
            "Max": self.most,
        }
        if len(self.counts) > VALUES_LIMIT:
            return statistics
        values = [min(max(round(2 ** (step / STEPS), 4), self.least), self.most) for step in self.counts]
        return {"Values": values, "Counts": list(self.counts.values()), **statistics}


class Meter:
    """The numbers of one function's process; like everything in a function, it is used by one thread.

    `write` takes finished lines; without it the meter is off: it counts and writes nothing.
    `labels` of a call are the values of the metric's labels, in the order of the catalogue.
    """

    def __init__(
        self,
        write: Callable[[str], object] | None = None,
        now_s: Callable[[], float] = time.time,
        namespace: str = NAMESPACE,
    ) -> None:
        self._write = write
        self._namespace = namespace
        self._now_s = now_s
        self._notes: list[tuple[str, tuple[str, ...], float, int]] = []
        self._numbers: dict[tuple[str, ...], float] = {}
        self._distributions: dict[tuple[str, ...], Distribution] = {}
        self._labels: dict[str, set[tuple[str, ...]]] = {}
        self._credit = float(BURST)
        self._looked_s = now_s()
        self.is_on = write is not None

    def count(self, metric: str, number: float = 1, *labels: str) -> None:
        """Add to a counter."""
        if self.is_on and number:
            self._note(metric, labels, number, 1)

    def gauge(self, metric: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        if self.is_on:
            self._note(metric, labels, value, 1)

    def observe(self, metric: str, value: float, *labels: str, times: int = 1) -> None:
        """Add a value to a distribution, `times` times."""
        if self.is_on:
            self._note(metric, labels, value, times)

    def _note(self, metric: str, labels: tuple[str, ...], value: float, times: int) -> None:
        # Summed up later, many at once: a request waits here, and code that it calls is rarely in the cache.
        self._notes.append((metric, labels, value, times))
        if len(self._notes) >= NOTES_LIMIT:
            self._sum_up()

    def _sum_up(self) -> None:
        notes, self._notes = self._notes, []
        samples_of: dict[tuple[str, tuple[str, ...]], list[tuple[float, int]]] = {}
        for metric, labels, value, times in notes:
            kind = METRICS[metric].kind
            if kind == HISTOGRAM:
                samples_of.setdefault((metric, labels), []).append((value, times))
            else:
                series = self._series(metric, labels)
                self._numbers[series] = value + (self._numbers.get(series, 0) if kind == COUNTER else 0)
        for (metric, labels), samples in samples_of.items():
            self._distributions.setdefault(self._series(metric, labels), Distribution()).add(samples)

    def _series(self, metric: str, labels: tuple[str, ...]) -> tuple[str, ...]:
        known = self._labels.setdefault(metric, set())
        if labels not in known:
            if len(known) >= LABELS_LIMIT:
                return metric, *(OTHER for _ in labels)
            known.add(labels)
        return metric, *labels

    def request(self, method: str, code: int, taken_ms: float) -> None:
        """Record a request at its end, and write all numbers where that is due."""
        self.observe("RequestDuration", taken_ms, method, str(code))
        if self.is_on and self._is_due():
            self.flush()

    def _is_due(self) -> bool:
        now_s = self._now_s()
        self._credit = min(BURST, self._credit + max(0.0, now_s - self._looked_s))
        self._looked_s = now_s
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def flush(self) -> None:
        """Write all numbers in one piece, a line for each set of labels, and reset them."""
        self._sum_up()
        numbers, self._numbers = self._numbers, {}
        distributions, self._distributions = self._distributions, {}
        described = {series: found.render() for series, found in distributions.items()}
        lines: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, Any]] = {}
        for (name, *values), found in (*numbers.items(), *described.items()):
            lines.setdefault((METRICS[name].labels, tuple(values)), {})[name] = found
        if lines and self._write is not None:
            now_ms = round(self._now_s() * 1000)
            rendered = (self._line(now_ms, *labels, found) for labels, found in lines.items())
            self._write("".join(f"{line}\n" for line in rendered))

    def _line(
        self, now_ms: int, labels: tuple[str, ...], values: tuple[str, ...], found: dict[str, Any]
    ) -> str:
        billed = [{"Name": name, "Unit": METRICS[name].unit} for name in found if METRICS[name].is_billed]
        directive = {"Namespace": self._namespace, "Dimensions": [labels], "Metrics": billed}
        head = {"Timestamp": now_ms, "CloudWatchMetrics": [directive] if billed else []}
        return json.dumps(
            {"_aws": head, **dict(zip(labels, values, strict=True)), "version": __version__, **found}
        )


def write_to_stdout(lines: str) -> None:
    """Write the lines in one piece."""
    # One write, not print's two: lines of several processes in one file stay apart.
    sys.stdout.write(lines)
    sys.stdout.flush()


NO_METER = Meter()
"""A meter that is off, for those that are given none."""
