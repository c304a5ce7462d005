"""Writes one micro-batch into its lanes, on the driver (small batches) or in a task (large ones).

rows -> records of one partition -> records of one lane -> folded chunks -> RESP bytes -> FCALL
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.model.records import WHOLE_KEY
from keylane.routing import PARTITIONERS
from keylane_spark.adapters.lane import LaneTarget, OffsetRange
from keylane_spark.columns.chunks import COMPARED_RECORDS, MAX_BYTES, MAX_RECORDS, Chunk, Folder
from keylane_spark.columns.records import parse_rows
from keylane_spark.columns.routing import partition_column, partition_keys, stripe_column
from keylane_spark.telemetry.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from keylane.model.records import Layout
    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.adapters.lane_writer import LaneWriter
    from keylane_spark.columns.chunks import Folded
    from keylane_spark.columns.records import Records

MAX_OPEN_BYTES = 64 * 1024 * 1024
"""The most that the open chunks of all lanes may hold: a task's partition may have thousands of stripes."""


class RowWriter(Protocol):
    """What takes rows as `BatchWriter.write` does."""

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Write rows."""


@dataclass(slots=True)
class BatchWriter:
    """Writes the rows of a batch, then moves the watermark of every stripe to the end of the batch.

    A lane's last chunk stays open until the batch ends, so that each key is written once, however often it
    occurs in the batch. For each partition the order is

    1. its strays, and a wait until they have arrived;
    2. a note of which lanes were given them;
    3. its own chunks, which move its watermark.

    So a watermark never claims strays that could still get lost. A partition with a stray for a parked lane
    is held back: its watermark stays where it is. Rows of partitions without a range are skipped.
    """

    lanes: LaneWriter
    layouts: Mapping[str, Layout]
    ranges: Mapping[TopicPartition, OffsetRange]
    tallies: dict[TopicPartition, Tally] = field(default_factory=dict)
    held_back: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions that go no further, each with the parked lane for which it has a stray."""
    reached: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset behind the last row that came, or the range's end; nothing below it is missing."""
    _targets: dict[tuple[str, int, int], LaneTarget] = field(default_factory=dict)
    _folders: dict[LaneTarget, Folder] = field(default_factory=dict)
    _stray_folders: dict[TopicPartition, dict[LaneTarget, Folder]] = field(default_factory=dict)
    _written_to: dict[LaneTarget, int] = field(default_factory=dict)
    """The offset up to which each lane's chunks were sent."""
    _strays_to: dict[tuple[TopicPartition, LaneTarget], int] = field(default_factory=dict)
    """The offset up to which each lane was sent a partition's strays."""
    _has_unacknowledged_strays: bool = False
    _unnoted_strays: dict[TopicPartition, dict[LaneTarget, int]] = field(default_factory=dict)
    """The offset up to which each lane was given a partition's strays, until that is noted in Redis."""

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Write rows; they have arrived once `finish` returns.

        Columns: partition int32, offset int64, timestamp, key and value binary; topic if there are several;
        headers, list<struct<key string, value binary>>, if a topic keeps them. The rows of a partition come
        in offset order.
        """
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else (rows,):
            for topic, of_topic in self._split_by_topic(batch):
                partitions = of_topic.column("partition").to_numpy(zero_copy_only=False)
                for partition in np.unique(partitions).tolist():
                    if (topic, partition) not in self.ranges:
                        continue
                    mask = partitions == partition
                    own = of_topic if mask.all() else of_topic.filter(pa.array(mask))
                    self._write_partition((topic, partition), own)
            self._bound_memory()

    def finish(self, partitions: Collection[TopicPartition]) -> None:
        """Move the watermarks of these partitions, with or without records, and wait for all replies."""
        self._finish({source: self.ranges[source] for source in partitions})

    def finish_reached(self) -> None:
        """Move the watermarks to the last rows that came, and wait for all replies."""
        reached = self.reached.items()
        self._finish({source: OffsetRange(self.ranges[source].begin, end) for source, end in reached})

    def note_range_read(self, source: TopicPartition) -> None:
        """Note that the partition's rows have all come: its range has been read to its end."""
        self._tally(source)
        self.reached[source] = self.ranges[source].end

    def note_reached(self, source: TopicPartition, end: int) -> None:
        """Note that another writer has written the partition's rows below `end`."""
        for stripe in range(self.layouts[source[0]].stripes):
            self._written_to[self._lane(*source, stripe)] = end

    def _finish(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        for source in ranges:
            self._send_open_strays(source)
        for (topic, partition), last in ranges.items():
            for stripe in range(self.layouts[topic].stripes):
                lane = self._lane(topic, partition, stripe)
                folder = self._folders.pop(lane, None)
                self._apply(lane, folder.take() if folder else None, last)
        self.lanes.flush()

    def _split_by_topic(self, batch: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
        if "topic" not in batch.schema.names:
            (topic,) = self.layouts
            return [(topic, batch)]
        topics = batch.column("topic")
        names = pc.unique(topics).to_pylist()
        if len(names) == 1:
            return [(names[0], batch)]
        return [(name, batch.filter(pc.equal(topics, name))) for name in names]

    def _write_partition(self, source: TopicPartition, rows: pa.RecordBatch) -> None:
        topic, partition = source
        layout = self.layouts[topic]
        tally = self._tally(source)
        self.reached[source] = rows.column("offset")[-1].as_py() + 1
        records = self._count_rows(tally, rows, layout)
        routed_by = partition_keys(records.keys, layout.partition_by)
        lane_partition = partition_column(routed_by, layout.partition_count, layout.partitioner)
        is_stray = lane_partition != partition
        if is_stray.any():
            self._write_strays(source, records.where(is_stray), lane_partition[is_stray])
            records = records.where(~is_stray)
        stripe_of = stripe_column(partition_keys(records.keys, layout.partition_by), layout.stripes)
        for stripe in np.unique(stripe_of).tolist():
            mask = stripe_of == stripe
            lane = self._lane(topic, partition, stripe)
            max_records = COMPARED_RECORDS if layout.options.compared else MAX_RECORDS
            folder = self._folders.setdefault(lane, Folder(layout.options, max_records))
            for folded in folder.add(records if mask.all() else records.where(mask)):
                self._apply(lane, folded)

    @staticmethod
    def _count_rows(tally: Tally, rows: pa.RecordBatch, layout: Layout) -> Records:
        """The rows with a key as records; all rows are counted."""
        keys = rows.column("key")
        tally.records += len(keys)
        if keys.null_count:
            tally.null_keys += keys.null_count
            rows = rows.filter(keys.is_valid())
        records = parse_rows(rows, layout.options)
        tally.tombstones += records.values.null_count
        tally.record_bytes += int(records.sizes.sum())
        if records.left_bytes is not None:
            tally.left_in_kafka += int(np.count_nonzero(records.left_bytes))
            tally.record_bytes += int(records.left_bytes.sum())
        return records

    def _write_strays(
        self, source: TopicPartition, records: Records, lane_partition: NDArray[np.int32]
    ) -> None:
        """Send each record to the lane in which readers look for its key."""
        topic, partition = source
        layout, tally = self.layouts[topic], self._tally(source)
        folders = self._stray_folders.setdefault(source, {})
        routed_by = partition_keys(records.keys, layout.partition_by)
        number_of = lane_partition.astype(np.int64) * layout.stripes + stripe_column(
            routed_by, layout.stripes
        )
        for number in np.unique(number_of).tolist():
            lane = self._lane(topic, number // layout.stripes, number % layout.stripes)
            folder = folders.setdefault(lane, Folder(layout.options, COMPARED_RECORDS))
            for folded in folder.add(records.where(number_of == number)):
                self._put_strays(source, lane, folded)
        tally.strays += len(records)
        for name in PARTITIONERS:
            explained = partition_column(routed_by, layout.partition_count, name) == partition
            setattr(tally, name, getattr(tally, name) + int(explained.sum()))
        if layout.partition_by != WHOLE_KEY:
            by_whole_key = partition_column(records.keys, layout.partition_count, layout.partitioner)
            tally.whole_key += int((by_whole_key == partition).sum())

    def _send_open_strays(self, source: TopicPartition) -> None:
        for lane, folder in self._stray_folders.pop(source, {}).items():
            if (folded := folder.take()) is not None:
                self._put_strays(source, lane, folded)

    def _put_strays(self, source: TopicPartition, lane: LaneTarget, folded: Folded) -> None:
        chunk = folded.encode(lane.key_prefix, source[1])
        self.lanes.put_strays(lane, chunk, source[1], self._strays_to.get((source, lane), 0))
        self._strays_to[source, lane] = chunk.end_offset
        self._unnoted_strays.setdefault(source, {})[lane] = chunk.end_offset
        self._wait_for_large_chunk(chunk)
        self._tally(source).written += chunk.count
        self._has_unacknowledged_strays = True

    def _apply(self, lane: LaneTarget, folded: Folded | None, last: OffsetRange | None = None) -> None:
        """Send a chunk; `last`: the range to its end, where the chunk (or none) is the lane's last."""
        source = lane.topic, lane.partition
        self._send_open_strays(source)
        if self._has_unacknowledged_strays:
            self.lanes.flush()
            self._has_unacknowledged_strays = False
        if given := self._unnoted_strays.pop(source, None):
            for each in given:
                if self.lanes.is_parked(each):
                    self.held_back.setdefault(source, str(each))
        if source in self.held_back:
            return
        if given:
            self.lanes.note_strays(self._lane(*source, 0), given)
        begin = self._written_to.get(lane, self.ranges[source].begin)
        chunk = folded.encode(lane.key_prefix) if folded else None
        if last is not None:
            covered = OffsetRange(begin, last.end, last.complete_as_of_ms, last.log_end)
        else:
            covered = OffsetRange(begin, chunk.end_offset if chunk else begin)
        self.lanes.apply(lane, covered, chunk)
        if chunk:
            self._wait_for_large_chunk(chunk)
            self._tally(source).written += chunk.count
        self._written_to[lane] = covered.end

    def _wait_for_large_chunk(self, chunk: Chunk) -> None:
        """Flush after an oversized chunk, such as a single huge record, to bound the bytes in flight."""
        if len(chunk.arguments) > 2 * MAX_BYTES:
            self.lanes.flush()

    def _bound_memory(self) -> None:
        """Send all open chunks once they hold more than MAX_OPEN_BYTES together, though each is small."""
        strays = [folder for folders in self._stray_folders.values() for folder in folders.values()]
        if sum(folder.open_bytes for folder in (*self._folders.values(), *strays)) <= MAX_OPEN_BYTES:
            return
        for source in list(self._stray_folders):
            self._send_open_strays(source)
        for lane, folder in self._folders.items():
            if (folded := folder.take()) is not None:
                self._apply(lane, folded)

    def _tally(self, source: TopicPartition) -> Tally:
        return self.tallies.setdefault(source, Tally())

    def _lane(self, topic: str, partition: int, stripe: int) -> LaneTarget:
        name = topic, partition, stripe
        lane = self._targets.get(name)
        if lane is None:
            lane = self._targets[name] = LaneTarget.of(self.layouts[topic], partition, stripe)
        return lane
