"""What the job counts and measures, by topic and view. `emf` and `openmetrics` say where it goes."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from keylane.model.kafka import TopicPartition
from keylane.ports import Clock
from keylane_spark.telemetry.tally import Tally

STALE_S = 150.0
"""Gauges not set for this long are dropped: their topic is gone. Twice the longest heartbeat, and more."""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """The numbers of a topic, view or index, whose names are those of `keylane.metrics.catalogue.JOB`.

    `kind`: one of that table. `labels`: values of its metrics' labels. `totals`: of the counters, since the
    job started. `gauges`: as they were set `measured_ms` ago.
    """

    kind: str
    labels: tuple[str, ...]
    totals: Mapping[str, int]
    gauges: Mapping[str, int]
    measured_ms: int


@dataclass(frozen=True, slots=True)
class TopicGauges:
    """The gauges that only topics have."""

    parked: int = 0
    missed_deletions: int = 0
    stopped: int = 0
    skew_ms: int | None = None


class JobMetrics:
    """Counters and gauges of topics and views. Thread-safe.

    Every `interval_s` they are due to be measured, and are given to `report`; with None they never are.
    """

    def __init__(
        self,
        clock: Clock,
        interval_s: float | None = None,
        report: Callable[[list[MetricSeries]], None] | None = None,
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._report = report
        self._lock = threading.Lock()
        self._totals: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self._gauges: dict[tuple[str, ...], tuple[float, dict[str, int]]] = {}
        self._next_s = clock.monotonic_s() + (interval_s or 0)

    def count_batch(self, tallies: Mapping[TopicPartition, Tally]) -> None:
        """Count a batch of topics."""
        with self._lock:
            for topic in {topic for topic, _ in tallies}:
                self._totals["topic", topic]["Batches"] += 1
            for (topic, _), tally in tallies.items():
                counts = {
                    "Records": tally.records,
                    "Strays": tally.strays,
                    "LeftInKafka": tally.left_in_kafka,
                    "InvalidEvents": tally.invalid_events,
                    "LeftOut": tally.left_out,
                    "Failed": tally.failed,
                    "InvalidFields": tally.invalid_fields,
                }
                self._totals["topic", topic].update(counts)

    def count_restart(self, topics: Iterable[str]) -> None:
        """Count a restart of the topics' writer after an error."""
        with self._lock:
            for topic in topics:
                self._totals["topic", topic]["Restarts"] += 1

    def count_view_batch(
        self, view: str, *, records: int, windows: int, late: int, invalid: int, failed: int
    ) -> None:
        """Count a batch of a view, which runs."""
        counts = {"Batches": 1, "Records": records, "Windows": windows}
        skipped = {"Late": late, "Invalid": invalid, "Failed": failed}
        with self._lock:
            self._totals["view", view].update(counts | skipped)

    def count_stop(self, view: str) -> None:
        """Count that an error has stopped a view until the job's next start."""
        with self._lock:
            self._totals["view", view]["Stops"] += 1

    def count_view_restart(self, view: str) -> None:
        """Count a restart of a view's writer after an error."""
        with self._lock:
            self._totals["view", view]["Restarts"] += 1

    def gauge(
        self,
        name: str,
        *,
        lag: int,
        age_ms: int | None,
        incomplete: int,
        topic: TopicGauges | None = None,
    ) -> None:
        """Set the gauges of a topic or, without `topic`, of a view. What is None is not known."""
        with self._lock:
            gauges = {"Lag": lag, "IncompletePartitions": incomplete, "Age": age_ms}
            if topic:
                gauges |= {"ParkedPartitions": topic.parked, "MissedDeletions": topic.missed_deletions}
                gauges |= {"ClockSkew": topic.skew_ms, "StoppedPartitions": topic.stopped}
            known = {gauge: value for gauge, value in gauges.items() if value is not None}
            kind = "topic" if topic else "view"
            self._gauges[kind, name] = self._clock.monotonic_s(), known

    def gauge_index(self, topic: str, index: str, entries: int) -> None:
        """Set the size of an index of fields."""
        with self._lock:
            self._gauges["index", topic, index] = self._clock.monotonic_s(), {"IndexEntries": entries}

    @property
    def is_due(self) -> bool:
        """Whether the gauges are due to be measured, and the series to be reported."""
        return self._interval_s is not None and self._clock.monotonic_s() >= self._next_s

    def flush(self) -> None:
        """Report the series, if anybody wants them."""
        self._next_s = self._clock.monotonic_s() + (self._interval_s or 0)
        if self._report is not None:
            self._report(self.series())

    def series(self) -> list[MetricSeries]:
        """Return the numbers of all topics, views and indexes, by kind and labels."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._gauges = {name: each for name, each in self._gauges.items() if now_s - each[0] <= STALE_S}
            found = []
            for each in sorted(self._totals.keys() | self._gauges.keys()):
                measured_s, gauges = self._gauges.get(each, (now_s, {}))
                totals, (kind, *labels) = dict(self._totals.get(each, {})), each
                measured_ms = round((now_s - measured_s) * 1000)
                found.append(MetricSeries(kind, tuple(labels), totals, gauges, measured_ms))
            return found
