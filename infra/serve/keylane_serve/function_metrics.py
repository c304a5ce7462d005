"""Metrics of the functions: EMF lines taken out of what they print, and added up since the front started.

A counter or histogram is the sum over all environments; a gauge is the last value that any of them reported.
"""

from __future__ import annotations

import bisect
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from keylane.metrics.catalogue import COUNTER, HISTOGRAM, METRICS, Metric

BOUNDS = (0.25, 0.5, 1.0, 2.5, *(5.0 * 2**number for number in range(14)))
"""Upper bounds of the buckets in milliseconds, up to 41 seconds; kprf has those from 5 to 80."""
_EMF_START = b'{"_aws": '


@dataclass(slots=True)
class Histogram:
    """Count of values per bucket of BOUNDS (not cumulative; the last bucket is unbounded), and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, distribution: dict[str, Any]) -> None:
        """Add an EMF distribution, as `keylane.metrics.meter` writes it."""
        values = distribution.get("Values") or [distribution["Sum"] / distribution["Count"]]
        counts = distribution.get("Counts") or [distribution["Count"]]
        for value, count in zip(values, counts, strict=True):
            self.counts[bisect.bisect_left(BOUNDS, value)] += count
        self.total += distribution["Sum"]


class FunctionMetrics:
    """Counters and gauges (`numbers`) and histograms, by metric and label values; refusals by status."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[tuple[str, ...], float]] = {}
        self.histograms: dict[str, dict[tuple[str, ...], Histogram]] = {}
        self.refusals: Counter[int] = Counter()

    def take_line(self, line: bytes) -> bool:
        """Add the metrics of a line that a function printed; return False if the line is not EMF."""
        if not line.startswith(_EMF_START):
            return False
        try:
            document = json.loads(line)
        except ValueError:
            return False
        for name in document.keys() & METRICS.keys():
            self._add(name, METRICS[name], document)
        return True

    def count_refusal(self, status: int) -> None:
        """Count a request that the front answered itself."""
        self.refusals[status] += 1

    def _add(self, name: str, metric: Metric, document: dict[str, Any]) -> None:
        labels = tuple(str(document[label]) for label in metric.labels)
        if metric.kind == HISTOGRAM:
            self.histograms.setdefault(name, {}).setdefault(labels, Histogram()).add(document[name])
            return
        numbers = self.numbers.setdefault(name, {})
        numbers[labels] = document[name] + (numbers.get(labels, 0) if metric.kind == COUNTER else 0)
