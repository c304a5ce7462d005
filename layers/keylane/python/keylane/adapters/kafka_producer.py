"""The port `Log` over Kafka: each record has its own acknowledgement, and position or error."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from keylane import routing
from keylane.adapters.kafka_errors import LOCAL_TIMED_OUT, LOCAL_UNKNOWN_TOPIC
from keylane.adapters.kafka_measures import KafkaMeasures
from keylane.adapters.kafka_shipment import Shipment
from keylane.errors import UnknownTopic
from keylane.metrics import METER
from keylane.model import NewRecord, Position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane.ports import Deadline, Outcome

PARTITIONERS = {"murmur2": "murmur2_random", "crc32": "consistent_random", "fnv1a": "fnv1a_random"}
"""Keylane's name of a partitioner -> librdkafka's. Its own default is CRC32, Kafka's is murmur2."""

GROWTH_NOTICED_MS = 10_000
"""A topic that grows is noticed within this. At librdkafka's 5 minutes its writers disagree so long."""

OVERHEAD_BYTES = 128 * 1024
"""What a request may have beside its value: a key of 64 KiB, and the batch around both."""

STRANGERS_LIMIT = 1_000
"""Names of topics that Kafka does not have: the client keeps each for good (3 KB), and asks for all anew."""

STATISTICS_MS = 10_000
"""How often the client sums up its statistics. They are taken by a request: nobody is awake between two."""

ANY_PARTITION = -1
"""librdkafka chooses, by its own partitioner (RD_KAFKA_PARTITION_UA)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the brokers (`bootstrap`: "host:port,host:port"), and how to write.

    `partition_by`: topic -> what of a key decides on its partition, where that isn't the whole key.
    """

    bootstrap: str
    partitioner: str = "murmur2"
    value_limit_bytes: int = 1_048_576
    timeout_ms: int = 5_000
    partition_by: Mapping[str, str] = field(default_factory=dict)


class KafkaProducer:
    """One request at a time: a record that ran out of time is purged, and so would be another's."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer: Producer | None = None
        self._counts: dict[str, tuple[int, float]] = {}
        self._strangers: set[str] = set()
        self._measures = KafkaMeasures()

    def append(self, topic: str, key: bytes, value: bytes | None, deadline: Deadline) -> Position:
        """As `Log.append` has it. Never blocks past the deadline."""
        [outcome] = self.append_all([NewRecord(topic, key, value)], deadline)
        if isinstance(outcome, Position):
            return outcome
        raise outcome

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[Outcome]:
        """As `Log.append_all` has it. Never blocks past the deadline."""
        begun_s = deadline.clock.monotonic_s()
        shipment = Shipment(records, self._partition, deadline)
        for group in shipment.groups():
            if self._producer is None:
                self._producer = self._made()
            shipment.send(self._producer, group)
            if shipment.has_failed_for_good:
                self._producer = None
        for topic in shipment.failed_topics():
            self._counts.pop(topic, None)
        outcomes = shipment.outcomes()
        self._measures.sent(records, outcomes, (deadline.clock.monotonic_s() - begun_s) * 1000)
        METER.gauge("QueueSize", len(self._producer) if self._producer is not None else 0)
        self._strangers |= {outcome.topic for outcome in outcomes if isinstance(outcome, UnknownTopic)}
        if len(self._strangers) > STRANGERS_LIMIT:
            self.close()
        return outcomes

    def _made(self) -> Producer:
        self._measures.begin_anew()
        statistics = {"stats_cb": self._measures.statistics, "statistics.interval.ms": STATISTICS_MS}
        return Producer(_configuration(self._settings) | (statistics if METER.is_on else {}), logger=_log)

    def close(self) -> None:
        """Forget the client; the next request makes another one."""
        self._producer = None
        self._strangers.clear()

    def _partition(self, producer: Producer, record: NewRecord, deadline: Deadline) -> int:
        """Where a part of the key decides: librdkafka's own partitioners look at the whole key alone."""
        if record.partition is not None:
            return record.partition
        partition_by = self._settings.partition_by.get(record.topic)
        if partition_by is None or record.key is None:
            return ANY_PARTITION
        count, known_until_s = self._counts.get(record.topic, (0, 0.0))
        now_s = deadline.clock.monotonic_s()
        if not count or now_s >= known_until_s:
            count = _partition_count(producer, record.topic, deadline)
            self._counts[record.topic] = count, now_s + GROWTH_NOTICED_MS / 1000
        part = routing.partition_key(record.key, partition_by)
        return routing.partition_for(part, count, self._settings.partitioner)


def _partition_count(producer: Producer, topic: str, deadline: Deadline) -> int:
    if not deadline.remaining_s:
        raise KafkaException(KafkaError(LOCAL_TIMED_OUT))
    found = producer.list_topics(topic, timeout=deadline.remaining_s).topics[topic]
    if found.error is not None or not found.partitions:
        raise KafkaException(found.error or KafkaError(LOCAL_UNKNOWN_TOPIC))
    return len(found.partitions)


def _configuration(settings: KafkaSettings) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": "keylane-produce",
        "partitioner": PARTITIONERS[settings.partitioner],
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 0,
        "socket.nagle.disable": True,
        "message.max.bytes": settings.value_limit_bytes + OVERHEAD_BYTES,
        "message.timeout.ms": settings.timeout_ms,
        "request.timeout.ms": settings.timeout_ms,
        "allow.auto.create.topics": False,
        # How long an unknown topic is waited for: creation is not this function's doing.
        "topic.metadata.propagation.max.ms": 0,
        "topic.metadata.refresh.interval.ms": GROWTH_NOTICED_MS,
        # A broker that comes back is found within a fraction of a second.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 20,
    }
