"""`reader = "direct"`: the job reads a batch's ranges of offsets from Kafka itself.

It plans the batch's offsets too, see `stream.plans`; Spark's JVM reads none of its rows. The driver reads
small batches, and tasks the larger ones. A range is claimed only after the fetched batches have passed its
end: in the driver its read ends nowhere else, and the driver takes no batch of tasks for written unless they
have reported the end of every range, or that its leader went away. The rest of such a range is left.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from keylane.adapters.kafka.options import Connection
from keylane.errors import LeaderChanged, LogUnavailable, TopicChanged
from keylane.model.kafka import TopicPartition
from keylane_spark.context import JobContext
from keylane_spark.engine import session
from keylane_spark.engine.record_sql import with_results
from keylane_spark.log.fetch_options import portable
from keylane_spark.log.fetches import PlannedRange
from keylane_spark.log.log_reader import LeaderAway, LogRangeReader, RangeUnreadable
from keylane_spark.rows.records import ArrowFunction, Rows, RowsOfPartitions
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.driver_share import PlannedBatch
from keylane_spark.stream.openings import Opening, WriterSpec
from keylane_spark.stream.partition_chunks import NOWHERE
from keylane_spark.stream.sql_rows import (
    JSON_COLUMNS,
    SqlRowWriter,
    WithJson,
    end_of_range,
    to_arrow,
)
from keylane_spark.stream.tasks import TALLY_SCHEMA, PartitionWriter

_LEFT = (LeaderAway, RangeUnreadable, LeaderChanged)
"""What ends a range alone. The query finds its leader, and compares the lanes with it, before it reads on."""
_AWAY_S, _AWAY_IN_DRIVER_S = 1.0, 0.3
_TIMEOUT_S, _SHORTEST_TIMEOUT_S = 10.0, 1.0
"""The driver waits for a silent broker for the shorter time, twice as long the next time: it may be slow."""


@functools.cache
def _reader(connection: Connection) -> LogRangeReader:
    """One for each worker process, which runs one task at a time."""
    return _new_reader(connection, _AWAY_S, _TIMEOUT_S)


def _new_reader(connection: Connection, away_s: float, timeout_s: float) -> LogRangeReader:
    # Its errors come with ours; kafka-python's own lines name each attempt to connect.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return LogRangeReader(connection, away_s=away_s, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class RangeGroups:
    """Ranges that tasks read, each some groups of them."""

    connection: Connection
    groups: Sequence[Sequence[PlannedRange]]
    committed: bool

    def read(
        self, batches: Iterable[pa.RecordBatch], *, with_headers: bool
    ) -> Iterator[tuple[PlannedRange, Iterator[Rows]]]:
        """Yield the ranges of the groups whose numbers come, each with its rows as they are read."""
        reader = _reader(self.connection)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from reader.read_each(
                    self.groups[number], committed=self.committed, with_headers=with_headers
                )


@dataclass(frozen=True, slots=True)
class RangeWriter(PartitionWriter):
    """A function for `mapInArrow` over the numbers of `groups`: reads and writes the ranges of each."""

    groups: RangeGroups

    def write_rows(self, batches: Iterator[pa.RecordBatch], writer: BatchWriter) -> None:
        """Read and write the ranges of the groups whose numbers come."""
        for planned, found in self.groups.read(batches, with_headers=self.writer.stores_headers):
            try:
                for rows in found:
                    writer.write(planned.source, rows)
            except _LEFT as error:
                writer.leave(planned.source, str(error))
            else:
                writer.note_range_read(planned.source)


@dataclass(frozen=True, slots=True)
class RangeRows:
    """A function for `mapInArrow` over the numbers of `groups`: reads the ranges of each, for SQL."""

    groups: RangeGroups
    with_headers: bool
    with_json: WithJson

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the ranges of the groups whose numbers come."""
        for planned, found in self.groups.read(batches, with_headers=self.with_headers):
            left = ""
            try:
                for rows in found:
                    yield self.with_json.add(to_arrow(planned.source, rows))
            except _LEFT as error:
                left = str(error)
            yield self.with_json.add(end_of_range(planned.source, planned.end, left))


@dataclass(frozen=True, slots=True)
class RangesThrough:
    """A function for `mapInArrow` over the numbers of `groups`: the rows of each, through another function.

    Raises LogUnavailable.
    """

    groups: RangeGroups
    through: ArrowFunction

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the ranges of the groups whose numbers come."""
        return self.through(self._rows(batches))

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for planned, found in self.groups.read(batches, with_headers=False):
            try:
                for rows in found:
                    yield to_arrow(planned.source, rows)
            except (TopicChanged, LogUnavailable) as error:
                raise LogUnavailable(str(error), 2) from error


@dataclass(frozen=True, slots=True)
class LogStretch:
    """Ranges of a topic that tasks of a view read."""

    spark: SparkSession
    groups: RangeGroups

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        connection: Connection,
        planned: Sequence[PlannedRange],
        *,
        committed: bool,
        most_tasks: int,
    ) -> Self:
        """Raises SettingsError, BadConfig for a login that only Java's client has."""
        return cls(spark, RangeGroups(portable(connection), grouped(planned, most_tasks), committed))

    def through(self, function: ArrowFunction, schema: str) -> DataFrame:
        """What a function for `mapInArrow` makes of the rows. A task may fail with LogUnavailable."""
        count = len(self.groups.groups)
        numbers = self.spark.range(0, count, 1, count)
        return numbers.mapInArrow(RangesThrough(self.groups, function), schema)


