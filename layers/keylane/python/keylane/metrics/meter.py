"""Metrics of a function's process: noted at once, summed up later, and handed on about once a second.

A request notes its numbers in memory, in about a microsecond each. At its end they are summed up and given to
a sink, at most once a second; after a pause a few more times, so that rare events appear at once. Nothing
runs between requests, because on Lambda the function is frozen then. The clock is the wall clock, because
other clocks may stop while the function is frozen. An environment that ends loses what it has not handed on:
at most the last second of a busy one.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from keylane.metrics.catalogue import COUNTER, HISTOGRAM, METRICS

BURST = 5
"""How many times numbers may be handed on within a second, after a pause."""
OTHER = "(other)"
NOTES_LIMIT = 1_000
"""How many numbers are noted before they are summed up."""
LABELS_LIMIT = 200
"""How many sets of labels a metric may have in a process; all others are counted as OTHER."""


class MetricSink(Protocol):
    """Where numbers go: EMF on Lambda (`metrics.emf`), a registry of Prometheus in the standing server."""

    def add_number(self, metric: str, labels: tuple[str, ...], value: float) -> None:
        """Add to a counter, or set a gauge."""

    def add_samples(self, metric: str, labels: tuple[str, ...], samples: Sequence[tuple[float, int]]) -> None:
        """Add values to a distribution, each with how often it occurred."""

    def flush(self) -> None:
        """Write what was added, where that is not done yet."""


class Meter:
    """The numbers of one function's process; like everything in a function, it is used by one thread.

    Without a sink the meter is off: it notes nothing.
    `labels` of a call are the values of the metric's labels, in the order of the catalogue.
    """

    def __init__(self, sink: MetricSink | None = None, now_s: Callable[[], float] = time.time) -> None:
        self._sink = sink
        self._now_s = now_s
        self._notes: list[tuple[str, tuple[str, ...], float, int]] = []
        self._labels: dict[str, set[tuple[str, ...]]] = {}
        self._credit = float(BURST)
        self._looked_s = now_s()
        self._due_s = self._looked_s
        self.is_on = sink is not None

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
            self._notes.append((metric, labels, value, times))

    def _note(self, metric: str, labels: tuple[str, ...], value: float, times: int) -> None:
        # Summed up later, many at once: a request waits here, and code that it calls is rarely in the cache.
        self._notes.append((metric, labels, value, times))
        if len(self._notes) >= NOTES_LIMIT:
            self._sum_up()

    def _sum_up(self) -> None:
        notes, self._notes = self._notes, []
        samples_of: dict[tuple[str, tuple[str, ...]], list[tuple[float, int]]] = {}
        numbers: dict[tuple[str, tuple[str, ...]], float] = {}
        if self._sink is None:
            return
        for metric, labels, value, times in notes:
            kind, series = METRICS[metric].kind, (metric, labels)
            if kind == HISTOGRAM:
                samples_of.setdefault(series, []).append((value, times))
            else:
                numbers[series] = value + (numbers.get(series, 0) if kind == COUNTER else 0)
        for (metric, labels), value in numbers.items():
            self._sink.add_number(metric, self._bounded(metric, labels), value)
        for (metric, labels), samples in samples_of.items():
            self._sink.add_samples(metric, self._bounded(metric, labels), samples)

    def _bounded(self, metric: str, labels: tuple[str, ...]) -> tuple[str, ...]:
        known = self._labels.setdefault(metric, set())
        if labels not in known:
            if len(known) >= LABELS_LIMIT:
                return tuple(OTHER for _ in labels)
            known.add(labels)
        return labels

    def request(self, method: str, code: int, taken_ms: float) -> None:
        """Note a request at its end, and hand all numbers on where that is due."""
        if not self.is_on:
            return
        self._note("RequestDuration", (method, str(code)), taken_ms, 1)
        now_s = self._now_s()
        # Also where the clock went back.
        if not self._looked_s <= now_s < self._due_s and self._is_due(now_s):
            self.flush()

    def _is_due(self, now_s: float) -> bool:
        self._credit = min(BURST, self._credit + max(0.0, now_s - self._looked_s))
        self._looked_s = now_s
        is_due = self._credit >= 1
        self._credit -= is_due
        self._due_s = now_s + max(0.0, 1 - self._credit)
        return is_due

    def flush(self) -> None:
        """Hand all numbers on."""
        self._sum_up()
        if self._sink is not None:
            self._sink.flush()


NO_METER = Meter()
"""A meter that is off, for those that are given none."""
