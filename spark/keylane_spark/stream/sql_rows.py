"""Rows of topics with `where` or `select` on their way through Spark's JVM, which computes these.

    in the driver     rows -> a local relation of Spark -> `wanted` and `selected`, back beside the rows
    in tasks          rows -> Arrow -> the JVM adds both columns -> Arrow -> rows, which are written there

Rows travel with the columns of LOG_COLUMNS. A row with `is_end` stands for no record: it says that the range
of its partition has been read to its offset. Only that proves it, for a task that is stopped sees its input
end early, without an error. With a key it says that the rest of the range is left, and why.

A value over LARGEST_VALUE does not travel: its row has `left_bytes`, and the SQL fails on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from keylane.errors import WriterError
from keylane.model.kafka import TopicPartition
from keylane_spark.config.transforms import Transform
from keylane_spark.engine.record_sql import UNREAD, why_invalid, with_results
from keylane_spark.engine.session import REFUSALS
from keylane_spark.engine.value_errors import is_about_a_value
from keylane_spark.rows.headers import HEADERS
from keylane_spark.rows.json_values import LARGEST_VALUE, read_json
from keylane_spark.rows.records import Rows, RowsOfPartitions, leave_large, split_by_partition
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.driver_share import MAX_BYTES
from keylane_spark.stream.openings import Opening
from keylane_spark.stream.tasks import PartitionWriter

_HEADERS = "array<struct<key: string, value: binary>>"
LOG_COLUMNS = (
    "topic string, partition int, offset long, ms long, key binary, value binary, "
    f"headers {_HEADERS}, is_end boolean"
)
_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("is_end", pa.bool_()),
    ]
)
_IN_JVM = ["topic", "partition", "offset", "ms", "key", "value", "form", "row", "text"]
JSON_COLUMNS = f"{LOG_COLUMNS}, form byte, row string, text string, left_bytes long"
"""LOG_COLUMNS, what `with_results` needs, and the size of a value that does not travel, else 0."""


def to_arrow(source: TopicPartition, rows: Rows) -> pa.RecordBatch:
    """Rows of a partition as they travel."""
    topic, partition = source
    count = len(rows)
    headers = pa.nulls(count, HEADERS) if rows.headers is None else rows.headers
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(topic), count),
            pa.array(np.full(count, partition, np.int32)),
            pa.array(rows.offsets),
            pa.array(rows.timestamps_ms),
            rows.keys,
            rows.values,
            headers,
            pa.repeat(pa.scalar(False), count),
        ],
        schema=_SCHEMA,
    )


def end_of_range(source: TopicPartition, end: int, left: str = "") -> pa.RecordBatch:
    """The row that says that a range was read to its end, or why the rest of it is left."""
    topic, partition = source
    row: dict[str, object] = {"topic": topic, "partition": partition, "offset": end, "ms": 0, "is_end": True}
    if left:
        row["key"] = left.encode()
    return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)


@dataclass(frozen=True, slots=True)
class WithJson:
    """Adds what `with_results` needs to rows that travel. `events`: the topics of change events."""

    events: frozenset[str]

    @classmethod
    def of(cls, transforms: Mapping[str, Transform]) -> Self:
        """For topics with these transforms."""
        return cls(frozenset(topic for topic, each in transforms.items() if each.envelope != "none"))

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns of JSON_COLUMNS."""
        are_events = np.asarray(pc.is_in(rows.column("topic"), pa.array(self.events, pa.string())))
        values, left_bytes = leave_large(rows.column("value"), LARGEST_VALUE)
        json = read_json(values, are_events)
        if left_bytes is None:
            left_bytes = np.zeros(len(values), np.int64)
        json.forms[left_bytes > 0] = UNREAD
        rows = rows.set_column(rows.schema.get_field_index("value"), "value", values)
        return pa.RecordBatch.from_arrays(
            [*rows.columns, pa.array(json.forms), json.rows, json.texts, pa.array(left_bytes)],
            [*rows.schema.names, "form", "row", "text", "left_bytes"],
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        return map(self.add, batches)


class SqlRowWriter(PartitionWriter):
    """A function for `mapInArrow` over rows that travel, with the results of SQL."""

    __slots__ = ()

    def write_rows(self, batches: Iterator[pa.RecordBatch], writer: BatchWriter) -> None:
        """Write the rows that come."""
        for batch in batches:
            is_end = batch.column("is_end")
            for source, rows in _split(batch.filter(pc.invert(is_end))):
                writer.write(source, rows)
            for row in batch.filter(is_end).select(["topic", "partition", "key"]).to_pylist():
                source = row["topic"], row["partition"]
                if row["key"] is None:
                    writer.note_range_read(source)
                else:
                    writer.leave(source, row["key"].decode())


def _split(batch: pa.RecordBatch) -> RowsOfPartitions:
    """The rows of a batch that travels, by partition."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    kept = (columns[name] for name in ("key", "value", "headers"))
    rows = Rows(columns["offset"].to_numpy(), columns["ms"].to_numpy(), *kept)
    results = {name: columns[name] for name in ("wanted", "selected")}
    rows = replace(rows, left_bytes=_left_bytes(batch), **results)
    return split_by_partition(rows, columns["partition"].to_numpy(), columns["topic"])


def _left_bytes(batch: pa.RecordBatch) -> NDArray[np.int64] | None:
    found: NDArray[np.int64] = batch.column("left_bytes").to_numpy()
    return found if found.any() else None


def travelling(rows: DataFrame, topic: str) -> DataFrame:
    """Rows of Spark's Kafka source as they travel; `topic`: that of all rows that name none."""
    named = set(rows.columns)
    headers = f.col("headers") if "headers" in named else f.lit(None).cast(_HEADERS)
    return rows.select(
        (f.col("topic") if "topic" in named else f.lit(topic)).alias("topic"),
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("ms"),
        "key",
        "value",
        headers.alias("headers"),
        f.lit(False).alias("is_end"),
    )


@dataclass(slots=True)
class SqlRows:
    """Computes the SQL of topics in the driver. `transforms`: of those that have any."""

    spark: SparkSession
    transforms: Mapping[str, Transform]

    def evaluated(self, found: RowsOfPartitions) -> RowsOfPartitions:
        """The rows with the results of their topics' SQL; a partition's rows stay in their order."""
        waiting = defaultdict[str, list[tuple[TopicPartition, Rows]]](list)
        waiting_bytes = 0
        with closing(found):
            for source, rows in found:
                if source[0] not in self.transforms:
                    yield source, rows
                    continue
                waiting[source[0]].append((source, rows))
                waiting_bytes += rows.held_bytes
                if waiting_bytes > MAX_BYTES:
                    yield from self._evaluate_all(waiting)
                    waiting.clear()
                    waiting_bytes = 0
        yield from self._evaluate_all(waiting)

    def _evaluate_all(
        self, waiting: Mapping[str, list[tuple[TopicPartition, Rows]]]
    ) -> Iterator[tuple[TopicPartition, Rows]]:
        for topic, parts in waiting.items():
            yield from self._evaluate(topic, parts)

    def _evaluate(self, topic: str, parts: list[tuple[TopicPartition, Rows]]) -> RowsOfPartitions:
        with_json = WithJson.of(self.transforms)
        batches = [with_json.add(to_arrow(*part)) for part in parts]
        table = pa.Table.from_batches(batches).select(_IN_JVM)
        found = self._results(topic, table)
        if [row.offset for row in found] != table.column("offset").to_pylist():
            raise WriterError(f"topic {topic!r}: Spark returned other rows than it was given")
        wanted = pa.array((row.wanted for row in found), pa.bool_())
        selected = pa.array((row.selected for row in found), pa.string())
        begin = 0
        for (source, part), batch in zip(parts, batches, strict=True):
            end = begin + len(part)
            results = {"wanted": wanted[begin:end], "selected": selected[begin:end]}
            yield (
                source,
                replace(part, values=batch.column("value"), left_bytes=_left_bytes(batch), **results),
            )
            begin = end

    def _results(self, topic: str, table: pa.Table) -> list[Row]:
        """Offset, `wanted` and `selected` of each row. A row on which Spark fails has neither."""
        rows = self.spark.createDataFrame(table)
        results = with_results(rows, {topic: self.transforms[topic]})
        try:
            # A local relation: Spark computes it here, and starts no job.
            return results.select("offset", "wanted", "selected").collect()
        except REFUSALS as error:
            if not is_about_a_value(error):
                raise
        if len(table) == 1:
            return [Row(offset=table.column("offset")[0].as_py(), wanted=None, selected=None)]
        middle = len(table) // 2
        return self._results(topic, table.slice(0, middle)) + self._results(topic, table.slice(middle))


def check_sql(spark: SparkSession, opening: Opening) -> Opening:
    """The opening with the reason as a fault of each transform whose SQL Spark can't compute."""
    writer = opening.writer
    faults = {topic: why_invalid(spark, sql) for topic, sql in writer.sql.items()}
    faulty = {topic: replace(writer.transforms[topic], fault=why) for topic, why in faults.items() if why}
    if not faulty:
        return opening
    return replace(opening, writer=replace(writer, transforms={**writer.transforms, **faulty}))
