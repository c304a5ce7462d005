"""The port `Log` over Kafka: each record has its own acknowledgement, and position or error."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from keylane import routing
from keylane.adapters.kafka.clients import RejectionListener, make, metadata, renewal
from keylane.adapters.kafka.errors import LOCAL_TIMED_OUT, LOCAL_UNKNOWN_TOPIC
from keylane.adapters.kafka.metrics import KafkaMetrics
from keylane.adapters.kafka.options import (
    BUILT_IN,
    EXPLICIT,
    RANDOM,
    ROUND_ROBIN,
    WAIT,
    ClientOptions,
    ProducerOptions,
    Security,
)
from keylane.adapters.kafka.shipment import Shipment
from keylane.errors import ConnectionRejected, PartitionMissing, UnknownTopic
from keylane.metrics.meter import NO_METER, Meter
from keylane.model.records import WHOLE_KEY, NewRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.ports import AppendResult, Deadline

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

_COUNTING = threading.Lock()
"""Producers of several clusters may work at the same time; the meter is for one thread."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the brokers (`bootstrap`: "host:port,host:port"), and how to write.

    `partition_by`: topic -> what of a key decides on its partition, where that isn't the whole key.
    `partitioners`: topic -> one of PARTITIONERS, where that isn't `partitioner`.
    """

    bootstrap: str
    partitioner: str = "murmur2"
    value_limit_bytes: int = 1_048_576
    timeout_ms: int = 5_000
    partition_by: Mapping[str, str] = field(default_factory=dict)
    partitioners: Mapping[str, str] = field(default_factory=dict)
    security: Security = field(default_factory=Security)
    client: ClientOptions = field(default_factory=ClientOptions)
    producer: ProducerOptions = field(default_factory=ProducerOptions)

    def configuration(self) -> dict[str, Any]:
        """As librdkafka takes it, without what `security` says."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "keylane-produce",
            "partitioner": BUILT_IN[self.partitioner],
            "socket.nagle.disable": True,
            # A connection that died while the function was frozen is given up in time for another.
            "socket.timeout.ms": max(2_000, self.timeout_ms // 2),
            "message.max.bytes": self.value_limit_bytes + OVERHEAD_BYTES,
            "message.timeout.ms": self.timeout_ms,
            "request.timeout.ms": self.timeout_ms,
            "allow.auto.create.topics": False,
            # How long an unknown topic is waited for: creation is not this function's doing.
            "topic.metadata.propagation.max.ms": 0,
            "topic.metadata.refresh.interval.ms": GROWTH_NOTICED_MS,
            # A broker that comes back is found within a fraction of a second.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 20,
            **self.client.configuration(),
            **self.producer.configuration(),
        }


