"""The job's metrics in CloudWatch's embedded metric format: one line for each topic and view.

`[job] metrics = "emf"` turns them on: a log group takes the lines from the job's output, and CloudWatch makes
metrics of them
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format.html).
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from keylane.model.topic_partition import TopicPartition
    from keylane.ports import Clock
    from keylane_spark.telemetry.tally import Tally

NAMESPACE = "Keylane"
INTERVAL_S = 10.0
STALE_S = 150.0
"""Gauges not set for this long are dropped: their topic is gone. Twice the longest heartbeat, and more."""
_TIMES = ("Age", "ClockSkew")
_COUNTS = {
    "topic": ("Records", "Batches", "Strays", "LeftInKafka", "Restarts"),
    "view": ("Records", "Batches", "Windows", "Late", "Invalid", "Restarts"),
}


class JobMetrics:
    """Counters and gauges of topics and views, written every ten seconds. Thread-safe.

    Gauges: Lag (records), Age (ms, absent while a lane is being built), IncompletePartitions, and of a topic
    ParkedPartitions and ClockSkew (ms by which the driver's clock is ahead of the Redis node's that differs
    most). Counters since the last line: of a topic Records, Batches, Strays, LeftInKafka, Restarts; of a view
    Records, Batches, Windows, Late, Invalid, Restarts.
    """

    def __init__(self, clock: Clock, write: Callable[[str], None] | None, namespace: str = NAMESPACE) -> None:
        self._clock = clock
        self._namespace = namespace
        self._write = write
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._gauges: dict[tuple[str, str], tuple[float, dict[str, int]]] = {}
        self._next_s = clock.monotonic_s() + INTERVAL_S

    def count_batch(self, tallies: Mapping[TopicPartition, Tally]) -> None:
        """Count a batch of topics."""
        with self._lock:
            for topic in {topic for topic, _ in tallies}:
                self._counts["topic", topic]["Batches"] += 1
            for (topic, _), tally in tallies.items():
                counts = self._counts["topic", topic]
                counts["Records"] += tally.records
                counts["Strays"] += tally.strays
                counts["LeftInKafka"] += tally.left_in_kafka

    def count_restart(self, topics: Iterable[str]) -> None:
        """Count a restart of the topics' writer after an error."""
        with self._lock:
            for topic in topics:
                self._counts["topic", topic]["Restarts"] += 1

    def count_view_batch(self, view: str, *, records: int, windows: int, late: int, invalid: int) -> None:
        """Count a batch of a view."""
        counts = {"Batches": 1, "Records": records, "Windows": windows, "Late": late, "Invalid": invalid}
        with self._lock:
            self._counts["view", view].update(counts)

    def count_view_restart(self, view: str) -> None:
        """Count a restart of a view's writer after an error."""
        with self._lock:
            self._counts["view", view]["Restarts"] += 1

    def gauge(
        self,
        name: str,
        *,
        lag: int,
        age_ms: int | None,
        incomplete: int,
        skew_ms: int | None = None,
        parked: int | None = None,
    ) -> None:
        """Set the gauges of a topic or, without `parked`, of a view."""
        with self._lock:
            gauges = {"Lag": lag, "IncompletePartitions": incomplete, "ParkedPartitions": parked}
            gauges |= {"Age": age_ms, "ClockSkew": skew_ms}
            known = {gauge: value for gauge, value in gauges.items() if value is not None}
            kind = "view" if parked is None else "topic"
            self._gauges[kind, name] = self._clock.monotonic_s(), known

    @property
    def is_due(self) -> bool:
        """Whether the next metrics lines are due; False if metrics are off."""
        return self._write is not None and self._clock.monotonic_s() >= self._next_s

    def flush(self) -> None:
        """Write a line for each topic and view, and reset the counters."""
        self._next_s = self._clock.monotonic_s() + INTERVAL_S
        with self._lock:
            counts, self._counts = self._counts, defaultdict(Counter)
            oldest_s = self._clock.monotonic_s() - STALE_S
            self._gauges = {name: each for name, each in self._gauges.items() if each[0] >= oldest_s}
            gauges = {name: known for name, (_, known) in self._gauges.items()}
        if self._write is None:
            return
        for kind, name in sorted(counts.keys() | gauges.keys()):
            self._write(self._line(kind, name, counts[kind, name], gauges.get((kind, name), {})))

    def _line(self, kind: str, name: str, counts: Mapping[str, int], gauges: Mapping[str, int]) -> str:
        metrics = EphemeralMetrics(namespace=self._namespace)
        metrics.add_dimension(kind, name)
        for metric in _COUNTS[kind]:
            metrics.add_metric(metric, MetricUnit.Count, counts.get(metric, 0))
        for metric, value in gauges.items():
            unit = MetricUnit.Milliseconds if metric in _TIMES else MetricUnit.Count
            metrics.add_metric(metric, unit, value)
        return json.dumps(metrics.serialize_metric_set())
