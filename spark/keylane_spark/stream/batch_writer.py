"""Writes one micro-batch into its lanes, on the driver (small batches) or in a task (large ones).

rows of one partition -> records -> records of one lane -> folded chunks -> RESP bytes -> FCALL
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout
from keylane_spark.adapters.event_schemas import judge_none
from keylane_spark.adapters.lane import LaneTarget, OffsetRange
from keylane_spark.adapters.lane_writer import LaneWriter
from keylane_spark.columns.change_events import Judge, apply_events
from keylane_spark.columns.chunks import COMPARED_RECORDS, MAX_BYTES, MAX_RECORDS, Chunk, Folded, Folder
from keylane_spark.columns.records import Rows, stored_records
from keylane_spark.columns.routing import lane_column
from keylane_spark.telemetry.tally import Tally

MAX_OPEN_BYTES = 64 * 1024 * 1024
"""The most that the open chunks of all lanes may hold: a task's partition may have thousands of stripes."""


class BatchWriter:
    """Writes the rows of a batch, then moves the watermark of every stripe to the end of the batch.

    A lane's last chunk stays open until the batch ends, so that each key is written once, however often it
    occurs in the batch; `PartitionChunks` says in which order chunks are sent.
    """

    def __init__(
        self,
        lanes: LaneWriter,
        layouts: Mapping[str, Layout],
        ranges: Mapping[TopicPartition, OffsetRange],
        judge_framed: Judge = judge_none,
    ) -> None:
        """`judge_framed`: as of `apply_events`, for topics with an envelope."""
        self.ranges = ranges
        self._layouts = layouts
        self._sender = ChunkSender(lanes)
        self._judge_framed = judge_framed
        self._partitions: dict[TopicPartition, PartitionChunks] = {}
        self._open_bytes = 0

    @property
    def tallies(self) -> dict[TopicPartition, Tally]:
        """The counts of each partition that had rows, or was read to its end."""
        return {source: each.tally for source, each in self._partitions.items() if each.reached is not None}

    @property
    def reached(self) -> dict[TopicPartition, int]:
        """The offset behind the last row that came, or the range's end; nothing below it is missing."""
        return {source: each.reached for source, each in self._partitions.items() if each.reached is not None}

    @property
    def held_back(self) -> dict[TopicPartition, str]:
        """Partitions that go no further, each with the parked lane for which it has a stray."""
        return {source: each.held_back for source, each in self._partitions.items() if each.held_back}

    def write(self, source: TopicPartition, rows: Rows) -> None:
        """Write rows of a partition, which come in offset order; they have arrived once `finish` returns.

        Those of a partition without a range are skipped.
        """
        if source not in self.ranges:
            return
        chunks = self._chunks(source)
        before = chunks.open_bytes
        chunks.add(rows)
        self._open_bytes += chunks.open_bytes - before
        if self._open_bytes > MAX_OPEN_BYTES:
            for each in self._partitions.values():
                each.send_strays()
            for each in self._partitions.values():
                each.send_own()
            self._open_bytes = 0

    def finish(self, partitions: Collection[TopicPartition]) -> None:
        """Move the watermarks of these partitions, with or without records, and wait for all replies."""
        self._finish({source: self.ranges[source] for source in partitions})

    def finish_reached(self) -> None:
        """Move the watermarks to the last rows that came, and wait for all replies."""
        reached = self.reached.items()
        self._finish({source: OffsetRange(self.ranges[source].begin, end) for source, end in reached})

    def note_range_read(self, source: TopicPartition) -> None:
        """Note that the partition's rows have all come: its range has been read to its end."""
        self._chunks(source).reached = self.ranges[source].end

    def note_written(self, source: TopicPartition, end: int, tally: Tally, held_back: str) -> None:
        """Note that another writer has written the partition's rows below `end`."""
        chunks = self._partitions[source] = self._new_chunks(source, end)
        chunks.reached, chunks.tally, chunks.held_back = end, tally, held_back

    def _finish(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        for source in ranges:
            self._chunks(source).send_strays()
        for source, last in ranges.items():
            self._chunks(source).finish(last)
        self._sender.flush()
        self._open_bytes = sum(each.open_bytes for each in self._partitions.values())

    def _chunks(self, source: TopicPartition) -> PartitionChunks:
        chunks = self._partitions.get(source)
        if chunks is None:
            chunks = self._partitions[source] = self._new_chunks(source, self.ranges[source].begin)
        return chunks

    def _new_chunks(self, source: TopicPartition, begin: int) -> PartitionChunks:
        topic, partition = source
        return PartitionChunks(self._sender, self._layouts[topic], partition, begin, self._judge_framed)


@dataclass(slots=True)
class _OpenChunk:
    """The chunk of a lane that has room. `sent_to`: the offset up to which those before it were sent."""

    lane: LaneTarget
    folder: Folder
    sent_to: int


class PartitionChunks:
    """The chunks of one partition's records, which are sent in this order.

    1. its strays, and a wait until they have arrived;
    2. a note of which lanes were given them;
    3. its own chunks, which move its watermark.

    So a watermark never claims strays that could still get lost. A partition with a stray for a parked lane
    is held back: its watermark stays where it is.
    """

    def __init__(
        self,
        sender: ChunkSender,
        layout: Layout,
        partition: int,
        begin: int,
        judge_framed: Judge = judge_none,
    ) -> None:
        """`begin`: the offset below which the partition's own lanes have its records."""
        self.tally = Tally()
        self.reached: int | None = None
        self.held_back = ""
        self._sender = sender
        self._layout = layout
        self._partition = partition
        self._judge_framed = judge_framed
        first = partition * layout.stripes
        numbers = range(first, first + layout.stripes)
        self._own = {number: self._open_chunk(number, begin) for number in numbers}
        """The chunks by the numbers of their lanes, as of `lane_column`."""
        self._first_lane = self._own[first].lane
        self._strays: dict[int, _OpenChunk] = {}
        self._unsent_strays: dict[int, _OpenChunk] = {}
        self._given: dict[LaneTarget, int] = {}
        """The offset up to which each lane was given strays, until that is noted in Redis."""

    def _open_chunk(self, lane_number: int, sent_to: int) -> _OpenChunk:
        partition, stripe = divmod(lane_number, self._layout.stripes)
        folder = Folder(self._layout.options, COMPARED_RECORDS)
        return _OpenChunk(LaneTarget.of(self._layout, partition, stripe), folder, sent_to)

    @property
    def open_bytes(self) -> int:
        """The size of the open chunks."""
        return sum(chunk.folder.open_bytes for chunk in (*self._own.values(), *self._strays.values()))

    def add(self, rows: Rows) -> None:
        """Add rows to the chunks of their lanes, strays first, and send the chunks that are full."""
        self.reached = int(rows.offsets[-1]) + 1
        keyed = rows.with_keys()
        if self._layout.options.envelope != "none":
            keyed, invalid_offsets = apply_events(keyed, self._judge_framed)
            self.tally.add_invalid(invalid_offsets)
        records = stored_records(keyed, self._layout.options)
        self.tally.add(len(rows), records)
        numbers = lane_column(records.keys, self._layout)
        is_one = bool((numbers == numbers[:1]).all())
        lanes = numbers[:1].tolist() if is_one else np.unique(numbers).tolist()
        if any(number not in self._own for number in lanes):
            is_stray = numbers // self._layout.stripes != self._partition
            self.tally.add_strays(records.keys.filter(pa.array(is_stray)), self._partition, self._layout)
        for number in sorted(lanes, key=lambda each: each in self._own):  # strays first
            part = records if is_one else records.where(numbers == number)
            if chunk := self._own.get(number):
                most = COMPARED_RECORDS if self._sender.lanes.is_compared(chunk.lane) else MAX_RECORDS
                for folded in chunk.folder.add(part, most):
                    self._apply(chunk, folded)
                continue
            if number not in self._strays:
                self._strays[number] = self._open_chunk(number, 0)
            chunk = self._unsent_strays[number] = self._strays[number]
            for folded in chunk.folder.add(part):
                self._put_strays(chunk, folded)

    def send_strays(self) -> None:
        """Send the open chunks of strays."""
        unsent, self._unsent_strays = self._unsent_strays, {}
        for chunk in unsent.values():
            if (folded := chunk.folder.take()) is not None:
                self._put_strays(chunk, folded)

    def send_own(self) -> None:
        """Send the open chunks of the partition's own lanes."""
        for chunk in self._own.values():
            if (folded := chunk.folder.take()) is not None:
                self._apply(chunk, folded)

    def finish(self, last: OffsetRange) -> None:
        """Send what is open, and move the watermarks to the range's end."""
        for chunk in self._own.values():
            self._apply(chunk, chunk.folder.take(), last)

    def _put_strays(self, chunk: _OpenChunk, folded: Folded) -> None:
        encoded = self._with_fields(folded).encode(chunk.lane.key_prefix, self._partition)
        self._sender.put_strays(chunk.lane, encoded, self._partition, chunk.sent_to)
        chunk.sent_to = self._given[chunk.lane] = encoded.end_offset
        self.tally.written += encoded.count

    def _apply(self, chunk: _OpenChunk, folded: Folded | None, last: OffsetRange | None = None) -> None:
        """Send a chunk; `last`: the range to its end, where the chunk (or none) is the lane's last."""
        self.send_strays()
        self._sender.wait_for_strays()
        given, self._given = self._given, {}
        for lane in given:
            if self._sender.lanes.is_parked(lane):
                self.held_back = self.held_back or str(lane)
        if self.held_back:
            return
        if given:
            self._sender.lanes.note_strays(self._first_lane, given)
        encoded = None
        if folded:
            encoded = self._with_fields(folded).encode(chunk.lane.key_prefix, in_order=chunk.lane.in_order)
        if last is not None:
            covered = OffsetRange(chunk.sent_to, last.end, last.complete_as_of_ms, last.log_end)
        else:
            covered = OffsetRange(chunk.sent_to, encoded.end_offset if encoded else chunk.sent_to)
        self._sender.apply(chunk.lane, covered, encoded)
        chunk.sent_to = covered.end
        self.tally.written += encoded.count if encoded else 0

    def _with_fields(self, folded: Folded) -> Folded:
        folded, invalid = folded.with_fields(self._layout.options)
        self.tally.invalid_fields += invalid
        return folded


class ChunkSender:
    """Sends encoded chunks of all partitions; bounds the bytes in flight, and knows of strays among them."""

    def __init__(self, lanes: LaneWriter) -> None:
        self.lanes = lanes
        self._has_strays_in_flight = False

    def put_strays(self, lane: LaneTarget, chunk: Chunk, source_partition: int, after: int) -> None:
        """Send strays, as `LaneWriter.put_strays`."""
        self.lanes.put_strays(lane, chunk, source_partition, after)
        self._has_strays_in_flight = True
        self._wait_for_large(chunk)

    def apply(self, lane: LaneTarget, covered: OffsetRange, chunk: Chunk | None) -> None:
        """Send a lane's own records, as `LaneWriter.apply`."""
        self.lanes.apply(lane, covered, chunk)
        if chunk:
            self._wait_for_large(chunk)

    def wait_for_strays(self) -> None:
        """Wait until all strays that were sent have arrived."""
        if self._has_strays_in_flight:
            self.flush()

    def flush(self) -> None:
        """Wait until all that was sent has arrived."""
        self.lanes.flush()
        self._has_strays_in_flight = False

    def _wait_for_large(self, chunk: Chunk) -> None:
        """Flush after an oversized chunk, such as a single huge record, to bound the bytes in flight."""
        if len(chunk.arguments) > 2 * MAX_BYTES:
            self.flush()
