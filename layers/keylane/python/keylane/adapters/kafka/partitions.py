"""The partition of each record: its own, or the one that its topic's partitioner chooses."""

import random
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from keylane import routing
from keylane.adapters.kafka.clients import RejectionListener, fetch_metadata
from keylane.adapters.kafka.errors import LOCAL_TIMED_OUT, LOCAL_UNKNOWN_TOPIC
from keylane.adapters.kafka.options import EXPLICIT, GROWTH_NOTICED_MS, RANDOM, ROUND_ROBIN, KafkaSettings
from keylane.errors import ConnectionRejected, KeylaneError, PartitionMissing
from keylane.model.records import WHOLE_KEY, NewRecord
from keylane.ports import Deadline

Resolved: TypeAlias = int | KafkaError | KeylaneError

ANY_PARTITION = -1
"""librdkafka chooses the partition, by its own partitioner (RD_KAFKA_PARTITION_UA)."""


class PartitionResolver:
    """Resolves the partitions of one producer's records; remembers its topics' partition counts."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self._counts: dict[str, tuple[int, float]] = {}
        self._turns: dict[str, int] = {}

    def resolve(
        self, client: Producer, records: Sequence[NewRecord], deadline: Deadline, listener: RejectionListener
    ) -> list[Resolved]:
        """The partition of each record, ANY_PARTITION if librdkafka chooses it, or why there is none.

        Asks the brokers for the partition counts of topics whose partitioner librdkafka doesn't have.
        """
        resolved: list[Resolved] = []
        failures: dict[str, Resolved] = {}
        for record in records:
            if record.partition is not None:
                resolved.append(record.partition)
                continue
            failure = failures.get(record.topic)
            if failure is None:
                try:
                    resolved.append(self._resolve(client, record, deadline, listener))
                    continue
                except KafkaException as error:
                    failure = failures[record.topic] = error.args[0]
                except (ConnectionRejected, PartitionMissing) as error:
                    failure = failures[record.topic] = error
            resolved.append(failure)
        return resolved

    def forget(self, topics: Iterable[str]) -> None:
        """Look up these topics again when their next record is resolved."""
        for topic in topics:
            self._counts.pop(topic, None)

    def _resolve(
        self, client: Producer, record: NewRecord, deadline: Deadline, listener: RejectionListener
    ) -> int:
        topic, settings = record.topic, self.settings
        partitioner = settings.partitioners.get(topic, settings.partitioner)
        partition_by = settings.partition_by.get(topic, WHOLE_KEY)
        if partitioner == EXPLICIT:
            raise PartitionMissing(topic)
        if partitioner == ROUND_ROBIN:
            count = self._count(client, topic, deadline, listener)  # raises for a topic that is none
            self._turns[topic] = self._turns.get(topic, -1) + 1
            return self._turns[topic] % count
        if partitioner == RANDOM:
            return random.randrange(self._count(client, topic, deadline, listener))  # noqa: S311 (no secret)
        if record.key is None or (partitioner == settings.partitioner and partition_by == WHOLE_KEY):
            return ANY_PARTITION
        part = routing.partition_key(record.key, partition_by)
        return routing.partition_for(part, self._count(client, topic, deadline, listener), partitioner)

    def _count(self, client: Producer, topic: str, deadline: Deadline, listener: RejectionListener) -> int:
        """The topic's partition count. Raises KafkaException, ConnectionRejected."""
        count, known_until_s = self._counts.get(topic, (0, 0.0))
        now_s = deadline.clock.monotonic_s()
        if count and now_s < known_until_s:
            return count
        if not deadline.remaining_s:
            raise KafkaException(KafkaError(LOCAL_TIMED_OUT))
        found = fetch_metadata(client, topic, deadline, listener).topics[topic]
        if found.error is not None or not found.partitions:
            raise KafkaException(found.error or KafkaError(LOCAL_UNKNOWN_TOPIC))
        self._counts[topic] = len(found.partitions), now_s + GROWTH_NOTICED_MS / 1000
        return len(found.partitions)
