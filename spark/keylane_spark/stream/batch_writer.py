"""One micro-batch into its lanes: the same code on the driver (small batches) and in tasks (large ones)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.model.records import WHOLE_KEY
from keylane.routing import PARTITIONERS
from keylane_spark.adapters.lane_writer import LaneTarget
from keylane_spark.columns.chunks import COMPARED_RECORDS, MAX_BYTES, MAX_RECORDS, Chunk, Folder
from keylane_spark.columns.records import from_rows
from keylane_spark.columns.routing import partition_column, partition_keys, stripe_column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from keylane.model.records import Layout
    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.adapters.lane_writer import LaneWriter
    from keylane_spark.columns.chunks import Folded
    from keylane_spark.columns.records import Records
from keylane_spark.telemetry.tally import Tally

MAX_OPEN_BYTES = 64 * 1024 * 1024
"""What the open chunks of all lanes may come to: a task's partition may have thousands of stripes."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a batch covers of one partition: [begin, end), and until when that makes its lanes complete.

    `log_end`: where the partition ended when last seen; 0: nobody looked.
    """

    begin: int
    end: int
    complete_as_of_ms: int = 0
    log_end: int = 0


@dataclass(slots=True)
class BatchWriter:
    """Writes the rows of a batch, then moves every stripe's watermark to the batch's end.

    Each lane's last chunk stays open until the batch ends, so that a key is written once however often the
    batch has it. Order of a partition's writes: strays, wait for them, a note of who has them, then chunks
    that move its watermark.
    """

    lanes: LaneWriter
    layouts: Mapping[str, Layout]
    spans: Mapping[TopicPartition, Span]
    tallies: dict[TopicPartition, Tally] = field(default_factory=dict)
    _reached: dict[LaneTarget, int] = field(default_factory=dict)
    _lanes: dict[tuple[str, int, int], LaneTarget] = field(default_factory=dict)
    _folders: dict[LaneTarget, Folder] = field(default_factory=dict)
    _stray_folders: dict[TopicPartition, dict[LaneTarget, Folder]] = field(default_factory=dict)
    _strays_under_way: bool = False
    _given: dict[TopicPartition, dict[LaneTarget, int]] = field(default_factory=dict)
    """Below which offset each lane has been given a partition's strays, until that is noted."""

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Rows: partition int32, offset int64, timestamp, key and value binary; topic if there are several.

        And headers, list<struct<key string, value binary>>, if a topic keeps them. In offset order within a
        partition. What was given has arrived when `finish` returns.
        """
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else (rows,):
            for topic, part in self._by_topic(batch):
                partitions = part.column("partition").to_numpy(zero_copy_only=False)
                for partition in np.unique(partitions).tolist():
                    mask = partitions == partition
                    one = part if mask.all() else part.filter(pa.array(mask))
                    self._write_partition((topic, partition), one)
            self._bound_memory()

    def finish(self, places: Collection[TopicPartition]) -> None:
        """Move the watermarks of these partitions, records or none, and wait until all has arrived."""
        for place in places:
            self._send_open_strays(place)
        for place in places:
            for stripe in range(self.layouts[place[0]].stripes):
                lane = self._lane(*place, stripe)
                folder = self._folders.pop(lane, None)
                self._apply(lane, folder.take() if folder else None, self.spans[place])
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

    def _write_partition(self, place: TopicPartition, rows: pa.RecordBatch) -> None:
        topic, partition = place
        layout = self.layouts[topic]
        tally = self._tally(place)
        keys = rows.column("key")
        tally.records += len(keys)
        if keys.null_count:
            tally.null_keys += keys.null_count
            rows = rows.filter(keys.is_valid())
        records = from_rows(rows, layout.options)
        tally.tombstones += records.values.null_count
        tally.record_bytes += int(records.sizes.sum())
        if records.left_bytes is not None:
            tally.left_in_kafka += int(np.count_nonzero(records.left_bytes))
            tally.record_bytes += int(records.left_bytes.sum())
        parts = partition_keys(records.keys, layout.partition_by)
        home = partition_column(parts, layout.partition_count, layout.partitioner)
        stray = home != partition
        if stray.any():
            self._write_strays(layout, partition, records.where(stray), home[stray], tally)
            records = records.where(~stray)
        stripe_of = stripe_column(partition_keys(records.keys, layout.partition_by), layout.stripes)
        for stripe in np.unique(stripe_of).tolist():
            mask = stripe_of == stripe
            lane = self._lane(topic, partition, stripe)
            most = COMPARED_RECORDS if layout.options.compared else MAX_RECORDS
            folder = self._folders.setdefault(lane, Folder(layout.options, most))
            for folded in folder.add(records if mask.all() else records.where(mask)):
                self._apply(lane, folded)

    def _write_strays(
        self, layout: Layout, partition: int, records: Records, home: NDArray[np.int32], tally: Tally
    ) -> None:
        """Take each record to the lane where a reader looks for its key."""
        place = layout.topic, partition
        folders = self._stray_folders.setdefault(place, {})
        parts = partition_keys(records.keys, layout.partition_by)
        lane_of = home.astype(np.int64) * layout.stripes + stripe_column(parts, layout.stripes)
        for number in np.unique(lane_of).tolist():
            lane = self._lane(layout.topic, number // layout.stripes, number % layout.stripes)
            folder = folders.setdefault(lane, Folder(layout.options, COMPARED_RECORDS))
            for folded in folder.add(records.where(lane_of == number)):
                self._put_strays(place, lane, folded)
        tally.strays += len(records)
        for name in PARTITIONERS:
            explained = partition_column(parts, layout.partition_count, name) == partition
            setattr(tally, name, getattr(tally, name) + int(explained.sum()))
        if layout.partition_by != WHOLE_KEY:
            explained = (
                partition_column(records.keys, layout.partition_count, layout.partitioner) == partition
            )
            tally.whole_key += int(explained.sum())

    def _send_open_strays(self, place: TopicPartition) -> None:
        for lane, folder in self._stray_folders.pop(place, {}).items():
            if (folded := folder.take()) is not None:
                self._put_strays(place, lane, folded)

    def _put_strays(self, place: TopicPartition, lane: LaneTarget, folded: Folded) -> None:
        chunk = folded.chunk(lane.key_prefix, place[1])
        self.lanes.put_strays(lane, chunk.arguments, chunk.count, place[1], chunk.end_offset)
        self._given.setdefault(place, {})[lane] = chunk.end_offset
        self._wait_for_a_huge_one(chunk)
        self._tally(place).written += chunk.count
        self._strays_under_way = True

    def _apply(self, lane: LaneTarget, folded: Folded | None, ends: Span | None = None) -> None:
        """Send a chunk; `ends`: it is the lane's last of this batch, records or none."""
        place = lane.topic, lane.partition
        self._send_open_strays(place)
        if self._strays_under_way:
            self.lanes.flush()
            self._strays_under_way = False
        if given := self._given.pop(place, None):
            self.lanes.note_strays(self._lane(*place, 0), given)
        begin = self._reached.get(lane, self.spans[place].begin)
        chunk = folded.chunk(lane.key_prefix) if folded else Chunk.empty(begin)
        end = ends.end if ends else chunk.end_offset
        self.lanes.apply(
            lane,
            begin,
            end,
            arguments=chunk.arguments,
            count=chunk.count,
            has_tombstones=chunk.has_tombstones,
            newest_timestamp_ms=chunk.newest_timestamp_ms,
            complete_as_of_ms=ends.complete_as_of_ms if ends else 0,
            log_end=ends.log_end if ends else 0,
        )
        self._wait_for_a_huge_one(chunk)
        if chunk.count:
            self._tally(place).written += chunk.count
        self._reached[lane] = end

    def _wait_for_a_huge_one(self, chunk: Chunk) -> None:
        """Many chunks may be under way, but not many whose one record is larger than a chunk should be."""
        if len(chunk.arguments) > 2 * MAX_BYTES:
            self.lanes.flush()

    def _bound_memory(self) -> None:
        """Send all that is open where many lanes' open chunks, each small, come to too much."""
        strays = [folder for folders in self._stray_folders.values() for folder in folders.values()]
        if sum(folder.open_bytes for folder in (*self._folders.values(), *strays)) <= MAX_OPEN_BYTES:
            return
        for place in list(self._stray_folders):
            self._send_open_strays(place)
        for lane, folder in self._folders.items():
            if (folded := folder.take()) is not None:
                self._apply(lane, folded)

    def _tally(self, place: TopicPartition) -> Tally:
        return self.tallies.setdefault(place, Tally())

    def _lane(self, topic: str, partition: int, stripe: int) -> LaneTarget:
        lane = self._lanes.get((topic, partition, stripe))
        if lane is None:
            lane = self._lanes[topic, partition, stripe] = LaneTarget.of(
                self.layouts[topic], partition, stripe
            )
        return lane
