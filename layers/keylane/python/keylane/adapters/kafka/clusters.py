"""The ports Log, Metadata and LogReader over several clusters: each topic has one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from keylane.errors import KeylaneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model.clusters import Clusters
    from keylane.model.kafka import At, Batch, KafkaCluster, KafkaTopic, OffsetFound, Wanted
    from keylane.model.records import NewRecord
    from keylane.ports import AppendResult, Deadline, Log, LogReader, Metadata


class ClusteredLog:
    """As `Log` has it; the records of several clusters are written at the same time."""

    def __init__(self, logs: Clusters[Log]) -> None:
        self._logs = logs

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[AppendResult]:
        """As `Log.append_all` has it. A cluster that is not set up as it should be fails its own records."""
        parts: dict[str, list[int]] = {}
        for index, record in enumerate(records):
            parts.setdefault(self._logs.name_of(record.topic), []).append(index)
        logs = self._logs.by_name()
        if len(parts) == 1:
            return logs[next(iter(parts))].append_all(records, deadline)

        def append(name: str) -> Sequence[AppendResult]:
            own = [records[index] for index in parts[name]]
            try:
                return logs[name].append_all(own, deadline)
            except KeylaneError as error:
                return [error] * len(own)

        fates: dict[int, AppendResult] = {}
        with ThreadPoolExecutor(len(parts) or 1) as pool:
            for name, outcomes in zip(parts, pool.map(append, parts), strict=True):
                fates.update(zip(parts[name], outcomes, strict=True))
        return [fates[index] for index in range(len(records))]


class ClusteredMetadata:
    """As `Metadata` has it; `cluster` is the default one."""

    def __init__(self, metadata: Clusters[Metadata]) -> None:
        self._metadata = metadata

    def cluster(self, deadline: Deadline) -> KafkaCluster:
        """As `Metadata.cluster` has it."""
        return self._metadata.default.cluster(deadline)

    def topics(self, deadline: Deadline) -> dict[str, int]:
        """As `Metadata.topics` has it: of each cluster those that are its own."""
        return {
            topic: count
            for name, metadata in self._metadata.by_name().items()
            for topic, count in metadata.topics(deadline).items()
            if self._metadata.name_of(topic) == name
        }

    def topic(self, topic: str, deadline: Deadline) -> KafkaTopic:
        """As `Metadata.topic` has it."""
        return self._metadata.of(topic).topic(topic, deadline)


class ClusteredReader:
    """As `LogReader` has it."""

    def __init__(self, readers: Clusters[LogReader]) -> None:
        self._readers = readers

    def offsets(
        self, topic: str, partition: int, ats: Sequence[At], isolation: str, deadline: Deadline
    ) -> list[OffsetFound | None]:
        """As `LogReader.offsets` has it."""
        return self._readers.of(topic).offsets(topic, partition, ats, isolation, deadline)

    def read(self, wanted: Wanted, deadline: Deadline) -> Batch:
        """As `LogReader.read` has it."""
        return self._readers.of(wanted.topic).read(wanted, deadline)
