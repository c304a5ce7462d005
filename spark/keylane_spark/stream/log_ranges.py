"""`reader = "direct"`: the job reads a batch's ranges of offsets from Kafka itself, and writes their rows.

Spark plans the batch's offsets, as ever; its JVM reads none of its rows. The driver reads small batches, and
tasks the larger ones. A range is claimed only after the fetched batches have passed its end: in the driver
its read ends nowhere else, and the driver takes no batch of tasks for written unless they have reported the
end of every range.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from keylane.errors import LogUnavailable
from keylane_spark.adapters.log_reader import LogRangeReader, PlannedRange
from keylane_spark.engine.fetch_options import portable
from keylane_spark.stream.tasks import TALLY_SCHEMA, PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from keylane.adapters.kafka.options import Connection
    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.adapters.lane import OffsetRange
    from keylane_spark.adapters.log_reader import Fetched
    from keylane_spark.columns.record_batches import Rows
    from keylane_spark.context import JobContext
    from keylane_spark.stream.batch_writer import BatchWriter, RowWriter
    from keylane_spark.stream.openings import Opening, WriterSpec

_TASKS_PER_CORE = 2
"""On this machine: such a task computes most of the time, and each worker costs memory."""
_AT_ONCE = 16
"""So many partitions are asked for by the driver before the first answer is waited for."""


@functools.cache
def _reader(connection: Connection) -> LogRangeReader:
    """One for each worker process, which runs one task at a time."""
    return _new_reader(connection)


def _new_reader(connection: Connection) -> LogRangeReader:
    # Its errors come with ours; kafka-python's own lines name each attempt to connect.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return LogRangeReader(connection)


@dataclass(frozen=True, slots=True)
class RangeWriter(PartitionWriter):
    """A function for `mapInArrow` over the numbers of `groups`: reads and writes the ranges of each."""

    connection: Connection
    groups: Sequence[Sequence[PlannedRange]]
    committed: bool
    headers: bool

    def write_rows(self, batches: Iterator[pa.RecordBatch], writer: BatchWriter) -> None:
        """Read and write the ranges of the groups whose numbers come."""
        reader = _reader(self.connection)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for planned in self.groups[number]:
                    write_range(reader, planned, writer, committed=self.committed, with_headers=self.headers)
                    writer.note_range_read((planned.topic, planned.partition))


@dataclass(slots=True)
class RangePlan:
    """What all batches of a query have in common: what is read, from which topics and leaders."""

    connection: Connection
    leader_epochs: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    committed: bool
    headers: bool
    _reader: LogRangeReader = field(init=False)
    """The driver's. Each query has its own: two of them run while a generation is built."""

    def __post_init__(self) -> None:
        self._reader = _new_reader(self.connection)

    @classmethod
    def of(cls, context: JobContext, opening: Opening, headers: bool) -> RangePlan:
        """The plan of a query. Raises SettingsError."""
        committed = context.config.job.isolation == "read_committed"
        connection = portable(context.broker.connection)
        return cls(connection, opening.leader_epochs, opening.topic_ids, committed, headers)

    def write_here(
        self,
        writer: RowWriter,
        ranges: Mapping[TopicPartition, OffsetRange],
        moved: Sequence[TopicPartition],
        *,
        with_headers: bool,
    ) -> None:
        """Read and write the ranges in this process. Raises LogUnavailable, TopicChanged."""
        planned = [self._planned(source, ranges[source]) for source in moved]
        for at in range(0, len(planned), _AT_ONCE):
            some = planned[at : at + _AT_ONCE]
            begins = self._reader.fetch_begins(some, committed=self.committed)
            how = {"committed": self.committed, "with_headers": with_headers}
            for each, begin in zip(some, begins, strict=True):
                write_range(self._reader, each, writer, begin=begin, **how)

    def close(self) -> None:
        """Close this process's connections."""
        self._reader.close()

    def write_in_tasks(
        self,
        spark: SparkSession,
        writer: WriterSpec,
        ranges: Mapping[TopicPartition, OffsetRange],
        moved: Sequence[TopicPartition],
        parked: Mapping[int, str],
    ) -> list[Any]:
        """Read and write the ranges that have offsets; returns the rows of `TALLY_SCHEMA`.

        Raises LogUnavailable unless every range was read to its end.
        """
        planned = [self._planned(source, ranges[source]) for source in moved]
        groups = grouped(planned, _task_count(spark))
        write = RangeWriter(writer, ranges, parked, self.connection, groups, self.committed, self.headers)
        numbers = spark.range(0, len(groups), 1, len(groups))
        rows = numbers.mapInArrow(write, TALLY_SCHEMA).collect()
        if not any(row.newer_epoch for row in rows):
            reached = {(row.topic, row.partition): row.reached for row in rows}
            for each in planned:
                if reached.get((each.topic, each.partition)) != each.end:
                    raise LogUnavailable(f"{each}: its task ended before it had read the batch's range", 2)
        return rows

    def _planned(self, source: TopicPartition, covered: OffsetRange) -> PlannedRange:
        topic, partition = source
        epoch, topic_id = self.leader_epochs.get(source), self.topic_ids.get(topic)
        return PlannedRange(topic, partition, covered.begin, covered.end, epoch, topic_id)


def grouped(ranges: Iterable[PlannedRange], most: int) -> list[list[PlannedRange]]:
    """At most that many groups of about the same number of offsets: the longest ranges first."""
    groups: list[list[PlannedRange]] = []
    sizes: list[int] = []
    for each in sorted(ranges, key=lambda each: each.begin - each.end):
        if len(groups) < most:
            groups.append([])
            sizes.append(0)
            smallest = len(groups) - 1
        else:
            smallest = sizes.index(min(sizes))
        groups[smallest].append(each)
        sizes[smallest] += each.end - each.begin
    return groups


def write_range(
    reader: LogRangeReader,
    planned: PlannedRange,
    writer: RowWriter,
    *,
    committed: bool,
    with_headers: bool,
    begin: Fetched | None = None,
) -> None:
    """Read a range to its end, and write its rows as they come. Raises LogUnavailable, TopicChanged."""
    found = reader.read(planned, committed=committed, with_headers=with_headers, begin=begin)
    with contextlib.closing(found):
        for rows in found:
            if len(rows.offsets):
                writer.write(as_batch(planned, rows))


def as_batch(planned: PlannedRange, rows: Rows) -> pa.RecordBatch:
    """The rows in the columns of Spark's Kafka source."""
    count = len(rows.offsets)
    columns = {
        "topic": pa.repeat(planned.topic, count),
        "partition": pa.array(np.full(count, planned.partition, np.int32)),
        "offset": pa.array(rows.offsets),
        "timestamp": pa.array(rows.timestamps_ms * 1000).cast(pa.timestamp("us", "UTC")),
        "key": rows.keys,
        "value": rows.values,
    }
    if rows.headers is not None:
        columns["headers"] = rows.headers
    return pa.RecordBatch.from_pydict(columns)


def _task_count(spark: SparkSession) -> int:
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        return _TASKS_PER_CORE * (os.cpu_count() or 1)
    return max(1, context.defaultParallelism)
