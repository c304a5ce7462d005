"""The first records of a topic, and what they are alike in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from keylane_cli.survey.partitioner_guess import PartitionerGuess, guess_partitioner
from keylane_cli.survey.table_guess import has_change_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model.kafka import KafkaTopic, LogRecord

_FRAME = 5
"""Bytes before a value of a Schema Registry: zero, and the number of its schema."""


@dataclass(frozen=True, slots=True)
class TopicSample:
    """Some records of a topic, each with its partition.

    `record_count`: how many the topic has at most, where they were counted.
    """

    topic: KafkaTopic
    records: Sequence[tuple[int, LogRecord]]
    record_count: int = 0

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
    def has_schemas(self) -> bool:
        """Whether all values begin as those of a Schema Registry do, and there are some."""
        values = self.values
        return bool(values) and all(len(value) > _FRAME and value[0] == 0 for value in values)

    @property
    def has_events(self) -> bool:
        """Whether all values are change events in JSON, and there are some. What has a schema is not."""
        return not self.has_schemas and has_change_events(self.values)

    def guess_partitioner(self) -> PartitionerGuess:
        """Return which partitioner has placed the keys."""
        placed = ((partition, record.key) for partition, record in self.records)
        return guess_partitioner(placed, self.partition_count)
