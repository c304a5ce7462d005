"""The port `Log` over Kafka: one record, one acknowledgement, one position."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from keylane.adapters.kafka_errors import LOCAL_TIMED_OUT, LOCAL_UNKNOWN_TOPIC, translate_kafka_errors
from keylane.errors import LogUnavailable
from keylane.model import Position

if TYPE_CHECKING:
    from keylane.ports import Deadline

PARTITIONERS = {"murmur2": "murmur2_random", "crc32": "consistent_random", "fnv1a": "fnv1a_random"}
"""Keylane's name of a partitioner -> librdkafka's. Its own default is CRC32, Kafka's is murmur2."""

OVERHEAD_BYTES = 128 * 1024
"""What a request may have beside its value: a key of 64 KiB, and the batch around both."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the brokers (`bootstrap`: "host:port,host:port"), and how to write."""

    bootstrap: str
    partitioner: str = "murmur2"
    value_limit_bytes: int = 1_048_576
    timeout_ms: int = 5_000


class KafkaProducer:
    """One request at a time: a record that ran out of time is purged, and so would be another's."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer: Producer | None = None

    def append(self, topic: str, key: bytes, value: bytes | None, deadline: Deadline) -> Position:
        """As `Log.append` has it. Never blocks past the deadline."""
        with translate_kafka_errors(topic):
            if self._producer is None:
                self._producer = Producer(_configuration(self._settings), logger=_log)
            report = _send(self._producer, topic, key, value, deadline)
            if report is None:
                raise KafkaException(KafkaError(LOCAL_TIMED_OUT))
            error, message = report
            if error is not None:
                if error.fatal():
                    self._producer = None
                raise KafkaException(error)
        if message.offset() < 0:
            raise LogUnavailable("the record was written, but the broker did not tell where")
        return Position(message.partition(), message.offset())

    def close(self) -> None:
        """Forget the client; the next request makes another one."""
        self._producer = None


Report = tuple[KafkaError | None, Any]
"""What librdkafka says of a record: an error, or none and the message with its offset."""


def _send(
    producer: Producer, topic: str, key: bytes, value: bytes | None, deadline: Deadline
) -> Report | None:
    """Hand the record over and wait for the report on it; None where even purging brought none."""
    reports: list[Report] = []

    def hand_over() -> None:
        producer.produce(topic, value, key, on_delivery=lambda *report: reports.append(report))

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
        # A topic that grows is noticed within this. At the default of 5 minutes its writers disagree so long.
        "topic.metadata.refresh.interval.ms": 10_000,
        # A broker that comes back is found within a fraction of a second.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 20,
    }
