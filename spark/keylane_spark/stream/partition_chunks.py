"""The open chunks of one partition's lanes, which it sends in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from keylane.errors import RegistryUnavailable
from keylane.model.records import Layout
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.rows.chunks import (
    COMPARED_RECORDS,
    MAX_BYTES,
    MAX_RECORDS,
    Chunk,
    Delivery,
    Folded,
    OpenChunk,
    encode_chunks,
)
from keylane_spark.rows.compression import Compress, compress_chunks, keep_values
from keylane_spark.rows.fields import Decode, decode_none
from keylane_spark.rows.records import Rows
from keylane_spark.rows.stored_rows import PartCounts
from keylane_spark.telemetry.tally import Tally

NOWHERE = -1
"""Where a partition stops that goes on."""


@dataclass(slots=True)
class PartitionResult:
    """What became of a partition's rows.

    `reached`: the offset behind the last row that came, or the range's end; nothing below it is missing. None
    before the first row. `held_back`: why the partition goes no further. `stopped_at`: the offset of the
    record on which its transform failed, if it goes no further for that. `failure`: why the transform failed
    first, for the log.
    """

    tally: Tally = field(default_factory=Tally)
    reached: int | None = None
    held_back: str = ""
    stopped_at: int = NOWHERE
    failure: str = ""

    @property
    def is_stopped(self) -> bool:
        """Whether the partition goes no further, for its topic's transform has failed."""
        return self.stopped_at != NOWHERE


@dataclass(slots=True)
class LaneChunk:
    """The open chunk of a lane. `sent_to`: the offset up to which those before it were sent.

    `encoded`: the same, where it was encoded with those of other lanes.
    """

    lane: LaneTarget
    sent_to: int
    opened: OpenChunk
    encoded: Chunk | None = None


def encode_open(
    chunks: Iterable[LaneChunk], layouts: Mapping[str, Layout], decode: Decode, compress: Compress
) -> None:
    """Encode open chunks of lanes' own records together; `layouts`: of their topics.

    One with values whose schema can't be read is left, for its turn: it holds its partition back then.
    """
    found: list[tuple[LaneChunk, Folded]] = []
    for chunk in chunks:
        if (folded := chunk.opened.folded) is not None:
            try:
                found.append((chunk, folded.with_fields(chunk.lane.options, decode)))
            except RegistryUnavailable:
                continue
    by_topic: dict[str, list[tuple[LaneChunk, Folded]]] = {}
    for chunk, folded in found:
        by_topic.setdefault(chunk.lane.topic, []).append((chunk, folded))
    ready: list[tuple[LaneChunk, Folded]] = []
    for topic, own in by_topic.items():
        lanes, folds = zip(*own, strict=True)
        ready += zip(lanes, compress_chunks(folds, layouts[topic], compress), strict=True)
    if ready:
        deliveries = [chunk.lane.delivery(len(folded.records)) for chunk, folded in ready]
        encoded = encode_chunks([folded for _, folded in ready], deliveries)
        for (chunk, _), each in zip(ready, encoded, strict=True):
            chunk.encoded = each


