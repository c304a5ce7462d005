"""`reader = "spark"`: Spark's JVM reads the records of a batch, and hands them over as Arrow batches.

Its source fails on a record whose time is no microseconds in 64 bits, before any expression sees the record.
The job reads such a batch itself, as with `reader = "direct"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keylane.errors import LogUnavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.context import JobContext
from keylane_spark.engine.record_sql import with_results
from keylane_spark.engine.session import REFUSALS
from keylane_spark.engine.value_errors import is_about_a_value
from keylane_spark.rows.records import Rows, RowsOfPartitions, split_by_partition
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.driver_share import DriverShare, PlannedBatch
from keylane_spark.stream.openings import WriterSpec
from keylane_spark.stream.sql_rows import JSON_COLUMNS, SqlRowWriter, WithJson, travelling
from keylane_spark.stream.tasks import TALLY_SCHEMA, PartitionWriter

if TYPE_CHECKING:
    from keylane_spark.stream.log_ranges import DirectReader


@dataclass(frozen=True, slots=True)
class SparkReader:
    """Reads the batches of one query. `direct`: what reads those that Spark's source can't read."""

    context: JobContext
    writer: WriterSpec
    share: DriverShare
    direct: Callable[[], DirectReader]

    def read_here(
        self,
        batch: PlannedBatch,
        leave: Callable[[TopicPartition, str], None],  # noqa: ARG002 (Spark reads all, or fails)
    ) -> RowsOfPartitions | None:
        """The rows of a batch, read into this process; None where they are too large for it."""
        # A task costs more than its rows here: no more tasks than run at once.
        most_tasks = self.context.spark.sparkContext.defaultParallelism
        try:
            table = self.share.take(batch.rows, batch.size, most_tasks)
        except REFUSALS as error:
            if not is_about_a_value(error):
                raise
            return self._read_directly(batch)
        return None if table is None else split_rows(table.to_batches(), self.writer)

    def _read_directly(self, batch: PlannedBatch) -> RowsOfPartitions:
        with closing(self.direct()) as direct:
            yield from direct.read_here(batch, leave_none)

    def write_in_tasks(self, batch: PlannedBatch, parked: Mapping[int, str]) -> list[Any]:
        """Read and write the rows of a batch in tasks; returns the rows of `TALLY_SCHEMA`."""
        try:
            return self._write(batch, parked)
        except REFUSALS as error:
            if not is_about_a_value(error):
                raise
        with closing(self.direct()) as direct:
            rows = direct.write_in_tasks(batch, parked)
        for row in rows:
            if row.left:
                leave_none((row.topic, row.partition), row.left)
        return rows

    def _write(self, batch: PlannedBatch, parked: Mapping[int, str]) -> list[Any]:
        rows = batch.rows
        if self.context.spans is not None and not self.writer.stores_headers:
            rows = rows.drop("headers")  # they were for the traces of small batches
        if self.writer.sql:
            sql, travel = self.writer.sql, travelling(rows, next(iter(self.writer.layouts)))
            rows = with_results(travel.mapInArrow(WithJson.of(sql), JSON_COLUMNS), sql)
            return rows.mapInArrow(SqlRowWriter(self.writer, batch.ranges, parked), TALLY_SCHEMA).collect()
        return rows.mapInArrow(SparkRowWriter(self.writer, batch.ranges, parked), TALLY_SCHEMA).collect()

    def close(self) -> None:
        """Do nothing: the connections are the JVM's."""


def leave_none(source: TopicPartition, why: str) -> None:
    """Spark's query goes on from the end of its batch: all of it is read, or none."""
    raise LogUnavailable(f"{source[0]}/{source[1]}: {why}", 2)


class SparkRowWriter(PartitionWriter):
    """A function for `mapInArrow` over rows of Spark's Kafka source."""

    __slots__ = ()

    def write_rows(self, batches: Iterator[pa.RecordBatch], writer: BatchWriter) -> None:
        """Write the rows that come."""
        for source, rows in split_rows(batches, self.writer):
            writer.write(source, rows)


def split_rows(batches: Iterable[pa.RecordBatch], writer: WriterSpec) -> RowsOfPartitions:
    """Rows of Spark's Kafka source, by partition: one comes again where rows of others are between its own.

    Columns: partition int32, offset int64, timestamp (microseconds), key and value binary; topic if there are
    several; headers, see `rows.headers`, if they were wanted. Nothing is copied but the times.
    """
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        times_ms = columns["timestamp"].cast(pa.int64()).to_numpy() // 1000
        contents = columns["key"], columns["value"], columns.get("headers")
        rows = Rows(columns["offset"].to_numpy(), times_ms, *contents)
        topics = columns.get("topic", next(iter(writer.layouts)))
        yield from split_by_partition(rows, columns["partition"].to_numpy(), topics)
