"""What the job counts and measures, by topic and view. `emf` and `openmetrics` say where it goes."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields

from keylane.metrics.catalogue import JOB
from keylane.model.kafka import TopicPartition
from keylane.ports import Clock
from keylane_spark.telemetry.tally import Tally

AGE = "Age"
STALE_S = 150.0
"""Gauges not set for this long are dropped: twice the longest heartbeat, and more.

Where others of their kind are set, their topic is gone. Where none is, the job cannot measure: `Age` stays
and grows, which alarms wait for.
"""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """The numbers of a topic, view or index, whose names are those of `keylane.metrics.catalogue.JOB`.

    `kind`: one of that table. `labels`: values of its metrics' labels. `totals`: of the counters, since the
    job started. `gauges`: as they were set last, but `Age`, which has grown since.
    """

    kind: str
    labels: tuple[str, ...]
    totals: Mapping[str, int]
    gauges: Mapping[str, int]


_NAMES = {
    kind: {metric.openmetrics.removeprefix(f"keylane_{kind}_"): name for name, metric in table.items()}
    for kind, table in JOB.items()
}
"""The names in the catalogue by those in OpenMetrics, without what all of a kind begin with."""
_OF_TALLIES = [each.name for each in fields(Tally) if each.name in _NAMES["topic"]]


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
        self._lock = threading.RLock()
        self._totals: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self._gauges: dict[tuple[str, ...], tuple[float, dict[str, int]]] = {}
        self._next_s = clock.monotonic_s() + (interval_s or 0)

    def count_batch(self, tallies: Mapping[TopicPartition, Tally]) -> None:
        """Count a batch of topics: the fields of tallies that the catalogue has."""
        with self._lock:
            for topic in {topic for topic, _ in tallies}:
                self.count("topic", topic, batches=1)
            for (topic, _), tally in tallies.items():
                self.count("topic", topic, **{name: getattr(tally, name) for name in _OF_TALLIES})

    def count(self, kind: str, name: str, **counts: int) -> None:
        """Add to counters of a topic or a view, which are called as in OpenMetrics: `restarts=1`."""
        with self._lock:
            self._totals[kind, name].update(_named(kind, counts))

    def gauge(self, kind: str, *labels: str, **values: int | None) -> None:
        """Set the gauges of a topic, a view or an index: `age_ms=7`. What is None is not known."""
        known = {name: value for name, value in values.items() if value is not None}
        with self._lock:
            self._gauges[kind, *labels] = self._clock.monotonic_s(), _named(kind, known)

    def keep(self, topics: Collection[str], views: Collection[str]) -> None:
        """Drop the gauges of all others: they are not served any more."""
        served = {"topic": topics, "view": views, "index": topics}
        with self._lock:
            self._gauges = {each: given for each, given in self._gauges.items() if each[1] in served[each[0]]}

    @property
    def is_due(self) -> bool:
        """Whether the gauges are due to be measured, and the series to be reported."""
        return self._interval_s is not None and self._clock.monotonic_s() >= self._next_s

    def flush_due(self) -> None:
        """Report the series if they are due, as they were measured last: nothing is served."""
        if self.is_due:
            self.flush()

    def flush(self) -> None:
        """Report the series, if anybody wants them."""
        self._next_s = self._clock.monotonic_s() + (self._interval_s or 0)
        if self._report is not None:
            self._report(self.series())

    def series(self) -> list[MetricSeries]:
        """Return the numbers of all topics, views and indexes, by kind and labels."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            last_s: dict[str, float] = {}
            for (kind, *_), (at_s, _) in self._gauges.items():
                last_s[kind] = max(at_s, last_s.get(kind, at_s))
            self._gauges = {
                each: given for each, given in self._gauges.items() if last_s[each[0]] - given[0] <= STALE_S
            }
            found = []
            for each in sorted(self._totals.keys() | self._gauges.keys()):
                totals, (kind, *labels) = dict(self._totals.get(each, {})), each
                _, measured = self._gauges.get(each, (now_s, {}))
                gauges = _grown(measured, now_s - last_s.get(kind, now_s))
                found.append(MetricSeries(kind, tuple(labels), totals, gauges))
            return found


def _grown(gauges: Mapping[str, int], unmeasured_s: float) -> Mapping[str, int]:
    """The gauges of a kind of which nothing has been measured for so long."""
    known = gauges.keys() & {AGE} if unmeasured_s > STALE_S else gauges.keys()
    return {name: gauges[name] + (round(unmeasured_s * 1000) if name == AGE else 0) for name in known}


def _named(kind: str, values: Mapping[str, int]) -> dict[str, int]:
    return {_NAMES[kind][name]: value for name, value in values.items()}
