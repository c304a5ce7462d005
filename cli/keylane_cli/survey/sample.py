"""The first records of a topic, and what they are alike in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from keylane.routing import partition_for, partition_key
from keylane_cli.survey.key_memory import bytes_of_key
from keylane_cli.survey.partitioner_guess import FEW_KEYS, PartitionerGuess, guess_partitioner
from keylane_cli.survey.table_guess import has_change_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model.kafka import KafkaTopic, LogRecord

_FRAME = 5
"""Bytes before a value of a Schema Registry: zero, and the number of its schema."""


@dataclass(frozen=True, slots=True)
class TopicSample:
    """Some records of a topic, each with its partition.

    `record_count`: how many the topic has at most, where they were counted. `decoded`: the JSON of its first
    values, where they are of a Schema Registry; empty where that did not answer.
    """

    topic: KafkaTopic
    records: Sequence[tuple[int, LogRecord]]
    record_count: int = 0
    decoded: Sequence[bytes] | None = None

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions."""
        return len(self.topic.partitions)

    @property
    def keyed(self) -> Self:
        """The records that have a key."""
        return replace(self, records=[each for each in self.records if each[1].key is not None])

    @property
    def keys(self) -> set[bytes]:
        """The keys, each once."""
        return {record.key for _, record in self.records if record.key is not None}

    @property
    def values(self) -> list[bytes]:
        """The values, without those of tombstones."""
        return [record.value for _, record in self.records if record.value is not None]

    @property
    def documents(self) -> Sequence[bytes]:
        """The values as readers see them."""
        return self.values if self.decoded is None else self.decoded

    @property
    def has_schemas(self) -> bool:
        """Whether all values begin as those of a Schema Registry do, and there are some."""
        values = self.values
        return bool(values) and all(len(value) > _FRAME and value[0] == 0 for value in values)

    @property
    def has_events(self) -> bool:
        """Whether all values are change events, as far as they are known, and there are some."""
        return has_change_events(self.documents)

    def count_strays(self, partitioner: str, partition_by: str) -> int:
        """Return how many records are not where a producer with this partitioner puts them; 0 of few keys."""
        placed = [(partition, record.key) for partition, record in self.records if record.key]
        if len({key for _, key in placed}) < FEW_KEYS:
            return 0
        expected = (
            partition_for(partition_key(key, partition_by), self.partition_count, partitioner)
            for _, key in placed
        )
        return sum(own != partition for own, (partition, _) in zip(expected, placed, strict=True))

    @property
    def memory_bytes(self) -> float:
        """What the topic takes of Redis at most, if it was counted: each record may have a key of its own."""
        return self.record_count * self.bytes_per_key if self.records else 0

    @property
    def bytes_per_key(self) -> float:
        """What a key takes of Redis with its value, on average of the records, at least one."""
        key_bytes = sum(len(record.key or b"") for _, record in self.records) / len(self.records)
        value_bytes = sum(map(len, self.values)) / len(self.records)
        return bytes_of_key(len(self.topic.name), key_bytes, value_bytes, indexed=False)

    def guess_partitioner(self) -> PartitionerGuess:
        """Return which partitioner has placed the keys."""
        placed = ((partition, record.key) for partition, record in self.records)
        return guess_partitioner(placed, self.partition_count)