class PartitionChunks:
    """The chunks of one partition's records, which are sent in this order.

    1. its strays, and a wait until they have arrived;
    2. a note of which lanes were given them;
    3. its own chunks, which move its watermark.

    So a watermark never claims strays that could still get lost. A partition with a stray for a parked lane
    is held back: its watermark stays where it is. So is one with a value whose schema can't be read, where
    that says what is stored: an event's, or that of a value with fields.
    """

    def __init__(
        self,
        sender: ChunkSender,
        layout: Layout,
        partition: int,
        begin: int,
        decode: Decode = decode_none,
        compress: Compress = keep_values,
    ) -> None:
        """`begin`: the offset below which the partition's own lanes have its records.

        `decode`: of values in a Schema Registry's wire format. `compress`: what shortens values.
        """
        self.result = PartitionResult()
        self.partition = partition
        self._sender = sender
        self._layout = layout
        self._decode = decode
        self._compress = compress
        first = partition * layout.stripes
        numbers = range(first, first + layout.stripes)
        self.own = {number: self._lane_chunk(number, begin) for number in numbers}
        """The chunks by the numbers of their lanes, as of `lane_column`."""
        self._first_lane = self.own[first].lane
        self._strays: dict[int, LaneChunk] = {}
        self._unsent_strays: dict[int, LaneChunk] = {}
        self._given: dict[LaneTarget, int] = {}
        """The offset up to which each lane was given strays, until that is noted in Redis."""

    def _lane_chunk(self, lane_number: int, sent_to: int) -> LaneChunk:
        partition, stripe = divmod(lane_number, self._layout.stripes)
        return LaneChunk(LaneTarget.of(self._layout, partition, stripe), sent_to, OpenChunk(COMPARED_RECORDS))

    @property
    def open_bytes(self) -> int:
        """The size of the open chunks."""
        return sum(chunk.opened.size_bytes for chunk in (*self.own.values(), *self._strays.values()))

    def takes(self, rows: Rows) -> bool:
        """Note that rows have come; returns whether they are to be written."""
        if self.result.is_stopped:
            return False
        self.result.reached = int(rows.offsets[-1]) + 1
        return not self.result.held_back

    def note(self, counts: PartCounts) -> None:
        """Note what became of rows."""
        self.result.tally.add(counts)
        if (transformed := counts.transformed) is not None:
            self.result.failure = self.result.failure or transformed.why
            if transformed.stopped_at is not None:
                self.result.reached = self.result.stopped_at = transformed.stopped_at

    def to_add_to(self, number: int) -> OpenChunk:
        """The open chunk of a lane, own or not, to which records are then added."""
        if chunk := self.own.get(number):
            is_compared = self._sender.lanes.is_compared(chunk.lane)
            chunk.opened.max_records = COMPARED_RECORDS if is_compared else MAX_RECORDS
            return chunk.opened
        if number not in self._strays:
            self._strays[number] = self._lane_chunk(number, 0)
        self._unsent_strays[number] = self._strays[number]
        return self._strays[number].opened

    def send_full(self, full: Mapping[int, Iterable[Folded]]) -> None:
        """Send chunks that are full, by the numbers of their lanes: strays first."""
        for number in sorted(full, key=lambda each: (each in self.own, each)):
            for folded in full[number]:
                if chunk := self.own.get(number):
                    self._apply(chunk, folded)
                else:
                    self._put_strays(self._strays[number], folded)

    def send_strays(self) -> None:
        """Send the open chunks of strays."""
        unsent, self._unsent_strays = self._unsent_strays, {}
        for chunk in unsent.values():
            if (folded := chunk.opened.take()) is not None:
                self._put_strays(chunk, folded)

    def send_own(self, last: OffsetRange | None) -> None:
        """Send the open chunks of the partition's own lanes.

        `last`: they are the batch's last, and move the watermarks to this range's end, or to where the
        partition stops.
        """
        if last and self.result.is_stopped:
            last = OffsetRange(last.begin, self.result.stopped_at, log_end=last.log_end)
        for chunk in self.own.values():
            folded, encoded = chunk.opened.take(), chunk.encoded
            chunk.encoded = None
            if folded or last:
                self._apply(chunk, folded, last, encoded)

    def _put_strays(self, chunk: LaneChunk, folded: Folded) -> None:
        if (encoded := self._encoded(folded, Delivery(chunk.lane.key_prefix), self.partition)) is None:
            return
        self._sender.put_strays(chunk.lane, encoded, self.partition, chunk.sent_to)
        chunk.sent_to = self._given[chunk.lane] = encoded.end_offset
        self._count(encoded)

    def _apply(
        self,
        chunk: LaneChunk,
        folded: Folded | None,
        last: OffsetRange | None = None,
        encoded: Chunk | None = None,
    ) -> None:
        """Send a chunk; `last`: the range to its end, where the chunk (or none) is the lane's last.

        `encoded`: the chunk, if it was encoded already.
        """
        self.send_strays()
        self._sender.wait_for_strays()
        given, self._given = self._given, {}
        for lane in given:
            if self._sender.lanes.is_parked(lane):
                self.hold_back(f"it has a stray for lane {lane}, which is parked")
        if self.result.held_back:
            return
        if given:
            self._sender.lanes.note_strays(self._first_lane, given)
        if folded and not encoded:
            encoded = self._encoded(folded, chunk.lane.delivery(len(folded.records)))
            if encoded is None:
                return
        if last is not None:
            covered = OffsetRange(chunk.sent_to, last.end, last.complete_as_of_ms, last.log_end)
        else:
            covered = OffsetRange(chunk.sent_to, encoded.end_offset if encoded else chunk.sent_to)
        self._sender.apply(chunk.lane, covered, encoded)
        chunk.sent_to = covered.end
        if encoded:
            self._count(encoded)

    def _encoded(self, folded: Folded, delivery: Delivery, source: int | None = None) -> Chunk | None:
        """The chunk, encoded; None where the partition is held back."""
        try:
            indexed = folded.with_fields(self._layout.options, self._decode)
        except RegistryUnavailable as error:
            self.hold_back(str(error))
            return None
        (indexed,) = compress_chunks([indexed], self._layout, self._compress)
        (encoded,) = encode_chunks([indexed], [delivery], source)
        return encoded

    def hold_back(self, why: str) -> None:
        """Go no further in this batch; the first reason is kept."""
        self.result.held_back = self.result.held_back or why

    def _count(self, sent: Chunk) -> None:
        self.result.tally.written += sent.count
        self.result.tally.invalid_fields += sent.invalid_fields


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
