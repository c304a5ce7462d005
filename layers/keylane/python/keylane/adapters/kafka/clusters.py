"""The ports Log, Metadata and LogReader over several clusters: each topic has one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from keylane.errors import KeylaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from keylane.explore.ports import DetailedMetadata
    from keylane.model.clusters import Clusters
    from keylane.model.kafka import (
        ApiVersion,
        At,
        Broker,
        KafkaCluster,
        KafkaTopic,
        LogBatch,
        LogRange,
        OffsetFound,
    )
    from keylane.model.records import NewRecord
    from keylane.ports import AppendResult, Deadline, Log, LogReader

    Results: TypeAlias = list[AppendResult]


class ClusteredLog:
    """See `ports.Log`; the records of several clusters are written at the same time."""

    def __init__(
        self, logs: Clusters[Log], call_all: Callable[[list[Callable[[], Results]]], list[Results]]
    ) -> None:
        """`call_all` makes calls at the same time, and returns what they return."""
        self._logs = logs
        self._call_all = call_all

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[AppendResult]:
        """See `ports.Log`. If a cluster's settings are wrong, only its own records fail."""
        indices: dict[str, list[int]] = {}
        for index, record in enumerate(records):
            indices.setdefault(self._logs.name_of(record.topic), []).append(index)
        logs = self._logs.by_name()
        if len(indices) == 1:
            return logs[next(iter(indices))].append_all(records, deadline)
        results: dict[int, AppendResult] = {}
        calls: list[Callable[[], Results]] = [
            partial(_append, logs[name], [records[index] for index in own], deadline)
            for name, own in indices.items()
        ]
        for own, found in zip(indices.values(), self._call_all(calls), strict=True):
            results.update(zip(own, found, strict=True))
        return [results[index] for index in range(len(records))]


def _append(log: Log, records: Sequence[NewRecord], deadline: Deadline) -> list[AppendResult]:
    try:
        return log.append_all(records, deadline)
    except KeylaneError as error:
        return [error] * len(records)


class ClusteredMetadata:
    """See `ports.Metadata` and `ports.TopicDetails`; `cluster` is the default one."""

    def __init__(self, metadata: Clusters[DetailedMetadata]) -> None:
        self._metadata = metadata

    def cluster(self, deadline: Deadline) -> KafkaCluster:
        """See `ports.Metadata`."""
        return self._metadata.default.cluster(deadline)

    def api_versions(self, broker: Broker, deadline: Deadline) -> tuple[ApiVersion, ...]:
        """See `ports.Metadata`."""
        return self._metadata.default.api_versions(broker, deadline)

    def topics(self, deadline: Deadline) -> dict[str, int]:
        """See `ports.Metadata`: of each cluster the topics that are assigned to it."""
        return {
            topic: count
            for name, metadata in self._metadata.by_name().items()
            for topic, count in metadata.topics(deadline).items()
            if self._metadata.name_of(topic) == name
        }

    def topic(self, topic: str, deadline: Deadline) -> KafkaTopic:
        """See `ports.Metadata`."""
        return self._metadata.of(topic).topic(topic, deadline)

    def describe(self, topics: Sequence[str], deadline: Deadline) -> dict[str, KafkaTopic]:
        """See `ports.TopicDetails`."""
        found: dict[str, KafkaTopic] = {}
        for name, metadata in self._metadata.by_name().items():
            own = [topic for topic in topics if self._metadata.name_of(topic) == name]
            found |= metadata.describe(own, deadline)
        return found

    def settings(self, topic: str, deadline: Deadline) -> dict[str, str | None]:
        """See `ports.TopicDetails`."""
        return self._metadata.of(topic).settings(topic, deadline)


class ClusteredReader:
    """See `ports.LogReader`."""

    def __init__(self, readers: Clusters[LogReader]) -> None:
        self._readers = readers

    def offsets(
        self, topic: str, partition: int, ats: Sequence[At], isolation: str, deadline: Deadline
    ) -> list[OffsetFound | None]:
        """See `ports.LogReader`."""
        return self._readers.of(topic).offsets(topic, partition, ats, isolation, deadline)

    def first_offset(self, topic: str, partition: int, deadline: Deadline) -> int:
        """See `ports.LogReader`."""
        return self._readers.of(topic).first_offset(topic, partition, deadline)

    def read(self, wanted: Sequence[LogRange], max_bytes: int, deadline: Deadline) -> list[LogBatch]:
        """See `ports.LogReader`."""
        return self._readers.of(wanted[0].topic).read(wanted, max_bytes, deadline)
