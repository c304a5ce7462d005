"""Metrics of several processes: each writes its own to a file once a second, and any of them can add them up.

The file of a process that has ended stays, so that no counter goes back; its gauges do not count.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from keylane.metrics.catalogue import COUNTER, METRICS
from keylane_serve.function_metrics import FunctionMetrics, Histogram

if TYPE_CHECKING:
    from pathlib import Path

EVERY_S = 1.0
ENDED_AFTER_S = 15.0
"""A process that has not written for so long has ended, or hangs."""


class MetricFiles:
    """The files in a folder; `metrics` are those of this process."""

    def __init__(self, folder: Path, metrics: FunctionMetrics) -> None:
        self._folder = folder
        self._metrics = metrics
        self._own = folder / f"{os.getpid()}.json"

    def write(self) -> None:
        """Write this process's metrics."""
        new = self._own.with_suffix(".new")
        new.write_text(json.dumps(_document(self._metrics)), encoding="utf-8")
        new.replace(self._own)

    def total(self) -> FunctionMetrics:
        """Return the sum over all processes; of a gauge that is not summed, one of its values."""
        self.write()
        total = FunctionMetrics()
        for path in sorted(self._folder.glob("*.json")):
            is_running = time.time() - path.stat().st_mtime < ENDED_AFTER_S
            _add(total, json.loads(path.read_text(encoding="utf-8")), is_running=is_running)
        return total


def _document(metrics: FunctionMetrics) -> dict[str, Any]:
    histograms = {
        name: [[labels, each.counts, each.total] for labels, each in by_labels.items()]
        for name, by_labels in metrics.histograms.items()
    }
    numbers = {name: list(by_labels.items()) for name, by_labels in metrics.numbers.items()}
    return {"numbers": numbers, "histograms": histograms, "refusals": list(metrics.refusals.items())}


def _add(total: FunctionMetrics, document: dict[str, Any], *, is_running: bool) -> None:
    for name, found in document["numbers"].items():
        metric = METRICS[name]
        if metric.kind != COUNTER and not is_running:
            continue
        is_sum = metric.kind == COUNTER or metric.is_summed
        numbers = total.numbers.setdefault(name, {})
        for labels, number in found:
            numbers[tuple(labels)] = number + (numbers.get(tuple(labels), 0) if is_sum else 0)
    for name, found in document["histograms"].items():
        histograms = total.histograms.setdefault(name, {})
        for labels, counts, sum_ms in found:
            known = histograms.setdefault(tuple(labels), Histogram())
            known.counts = [one + other for one, other in zip(known.counts, counts, strict=True)]
            known.total += sum_ms
    total.refusals.update(Counter(dict(document["refusals"])))