class KafkaProducer:
    """One request at a time: a record that ran out of time is purged, and so would be another's."""

    def __init__(
        self,
        settings: KafkaSettings,
        renewed: Callable[[], KafkaSettings] | None = None,
        meter: Meter = NO_METER,
    ) -> None:
        """`renewed` gives the settings with secrets as they are now: asked when a broker refuses us."""
        self._settings = settings
        self._renewed = renewed
        self._meter = meter
        self._producer: Producer | None = None
        self._entrance = RejectionListener(settings.security)
        self._counts: dict[str, tuple[int, float]] = {}
        self._turns: dict[str, int] = {}
        self._strangers: set[str] = set()
        self._metrics = KafkaMetrics(meter)

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[AppendResult]:
        """As `Log.append_all` has it. Never blocks past the deadline."""
        begun_s = deadline.clock.monotonic_s()
        queue_full = self._settings.producer.queue_full
        shipment = Shipment(records, self._partition, deadline, waits=queue_full == WAIT)
        for group in shipment.groups():
            was_in = self._producer is not None
            topic = records[group[0]].topic
            self._send(shipment, group, topic, deadline)
            left = shipment.refused(group)
            if left and (self._renew() or was_in):
                # Another password since, or a token that ended while the function was frozen.
                self._producer = None
                self._send(shipment, left, topic, deadline)
            if shipment.has_failed_for_good or self._entrance.refusal is not None:
                self._producer = None
        outcomes = shipment.outcomes()
        with _COUNTING:
            self._metrics.sent(records, outcomes, (deadline.clock.monotonic_s() - begun_s) * 1000)
            self._meter.gauge("QueueSize", len(self._producer) if self._producer is not None else 0)
        if failed_topics := shipment.failed_topics():
            for topic in failed_topics:
                self._counts.pop(topic, None)
            self._strangers |= {outcome.topic for outcome in outcomes if isinstance(outcome, UnknownTopic)}
            if len(self._strangers) > STRANGERS_LIMIT:
                self.close()
        return outcomes

    def _made(self) -> Producer:
        self._metrics.begin_anew()
        self._entrance = RejectionListener(self._settings.security)
        statistics = {"stats_cb": self._count_statistics, "statistics.interval.ms": STATISTICS_MS}
        configuration = self._settings.configuration() | (statistics if self._meter.is_on else {})
        return make(Producer, configuration, self._settings.security, self._entrance)

    def _count_statistics(self, text: str) -> None:
        with _COUNTING:
            self._metrics.statistics(text)

    def close(self) -> None:
        """Forget the client; the next request makes another one."""
        self._producer = None
        self._strangers.clear()

    def _send(self, shipment: Shipment, group: Sequence[int], topic: str, deadline: Deadline) -> None:
        is_new = self._producer is None
        if self._producer is None:
            self._producer = self._made()
            if self._settings.producer.idempotence:
                _meet(self._producer, topic, deadline, self._entrance)
        shipment.send(self._producer, group, self._entrance, is_new=is_new)

    def _renew(self) -> bool:
        """Take the secrets as they are now; whether they are others than those that were refused."""
        before = self._settings.security
        if self._renewed is not None:
            self._settings = renewal(self._renewed, self._settings)
        return self._settings.security != before

    def _partition(self, producer: Producer, record: NewRecord, deadline: Deadline) -> int:
        """The number, or ANY_PARTITION: librdkafka's own partitioner looks at whole keys, of all topics."""
        if record.partition is not None:
            return record.partition
        topic, settings = record.topic, self._settings
        partitioner = settings.partitioners.get(topic, settings.partitioner)
        partition_by = settings.partition_by.get(topic, WHOLE_KEY)
        if partitioner == EXPLICIT:
            raise PartitionMissing(topic)
        if partitioner == ROUND_ROBIN:
            self._turns[topic] = self._turns.get(topic, -1) + 1
            return self._turns[topic] % self._count(producer, topic, deadline)
        if partitioner == RANDOM:
            return random.randrange(self._count(producer, topic, deadline))  # noqa: S311 (no secret)
        if record.key is None or (partitioner == settings.partitioner and partition_by == WHOLE_KEY):
            return ANY_PARTITION
        part = routing.partition_key(record.key, partition_by)
        return routing.partition_for(part, self._count(producer, topic, deadline), partitioner)

    def _count(self, producer: Producer, topic: str, deadline: Deadline) -> int:
        count, known_until_s = self._counts.get(topic, (0, 0.0))
        now_s = deadline.clock.monotonic_s()
        if not count or now_s >= known_until_s:
            count = _partition_count(producer, topic, deadline, self._entrance)
            self._counts[topic] = count, now_s + GROWTH_NOTICED_MS / 1000
        return count


def _meet(producer: Producer, topic: str, deadline: Deadline, entrance: RejectionListener) -> None:
    """Have the client ask for the id that idempotence needs: by itself it looks for a broker each 500 ms.

    It looks whenever a broker has told of the cluster, too: with the first answer it drops the connection by
    which that came, the second one comes by one that stays.
    """
    with suppress(KafkaException, ConnectionRejected):
        for _ in range(2):
            metadata(producer, topic, deadline, entrance)


def _partition_count(producer: Producer, topic: str, deadline: Deadline, entrance: RejectionListener) -> int:
    if not deadline.remaining_s:
        raise KafkaException(KafkaError(LOCAL_TIMED_OUT))
    found = metadata(producer, topic, deadline, entrance).topics[topic]
    if found.error is not None or not found.partitions:
        raise KafkaException(found.error or KafkaError(LOCAL_UNKNOWN_TOPIC))
    return len(found.partitions)
