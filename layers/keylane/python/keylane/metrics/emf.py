"""Metrics as lines of EMF (the embedded metric format) in a function's log: CloudWatch makes metrics of them.

A line of powertools for every request would take 24 us, a sixth of a read. So lines are written about once a
second (`meter`), one for each set of labels. A distribution is written as values with their counts, in steps
of a quarter of an octave. Its percentiles are at most 9 % off; sum, minimum and maximum are exact.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from keylane import __version__
from keylane.metrics.catalogue import COUNTER, METRICS

STEPS = 4
"""The steps of an octave."""
LEAST = 0.001
"""Smaller values count as this one: 0 has no logarithm."""
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


def write_to_stdout(lines: str) -> None:
    """Write the lines in one piece."""
    # One write, not print's two: lines of several processes in one file stay apart.
    sys.stdout.write(lines)
    sys.stdout.flush()


class EmfLog:
    """See `MetricSink`: it adds up what it is given until `flush`. `write` takes finished lines."""

    def __init__(
        self,
        namespace: str,
        write: Callable[[str], object] = write_to_stdout,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._namespace = namespace
        self._write = write
        self._now_s = now_s
        self._numbers: dict[tuple[str, ...], float] = {}
        self._distributions: dict[tuple[str, ...], Distribution] = {}

    def add_number(self, metric: str, labels: tuple[str, ...], value: float) -> None:
        """See `MetricSink.add_number`."""
        series = metric, *labels
        is_counter = METRICS[metric].kind == COUNTER
        self._numbers[series] = value + (self._numbers.get(series, 0) if is_counter else 0)

    def add_samples(self, metric: str, labels: tuple[str, ...], samples: Sequence[tuple[float, int]]) -> None:
        """See `MetricSink.add_samples`."""
        self._distributions.setdefault((metric, *labels), Distribution()).add(samples)

    def flush(self) -> None:
        """Write all numbers in one piece, a line for each set of labels, and reset them."""
        numbers, self._numbers = self._numbers, {}
        distributions, self._distributions = self._distributions, {}
        described = {series: found.render() for series, found in distributions.items()}
        lines: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, Any]] = {}
        for (name, *values), found in (*numbers.items(), *described.items()):
            lines.setdefault((METRICS[name].labels, tuple(values)), {})[name] = found
        if lines:
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