@dataclass(slots=True)
class DirectReader:
    """Reads the batches of one query. `headers_here`: whether this process reads headers, too."""

    writer: WriterSpec
    connection: Connection
    leader_epochs: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    committed: bool
    headers_here: bool
    _reader: LogRangeReader = field(init=False)
    """The driver's. Each query has its own: two of them run while a generation is built."""

    def __post_init__(self) -> None:
        self._reader = _new_reader(self.connection, _AWAY_IN_DRIVER_S, _SHORTEST_TIMEOUT_S)

    @classmethod
    def of(
        cls,
        context: JobContext,
        opening: Opening,
        leader_epochs: Mapping[TopicPartition, int],
        *,
        reads_headers: bool,
    ) -> DirectReader:
        """The reader of a query; `leader_epochs` may change between batches. Raises SettingsError."""
        committed = context.config.job.isolation == "read_committed"
        connection = portable(context.broker.connection)
        sources = leader_epochs, opening.topic_ids
        return cls(opening.writer, connection, *sources, committed, reads_headers)

    def read_here(
        self, batch: PlannedBatch, leave: Callable[[TopicPartition, str], None]
    ) -> RowsOfPartitions:
        """The rows of a batch, read in this process. Raises LogUnavailable, TopicChanged.

        `leave`: called for each partition of which the rest is left, with the reason.
        """
        has_left = False
        for planned, found in self._reader.read_each(
            self._planned(batch), committed=self.committed, with_headers=self.headers_here
        ):
            try:
                for rows in found:
                    yield planned.source, rows
            except _LEFT as error:
                leave(planned.source, str(error))
                has_left = has_left or isinstance(error, LeaderAway)
        longer_s = min(2 * self._reader.timeout_s, _TIMEOUT_S)
        self._reader.timeout_s = longer_s if has_left else _SHORTEST_TIMEOUT_S

    def close(self) -> None:
        """Close this process's connections."""
        self._reader.close()

    def write_in_tasks(self, batch: PlannedBatch, parked: Mapping[int, str]) -> list[Any]:
        """Read and write the rows of a batch in tasks; returns the rows of `TALLY_SCHEMA`.

        Raises LogUnavailable unless every range was read to its end, or its leader went away.
        """
        planned, sql = self._planned(batch), self.writer.sql
        rows: list[Any] = []
        for has_sql in (False, True):
            if own := [each for each in planned if (each.topic in sql) == has_sql]:
                rows += self._write_ranges(batch, parked, own, has_sql=has_sql)
        if not any(row.newer_epoch for row in rows):
            reached = {(row.topic, row.partition): row.reached for row in rows}
            excused = {(row.topic, row.partition) for row in rows if row.left or row.stopped_at != NOWHERE}
            for each in planned:
                if each.source not in excused and reached.get(each.source) != each.end:
                    raise LogUnavailable(f"{each}: its task ended before it had read the batch's range", 2)
        return rows

    def _write_ranges(
        self,
        batch: PlannedBatch,
        parked: Mapping[int, str],
        planned: Sequence[PlannedRange],
        *,
        has_sql: bool,
    ) -> list[Any]:
        """Write ranges in tasks, a group in each; `has_sql`: of topics whose rows pass through the JVM."""
        spark = batch.rows.sparkSession
        groups = grouped(planned, session.task_count(spark))
        numbers = spark.range(0, len(groups), 1, len(groups))
        ranges = RangeGroups(self.connection, groups, self.committed)
        if not has_sql:
            write = RangeWriter(self.writer, batch.ranges, parked, ranges)
            return numbers.mapInArrow(write, TALLY_SCHEMA).collect()
        with_json = WithJson.of(sql := self.writer.sql)
        read = RangeRows(ranges, self.writer.stores_headers, with_json)
        rows = with_results(numbers.mapInArrow(read, JSON_COLUMNS), sql)
        return rows.mapInArrow(SqlRowWriter(self.writer, batch.ranges, parked), TALLY_SCHEMA).collect()

    def _planned(self, batch: PlannedBatch) -> list[PlannedRange]:
        return [
            PlannedRange(
                *source,
                batch.ranges[source].begin,
                batch.ranges[source].end,
                self.leader_epochs.get(source),
                self.topic_ids.get(source[0]),
            )
            for source in batch.moved
        ]


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
