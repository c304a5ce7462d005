"""Metrics of writing to Kafka: each request's records, and librdkafka's own statistics."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from keylane.errors import (
    ConnectionRejected,
    KeylaneError,
    ProduceFailed,
    Superseded,
    UnknownPartition,
    UnknownTopic,
)
from keylane.metrics.catalogue import BROKER, CLIENT, COUNTER, TOPIC, Metric
from keylane.metrics.meter import NO_METER, OTHER, Meter
from keylane.model.records import NewRecord, Position
from keylane.ports import AppendResult

DOWN = 1
STATES = {
    "INIT": 0,
    "DOWN": DOWN,
    "CONNECT": 2,
    "AUTH": 3,
    "APIVERSION_QUERY": 4,
    "AUTH_HANDSHAKE": 5,
    "UP": 6,
    "UPDATE": 7,
}
"""kprf's numbers of a broker's states; other states count as DOWN, as with kprf."""


class KafkaMetrics:
    """The metrics of one client. librdkafka's statistics are totals: their increases are reported.

    A topic gets its own label once a record is written to it: until then the topic may not exist.
    """

    def __init__(self, meter: Meter = NO_METER) -> None:
        self._meter = meter
        self._topics: set[str] = set()
        self._totals: dict[tuple[str, ...], float] = {}

    def reset_totals(self) -> None:
        """Expect the statistics of a new client, whose totals begin at 0."""
        self._totals.clear()

    def sent(self, records: Sequence[NewRecord], results: Sequence[AppendResult], taken_ms: float) -> None:
        """Count a request's records; `taken_ms` is the time until the last report."""
        written: dict[str, int] = {}
        failed: dict[tuple[str, str], int] = {}
        for record, result in zip(records, results, strict=True):
            topic = record.topic
            if isinstance(result, Position):
                written[topic] = written.get(topic, 0) + 1
            else:
                failed[topic, _code(result)] = failed.get((topic, _code(result)), 0) + 1
        for topic, count in written.items():
            self._topics.add(topic)
            self._meter.count("SentMessages", count, topic)
            self._meter.observe("SendDuration", taken_ms, topic, times=count)
        for (topic, code), count in failed.items():
            self._meter.count("KafkaErrors", count, topic if topic in self._topics else OTHER, code)

    def statistics(self, text: str) -> None:
        """Take librdkafka's statistics: the JSON text that its callback gets."""
        found = json.loads(text)
        self._report(CLIENT, found)
        for name, broker in found["brokers"].items():
            if broker["source"] in {"configured", "learned"}:
                numbers = {"state": STATES.get(broker["state"], DOWN), "rtt": broker["rtt"]["p99"]}
                self._report(BROKER, broker | numbers, name)
        for name, topic in found["topics"].items():
            if name in self._topics:
                means = {window: topic[window]["avg"] for window in ("batchsize", "batchcnt")}
                self._report(TOPIC, topic | means, name)

    def _report(
        self, table: Mapping[str, tuple[str, Metric]], found: Mapping[str, Any], *labels: str
    ) -> None:
        for field, (name, metric) in table.items():
            value = found[field]
            if metric.kind == COUNTER:
                before = self._totals.get((name, *labels), 0)
                self._totals[name, *labels] = value
                # The client's totals are sums over its brokers: they go back where one of them leaves.
                self._meter.count(name, max(0, value - before), *labels)
            else:
                self._meter.gauge(name, value, *labels)


def _code(error: KeylaneError) -> str:
    if isinstance(error, Superseded):
        error = error.reason
    if isinstance(error, UnknownTopic | UnknownPartition):
        return "UNKNOWN_TOPIC_OR_PARTITION"
    return error.code if isinstance(error, ConnectionRejected | ProduceFailed) else "REQUEST_TIMED_OUT"
