"""The port `Log` over Kafka: one record, one acknowledgement, one position."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from keylane import routing
from keylane.adapters.kafka_errors import LOCAL_TIMED_OUT, LOCAL_UNKNOWN_TOPIC, translate_kafka_errors
from keylane.errors import LogUnavailable
from keylane.model import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.ports import Deadline

PARTITIONERS = {"murmur2": "murmur2_random", "crc32": "consistent_random", "fnv1a": "fnv1a_random"}
"""Keylane's name of a partitioner -> librdkafka's. Its own default is CRC32, Kafka's is murmur2."""

GROWTH_NOTICED_MS = 10_000
"""A topic that grows is noticed within this. At librdkafka's 5 minutes its writers disagree so long."""

OVERHEAD_BYTES = 128 * 1024
"""What a request may have beside its value: a key of 64 KiB, and the batch around both."""

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

    def append(self, topic: str, key: bytes, value: bytes | None, deadline: Deadline) -> Position:
        """As `Log.append` has it. Never blocks past the deadline."""
        with translate_kafka_errors(topic):
            if self._producer is None:
                self._producer = Producer(_configuration(self._settings), logger=_log)
            partition = self._partition(self._producer, topic, key, deadline)
            report = _send(self._producer, topic, key, value, partition=partition, deadline=deadline)
            if report is None:
                raise KafkaException(KafkaError(LOCAL_TIMED_OUT))
            error, message = report
            if error is not None:
                self._counts.pop(topic, None)
                if error.fatal():
                    self._producer = None
                raise KafkaException(error)
        if message.offset() < 0:
            raise LogUnavailable("the record was written, but the broker did not tell where")
        return Position(message.partition(), message.offset())

    def close(self) -> None:
        """Forget the client; the next request makes another one."""
        self._producer = None

    def _partition(self, producer: Producer, topic: str, key: bytes, deadline: Deadline) -> int:
        """Where a part of the key decides: librdkafka's own partitioners look at the whole key alone."""
        partition_by = self._settings.partition_by.get(topic)
        if partition_by is None:
            return ANY_PARTITION
        count, known_until_s = self._counts.get(topic, (0, 0.0))
        now_s = deadline.clock.monotonic_s()
        if not count or now_s >= known_until_s:
            count = _partition_count(producer, topic, deadline)
            self._counts[topic] = count, now_s + GROWTH_NOTICED_MS / 1000
        part = routing.partition_key(key, partition_by)
        return routing.partition_for(part, count, self._settings.partitioner)


def _partition_count(producer: Producer, topic: str, deadline: Deadline) -> int:
    if not deadline.remaining_s:
        raise KafkaException(KafkaError(LOCAL_TIMED_OUT))
    found = producer.list_topics(topic, timeout=deadline.remaining_s).topics[topic]
    if found.error is not None or not found.partitions:
        raise KafkaException(found.error or KafkaError(LOCAL_UNKNOWN_TOPIC))
    return len(found.partitions)


Report = tuple[KafkaError | None, Any]
"""What librdkafka says of a record: an error, or none and the message with its offset."""


def _send(
    producer: Producer, topic: str, key: bytes, value: bytes | None, *, partition: int, deadline: Deadline
) -> Report | None:
    """Hand the record over and wait for the report on it; None where even purging brought none."""
    reports: list[Report] = []

    def hand_over() -> None:
        producer.produce(topic, value, key, partition, on_delivery=lambda *report: reports.append(report))

    try:
        hand_over()
    except KafkaException as error:
        if error.args[0].code() != LOCAL_UNKNOWN_TOPIC:
            raise
        # The client takes a topic that was unknown once for unknown ever after: it may be there by now.
        producer.list_topics(topic, timeout=deadline.remaining_s)
        hand_over()
    while not reports and deadline.remaining_s:
        producer.poll(deadline.remaining_s)
    if not reports:
        # Left in the queue it would be sent when the broker is back, long after the caller was told that it
        # failed, and maybe after newer writes. What was on the wire stays uncertain.
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        producer.poll(0)
    return reports[0] if reports else None


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
