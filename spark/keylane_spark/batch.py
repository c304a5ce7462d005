"""One micro-batch into its lanes: the same code on the driver (small batches) and in tasks (large ones)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.adapters.redis_lanes import Lane
from keylane.routing import PARTITIONERS
from keylane_spark.columns import Records, chunks, stray_chunks
from keylane_spark.routing_columns import partition_column, stripe_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from keylane.adapters.redis_lanes import LaneWriter
    from keylane.model import Layout
    from keylane_spark.freshness import Place


@dataclass(frozen=True, slots=True)
class Span:
    """What a batch covers of one partition: [begin, end), and when the partition was seen to end there."""

    begin: int
    end: int
    complete_as_of_ms: int = 0


@dataclass(slots=True)
class Tally:
    """What happened to the records of one partition; `written`: after the fold of each chunk."""

    records: int = 0
    written: int = 0
    tombstones: int = 0
    null_keys: int = 0
    value_bytes: int = 0
    strays: int = 0
    """Records that a reader looks for in another partition; of those, how many each partitioner explains:"""
    murmur2: int = 0
    crc32: int = 0
    fnv1a: int = 0


@dataclass(slots=True)
class BatchWriter:
    """Writes the rows of a batch, then moves every stripe's watermark to the batch's end."""

    lanes: LaneWriter
    layouts: Mapping[str, Layout]
    spans: Mapping[Place, Span]
    tallies: dict[Place, Tally] = field(default_factory=dict)
    _reached: dict[Lane, int] = field(default_factory=dict)
    _lanes: dict[tuple[str, int, int], Lane] = field(default_factory=dict)

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Rows: partition int32, offset int64, timestamp, key and value binary; topic if there are several.

        In offset order within a partition. What was sent has arrived when `finish` returns.
        """
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else (rows,):
            for topic, part in self._by_topic(batch):
                partitions = part.column("partition").to_numpy(zero_copy_only=False)
                for partition in np.unique(partitions).tolist():
                    mask = partitions == partition
                    one = part if mask.all() else part.filter(pa.array(mask))
                    self._write_partition(topic, partition, one)

    def finish(self, places: Iterable[Place]) -> None:
        """Move the watermarks of these partitions, records or none, and wait until all has arrived."""
        for topic, partition in places:
            span = self.spans[topic, partition]
            for stripe in range(self.layouts[topic].stripes):
                lane = self._lane(topic, partition, stripe)
                self.lanes.apply(
                    lane,
                    self._reached.get(lane, span.begin),
                    span.end,
                    complete_as_of_ms=span.complete_as_of_ms,
                )
                self._reached[lane] = span.end
        self.lanes.flush()

    def _by_topic(self, batch: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
        if "topic" not in batch.schema.names:
            (topic,) = self.layouts
            return [(topic, batch)]
        topics = batch.column("topic")
        names = pc.unique(topics).to_pylist()
        if len(names) == 1:
            return [(names[0], batch)]
        return [(name, batch.filter(pc.equal(topics, name))) for name in names]

    def _write_partition(self, topic: str, partition: int, rows: pa.RecordBatch) -> None:
        tally = self.tallies.setdefault((topic, partition), Tally())
        keys = rows.column("key")
        tally.records += len(keys)
        if keys.null_count:
            tally.null_keys += keys.null_count
            rows = rows.filter(keys.is_valid())
        values = rows.column("value")
        tally.tombstones += values.null_count
        tally.value_bytes += pc.sum(pc.binary_length(values)).as_py() or 0
        records = Records(
            rows.column("key"),
            values,
            rows.column("offset").to_numpy(zero_copy_only=False),
            rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000,
        )
        layout = self.layouts[topic]
        home = partition_column(records.keys, layout.partition_count, layout.partitioner)
        stray = home != partition
        if stray.any():
            self._write_strays(layout, partition, records.where(stray), home[stray], tally)
            records = records.where(~stray)
        stripes = layout.stripes
        if stripes == 1:
            self._write_lane(self._lane(topic, partition, 0), records, tally)
            return
        stripe_of = stripe_column(records.keys, stripes)
        for stripe in np.unique(stripe_of).tolist():
            self._write_lane(self._lane(topic, partition, stripe), records.where(stripe_of == stripe), tally)

    def _write_strays(
        self, layout: Layout, partition: int, records: Records, home: NDArray[np.int32], tally: Tally
    ) -> None:
        """Write each record into the lane where a reader looks for its key, before any watermark moves."""
        stripe_of = stripe_column(records.keys, layout.stripes)
        lane_of = home.astype(np.int64) * layout.stripes + stripe_of
        for number in np.unique(lane_of).tolist():
            lane = self._lane(layout.topic, number // layout.stripes, number % layout.stripes)
            for chunk in stray_chunks(records.where(lane_of == number), lane.key_prefix, partition):
                self.lanes.put_strays(lane, chunk.arguments, chunk.count)
        self.lanes.flush()
        tally.strays += len(records)
        tally.written += len(records)
        for name in PARTITIONERS:
            explained = partition_column(records.keys, layout.partition_count, name) == partition
            setattr(tally, name, getattr(tally, name) + int(explained.sum()))

    def _write_lane(self, lane: Lane, records: Records, tally: Tally) -> None:
        begin = self._reached.get(lane, self.spans[lane.topic, lane.partition].begin)
        for chunk in chunks(records, lane.key_prefix):
            self.lanes.apply(
                lane,
                begin,
                chunk.end_offset,
                arguments=chunk.arguments,
                count=chunk.count,
                has_tombstones=chunk.has_tombstones,
                newest_timestamp_ms=chunk.newest_timestamp_ms,
            )
            tally.written += chunk.count
            begin = chunk.end_offset
        self._reached[lane] = begin

    def _lane(self, topic: str, partition: int, stripe: int) -> Lane:
        lane = self._lanes.get((topic, partition, stripe))
        if lane is None:
            lane = self._lanes[topic, partition, stripe] = Lane.of(self.layouts[topic], partition, stripe)
        return lane
