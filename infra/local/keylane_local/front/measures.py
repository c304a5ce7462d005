"""The functions' metrics as the front collects them: their lines of EMF, taken out of what they print.

Sums over all environments since the front's start; of a number that goes up and down the one told last.
"""

from __future__ import annotations

import bisect
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from keylane.metrics.catalogue import COUNTER, HISTOGRAM, METRICS, Metric

BOUNDS = (0.25, 0.5, 1.0, 2.5, *(5.0 * 2**number for number in range(14)))
"""Milliseconds, from a quarter of one to 41 seconds; 5 to 80 are kprf's."""
_BEGIN = b'{"_aws": '


@dataclass(slots=True)
class Histogram:
    """How many values were at most each of BOUNDS (and not the bound before), the last how many were more."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, told: dict[str, Any]) -> None:
        """Take a distribution, as `keylane.metrics.meter` tells it."""
        values = told.get("Values") or [told["Sum"] / told["Count"]]
        for value, count in zip(values, told.get("Counts") or [told["Count"]], strict=True):
            self.counts[bisect.bisect_left(BOUNDS, value)] += count
        self.total += told["Sum"]


class Measures:
    """What all functions have told."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[tuple[str, ...], float]] = {}
        self.histograms: dict[str, dict[tuple[str, ...], Histogram]] = {}
        self.refusals: Counter[int] = Counter()

    def take(self, line: bytes) -> bool:
        """Take a line that a function printed; False for one that is none of its metrics."""
        if not line.startswith(_BEGIN):
            return False
        try:
            document = json.loads(line)
        except ValueError:
            return False
        for name in document.keys() & METRICS.keys():
            self._take(name, METRICS[name], document)
        return True

    def refused(self, status: int) -> None:
        """Count a request that no function answered."""
        self.refusals[status] += 1

    def _take(self, name: str, metric: Metric, document: dict[str, Any]) -> None:
        labels = tuple(str(document[label]) for label in metric.labels)
        if metric.kind == HISTOGRAM:
            self.histograms.setdefault(name, {}).setdefault(labels, Histogram()).add(document[name])
            return
        kept = self.numbers.setdefault(name, {})
        kept[labels] = document[name] + (kept.get(labels, 0) if metric.kind == COUNTER else 0)
