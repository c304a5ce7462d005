"""Decides which batches the driver writes itself: the small ones, by records and by bytes.

The bytes of a batch are known only once it has been read. So the driver reads with a limit for each record,
which also limits the batch; if a record exceeds it, tasks read the batch again. It reads a few records
without that check, which costs 5 ms: Kafka's message limit (1 MiB unless a topic raises it) bounds them.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from keylane.model.kafka import TopicPartition
from keylane_spark.lanes.lane import OffsetRange
from keylane_spark.telemetry.tally import Tally

MAX_BYTES = 64 * 1024 * 1024
"""The driver takes batches of at most this size, by estimate; what it reads is always below twice that."""

_NAMED = 10
_FEW = 128
_REMEMBERED = 20
_CONTENTS = ("key", "value", "headers")


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch that is planned: the rows of Spark's source, not read yet, and what they cover.

    Where the job reads by itself, the rows are a tick of Spark's query, and bring its session.
    """

    rows: DataFrame
    ranges: Mapping[TopicPartition, OffsetRange]

    @property
    def moved(self) -> list[TopicPartition]:
        """The partitions of which the batch has offsets, sorted."""
        return sorted(source for source, covered in self.ranges.items() if covered.end > covered.begin)

    def named(self, transformed: Collection[str]) -> str:
        """What the transforms of these topics see of it, for who wonders why it takes long."""
        begins = (
            f"{each[0]}/{each[1]} from {self.ranges[each].begin} on"
            for each in self.moved
            if each[0] in transformed
        )
        some = ", ".join(islice(begins, _NAMED))
        return f": transforms see {some}" if some else ""

    @property
    def size(self) -> int:
        """The number of offsets: records, and gaps between them."""
        return sum(self.ranges[source].end - self.ranges[source].begin for source in self.moved)


class DriverShare:
    """Remembers how large recent records were. `max_records`: larger batches are left to tasks."""

    def __init__(self, max_records: int) -> None:
        self._max_records = max_records
        self._record_bytes: deque[float] = deque([0.0], _REMEMBERED)

    def is_small(self, record_count: int) -> bool:
        """Whether the driver should write a batch of at most `record_count` records, by estimate."""
        return record_count <= self._max_records and record_count * max(self._record_bytes) <= MAX_BYTES

    def take(self, rows: DataFrame, record_count: int, max_tasks: int) -> pa.Table | None:
        """Read a batch of at most `record_count` records; None where tasks should write it."""
        if not self.is_small(record_count):
            return None
        if record_count <= _FEW:
            return rows.coalesce(max_tasks).toArrow()
        # A power of two: Spark compiles a query for each different limit.
        limit = 1 << (2 * MAX_BYTES // max(1, record_count)).bit_length() - 1
        table = rows.select(*_bounded(tuple(rows.columns), limit)).coalesce(max_tasks).toArrow()
        if pc.all(table.column("fits")).as_py() is False:
            self._record_bytes.append(limit)
            return None
        return table.drop_columns("fits")

    def note(self, tallies: Mapping[TopicPartition, Tally]) -> None:
        """Learn from a batch how large records are, by the partition with the largest."""
        means = [tally.record_bytes / tally.records for tally in tallies.values() if tally.records]
        if means:
            self._record_bytes.append(max(means))


@functools.cache
def _bounded(names: tuple[str, ...], limit: int) -> list[Column]:
    """The columns, emptied where a record exceeds the limit, and `fits`. Cached: it takes many JVM calls."""
    fits = _size(names) <= limit
    return [
        *(f.when(fits, f.col(name)).alias(name) if name in _CONTENTS else f.col(name) for name in names),
        fits.alias("fits"),
    ]


def _size(names: tuple[str, ...]) -> Column:
    """The bytes of a record's key, value and headers."""
    size = _length(f.col("key")) + _length(f.col("value"))
    if "headers" not in names:
        return size
    headers = f.aggregate(
        f.col("headers"),
        f.lit(0),
        lambda bytes_, header: bytes_ + _length(header["key"]) + _length(header["value"]),
    )
    return size + f.coalesce(headers, f.lit(0))


def _length(column: Column) -> Column:
    return f.coalesce(f.octet_length(column), f.lit(0))
