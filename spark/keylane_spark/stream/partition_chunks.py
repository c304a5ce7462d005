"""Cuts the records of one partition into the chunks of its lanes, and sends them in their order.

rows of one partition -> records -> records of one lane -> folded chunks -> RESP bytes -> FCALL
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane.errors import RegistryUnavailable
from keylane.model.records import Layout
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.rows.change_events import apply_events
from keylane_spark.rows.chunks import COMPARED_RECORDS, MAX_BYTES, MAX_RECORDS, Chunk, Folded, Folder
from keylane_spark.rows.records import Records, Rows, stored_records
from keylane_spark.rows.routing import lane_column
from keylane_spark.rows.transforms import TopicTransform, transform_rows
from keylane_spark.schemas.framed_values import NO_REGISTRY, FramedReaders
from keylane_spark.telemetry.tally import Tally

Offsets: TypeAlias = NDArray[np.int64]
NOWHERE = -1
"""Where a partition stops that goes on."""


@dataclass(frozen=True, slots=True)
class ValueRules:
    """What is made of a topic's values before they are stored. `framed`: of those of a Schema Registry."""

    framed: FramedReaders = NO_REGISTRY
    transform: TopicTransform | None = None

    def changes_values(self, layout: Layout) -> bool:
        """Whether anything is made of the values."""
        return self.transform is not None or self.reads_events(layout)

    def reads_events(self, layout: Layout) -> bool:
        """Whether Kafka has change events."""
        if self.transform is not None:
            return self.transform.definition.envelope != "none"
        return layout.options.envelope != "none"


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
    is held back: its watermark stays where it is. So is one with a value whose schema can't be read, where
    that says what is stored: an event's, or that of a value with fields.
    """

    def __init__(
        self,
        sender: ChunkSender,
        layout: Layout,
        partition: int,
        begin: int,
        rules: ValueRules = ValueRules(),
    ) -> None:
        """`begin`: the offset below which the partition's own lanes have its records."""
        self.tally = Tally()
        self.reached: int | None = None
        self.held_back = ""
        self.stopped_at = NOWHERE
        self.failure = ""
        self._sender = sender
        self._layout = layout
        self._partition = partition
        self._rules = rules
        self._reads_events = rules.reads_events(layout)
        first = partition * layout.stripes
        numbers = range(first, first + layout.stripes)
        self.own = {number: self._open_chunk(number, begin) for number in numbers}
        """The chunks by the numbers of their lanes, as of `lane_column`."""
        self._first_lane = self.own[first].lane
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
        return sum(chunk.folder.open_bytes for chunk in (*self.own.values(), *self._strays.values()))

    @property
    def is_stopped(self) -> bool:
        """Whether the partition goes no further, for its topic's transform has failed."""
        return self.stopped_at != NOWHERE

    def add(self, rows: Rows) -> None:
        """Add rows to the chunks of their lanes, strays first, and send the chunks that are full."""
        if self.is_stopped:
            return
        self.reached = int(rows.offsets[-1]) + 1
        if self.held_back:
            return
        keyed = rows.with_keys()
        with_keys, invalid_offsets = len(keyed), rows.offsets[:0]
        if self._reads_events:
            try:
                keyed, invalid_offsets = apply_events(keyed, self._rules.framed.judge)
            except RegistryUnavailable as error:
                self.held_back = str(error)
                return
            self.tally.add_invalid(invalid_offsets)
        self.tally.add_rows(len(rows), with_keys)
        if self._rules.transform is not None:
            keyed = self._transform(keyed, invalid_offsets, self._rules.transform)
        records = stored_records(keyed, self._layout.options)
        self.tally.add(records)
        self._add_records(records, lane_column(records.keys, self._layout))

    def _transform(self, rows: Rows, invalid_offsets: Offsets, transform: TopicTransform) -> Rows:
        found = transform_rows(rows, invalid_offsets, self._partition, transform)
        self.tally.left_out += found.left_out
        self.tally.add_failed(found.failed_offsets)
        self.failure = self.failure or found.why
        if found.stopped_at is not None:
            self.reached = self.stopped_at = found.stopped_at
        return found.rows

    def _add_records(self, records: Records, numbers: NDArray[np.int32]) -> None:
        """Add records to the chunks of their lanes, whose `numbers` are as of `lane_column`."""
        is_one = bool((numbers == numbers[:1]).all())
        lanes = numbers[:1].tolist() if is_one else np.unique(numbers).tolist()
        if any(number not in self.own for number in lanes):
            is_stray = numbers // self._layout.stripes != self._partition
            self.tally.add_strays(records.keys.filter(pa.array(is_stray)), self._partition, self._layout)
        for number in sorted(lanes, key=lambda each: each in self.own):  # strays first
            part = records if is_one else records.where(numbers == number)
            if chunk := self.own.get(number):
                for folded in chunk.folder.add(part, self._most_records(chunk.lane)):
                    self._apply(chunk, folded)
                continue
            if number not in self._strays:
                self._strays[number] = self._open_chunk(number, 0)
            chunk = self._unsent_strays[number] = self._strays[number]
            for folded in chunk.folder.add(part):
                self._put_strays(chunk, folded)

    def _most_records(self, lane: LaneTarget) -> int:
        """How many records a chunk of this lane may carry."""
        return COMPARED_RECORDS if self._sender.lanes.is_compared(lane) else MAX_RECORDS

    def fits_one_chunk(self, count: int) -> bool:
        """Whether so many records fit into one chunk of any of the partition's lanes."""
        return all(count <= self._most_records(chunk.lane) for chunk in self.own.values())

    def note_own(self, rows: Rows, records: Records, record_bytes: int) -> None:
        """Note rows of which all records are in the partition's own lanes: `hold` takes their folds.

        `record_bytes`: their total, as of `Records.total_bytes`.
        """
        self.reached = int(rows.offsets[-1]) + 1
        self.tally.add_rows(len(rows), len(records))
        self.tally.add(records, record_bytes)

    def hold(self, number: int, folded: Folded, size_bytes: int) -> None:
        """Take the fold of some records of a lane as its open chunk; it has none yet."""
        self.own[number].folder.hold(folded, size_bytes)

    def send_strays(self) -> None:
        """Send the open chunks of strays."""
        unsent, self._unsent_strays = self._unsent_strays, {}
        for chunk in unsent.values():
            if (folded := chunk.folder.take()) is not None:
                self._put_strays(chunk, folded)

    def send_own(self) -> None:
        """Send the open chunks of the partition's own lanes."""
        for chunk in self.own.values():
            if (folded := chunk.folder.take()) is not None:
                self._apply(chunk, folded)

    def finish(self, last: OffsetRange, encoded: Mapping[int, Chunk]) -> None:
        """Send what is open, and move the watermarks to the range's end, or to where the partition stops.

        `encoded`: open chunks, by lane.
        """
        if self.is_stopped:
            last = OffsetRange(last.begin, self.stopped_at, log_end=last.log_end)
        for number, chunk in self.own.items():
            self._apply(chunk, chunk.folder.take(), last, encoded.get(number))

    def _put_strays(self, chunk: _OpenChunk, folded: Folded) -> None:
        if (indexed := self._with_fields(folded)) is None:
            return
        encoded = indexed.encode(chunk.lane.key_prefix, self._partition)
        self._sender.put_strays(chunk.lane, encoded, self._partition, chunk.sent_to)
        chunk.sent_to = self._given[chunk.lane] = encoded.end_offset
        self.tally.written += encoded.count

    def _apply(
        self,
        chunk: _OpenChunk,
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
                self.held_back = self.held_back or f"it has a stray for lane {lane}, which is parked"
        if self.held_back:
            return
        if given:
            self._sender.lanes.note_strays(self._first_lane, given)
        if folded and not encoded:
            if (indexed := self._with_fields(folded)) is None:
                return
            encoded = indexed.encode(chunk.lane.key_prefix, in_order=chunk.lane.in_order)
        if last is not None:
            covered = OffsetRange(chunk.sent_to, last.end, last.complete_as_of_ms, last.log_end)
        else:
            covered = OffsetRange(chunk.sent_to, encoded.end_offset if encoded else chunk.sent_to)
        self._sender.apply(chunk.lane, covered, encoded)
        chunk.sent_to = covered.end
        self.tally.written += encoded.count if encoded else 0

    def _with_fields(self, folded: Folded) -> Folded | None:
        """The chunk with what indexes of fields have of it; None where the partition is held back."""
        try:
            folded, invalid = folded.with_fields(self._layout.options, self._rules.framed.decode)
        except RegistryUnavailable as error:
            self.held_back = self.held_back or str(error)
            return None
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
