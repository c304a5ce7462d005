"""Writes one micro-batch into its lanes, on the driver (small batches) or in a task (large ones).

Rows of many partitions go through each step together, if those of each fit into a chunk; others are a
partition's own, see `partition_chunks`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.lane_writer import PAYS_FROM_RECORDS, LaneWriter
from keylane_spark.rows.chunks import (
    MAX_BYTES,
    MAX_RECORDS,
    Chunk,
    Folded,
    encode_together,
    fold_together,
)
from keylane_spark.rows.records import Records, Rows, stored_records
from keylane_spark.rows.routing import lane_column
from keylane_spark.rows.transforms import TopicTransform
from keylane_spark.schemas.framed_values import NO_REGISTRY, FramedReaders
from keylane_spark.stream.partition_chunks import NOWHERE, ChunkSender, PartitionChunks, ValueRules
from keylane_spark.telemetry.tally import Tally

NO_TRANSFORMS: Mapping[str, TopicTransform] = {}
MAX_OPEN_BYTES = 64 * 1024 * 1024
"""The most that the open chunks of all lanes may hold: a task's partition may have thousands of stripes."""
MAX_TOGETHER_BYTES = 4 * 1024 * 1024
"""Rows of several partitions that go through the steps together: each step costs the same for few."""


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
        framed: FramedReaders = NO_REGISTRY,
        transforms: Mapping[str, TopicTransform] = NO_TRANSFORMS,
    ) -> None:
        """`framed`: for topics whose values are of a Schema Registry. `transforms`: by topic."""
        self.ranges = ranges
        self._layouts = layouts
        self._sender = ChunkSender(lanes)
        self._framed = framed
        self._transforms = transforms
        self._alone = {topic for topic, each in layouts.items() if self._rules_of(each).changes_values(each)}
        """Topics whose values are changed before they are stored."""
        self._partitions: dict[TopicPartition, PartitionChunks] = {}
        self._open_bytes = 0
        self._waiting: dict[TopicPartition, Rows] = {}
        self._waiting_bytes = 0
        self._read_to_end: set[TopicPartition] = set()
        """Those that wait, and have no more rows."""
        self._read: list[TopicPartition] = []
        """Those of which the chunks are open, and have all their rows."""
        self._read_bytes = 0
        self._finished: set[TopicPartition] = set()
        """Those of which all was sent."""
        self.left: dict[TopicPartition, str] = {}
        """Partitions whose range was not read to its end, because their leaders went away; and why."""

    @property
    def tallies(self) -> dict[TopicPartition, Tally]:
        """The counts of each partition that had rows, or was read to its end."""
        self._add_waiting()
        return {source: each.tally for source, each in self._partitions.items() if each.reached is not None}

    @property
    def reached(self) -> dict[TopicPartition, int]:
        """The offset behind the last row that came, or the range's end; nothing below it is missing."""
        self._add_waiting()
        return {source: each.reached for source, each in self._partitions.items() if each.reached is not None}

    @property
    def held_back(self) -> dict[TopicPartition, str]:
        """Partitions that go no further, each with the reason."""
        return {source: each.held_back for source, each in self._partitions.items() if each.held_back}

    @property
    def stopped(self) -> dict[TopicPartition, int]:
        """Partitions that go no further, each with the offset of the record on which its transform failed."""
        return {source: each.stopped_at for source, each in self._partitions.items() if each.is_stopped}

    @property
    def failures(self) -> dict[TopicPartition, str]:
        """Why the transform failed on the first record of each partition on which it did; for the log."""
        return {source: each.failure for source, each in self._partitions.items() if each.failure}

    def write(self, source: TopicPartition, rows: Rows) -> None:
        """Write rows of a partition, which come in offset order; they have arrived once `finish` returns.

        Those of a partition without a range are skipped.
        """
        if source not in self.ranges:
            return
        is_first = source not in self._partitions and source not in self._waiting
        if is_first and source[0] not in self._alone and len(rows) <= MAX_RECORDS:
            held_bytes = rows.held_bytes
            if held_bytes <= MAX_BYTES:
                self._waiting[source] = rows
                self._waiting_bytes += held_bytes
                if self._waiting_bytes > MAX_TOGETHER_BYTES:
                    self._add_waiting()
                return
        if source in self._waiting:
            self._add(source, self._waiting.pop(source))
        self._add(source, rows)

    def _add(self, source: TopicPartition, rows: Rows) -> None:
        chunks = self._chunks(source)
        before = chunks.open_bytes
        chunks.add(rows)
        self._note_open(chunks.open_bytes - before)

    def _note_open(self, more_bytes: int) -> None:
        self._open_bytes += more_bytes
        if self._open_bytes > MAX_OPEN_BYTES:
            for each in self._partitions.values():
                each.send_strays()
            for each in self._partitions.values():
                each.send_own()
            self._open_bytes = 0

    def _add_waiting(self) -> None:
        """Add the rows that wait, those of a topic together."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        topics: dict[str, dict[TopicPartition, Rows]] = {}
        for source, rows in waiting.items():
            topics.setdefault(source[0], {})[source] = rows
        for topic, own in topics.items():
            together = self._add_together(self._layouts[topic], own) if len(own) > 1 else {}
            for source, rows in own.items():
                if source not in together:
                    self._add(source, rows)
        ended, self._read_to_end = self._read_to_end, set()
        for source in ended:
            self.note_range_read(source)

    def _add_together(
        self, layout: Layout, waiting: Mapping[TopicPartition, Rows]
    ) -> Collection[TopicPartition]:
        """Add rows of a topic's partitions that have no chunks; returns those of which the rows were added.

        The others have rows without a key, strays, or more rows than a chunk of theirs carries.
        """
        parts = [
            (source, rows)
            for source, rows in sorted(waiting.items())
            if not rows.keys.null_count and self._chunks(source).fits_one_chunk(len(rows))
        ]
        if not parts:
            return ()
        records = stored_records(Rows.joined([rows for _, rows in parts]), layout.options)
        numbers = lane_column(records.keys, layout)
        partitions = np.repeat([partition for (_, partition), _ in parts], [len(rows) for _, rows in parts])
        with_strays = np.unique(partitions[numbers // layout.stripes != partitions])
        if len(with_strays):
            own = ~np.isin(partitions, with_strays)
            records, numbers, partitions = records.where(own), numbers[own], partitions[own]
            parts = [each for each in parts if each[0][1] not in with_strays]
        if not parts:
            return ()
        sizes = records.sizes
        ends = np.cumsum([len(rows) for _, rows in parts])
        left_bytes = 0 if records.left_bytes is None else records.left_bytes
        totals = np.add.reduceat(sizes + left_bytes, [0, *ends[:-1]]).tolist()
        begin = 0
        for (source, rows), end, total in zip(parts, ends.tolist(), totals, strict=True):
            self._chunks(source).note_own(rows, records.part(begin, end), total)
            begin = end
        self._hold_together(layout, records, numbers)
        return {source for source, _ in parts}

    def _hold_together(self, layout: Layout, records: Records, numbers: NDArray[np.int32]) -> None:
        """Fold records, those of a partition behind those of another, and hold the folds as chunks."""
        if layout.stripes > 1:
            order = np.argsort(numbers, kind="stable")
            records, numbers = records.take(order), numbers[order]
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        counts = np.diff(begins, append=len(numbers)).tolist()
        chunks, sizes = fold_together(records, counts, layout.options)
        for number, folded, held_bytes in zip(numbers[begins].tolist(), chunks, sizes, strict=True):
            self._partitions[layout.topic, number // layout.stripes].hold(number, folded, held_bytes)
            self._note_open(held_bytes)

    def finish(self, partitions: Collection[TopicPartition]) -> None:
        """Move the watermarks of these partitions, with or without records, and wait for all replies."""
        covered = self.covered
        self._finish({source: covered[source] for source in partitions})

    @property
    def covered(self) -> dict[TopicPartition, OffsetRange]:
        """What was read of each partition's range: all of it, unless the partition is left.

        Of a partition that is left it is what came before, and nothing says as of when that is complete.
        """
        reached, covered = self.reached if self.left else {}, dict(self.ranges)
        for source in self.left:
            given = self.ranges[source]
            end = reached.get(source, given.begin)
            covered[source] = OffsetRange(given.begin, end, log_end=given.log_end)
        return covered

    def leave(self, source: TopicPartition, why: str) -> None:
        """Note that the rest of a partition's range is left for a later batch."""
        self.left[source] = why

    def finish_reached(self) -> None:
        """Move the watermarks to the last rows that came, and wait for all replies."""
        reached = {each: end for each, end in self.reached.items() if each not in self._finished}
        self._finish({each: OffsetRange(self.ranges[each].begin, end) for each, end in reached.items()})

    def note_range_read(self, source: TopicPartition) -> None:
        """Note that the partition's rows have all come: its range has been read to its end."""
        chunks = self._partitions.get(source)
        if source in self._waiting:
            self._read_to_end.add(source)
        elif chunks is None or not chunks.is_stopped:
            chunks = self._chunks(source)
            chunks.reached = self.ranges[source].end
            self._read.append(source)
            self._read_bytes += chunks.open_bytes
            if self._read_bytes > MAX_TOGETHER_BYTES:
                self._finish_read()

    def note_written(
        self,
        source: TopicPartition,
        end: int,
        tally: Tally,
        held_back: str,
        stopped_at: int = NOWHERE,
        failure: str = "",
    ) -> None:
        """Note that another writer has written the partition's rows below `end`.

        `stopped_at`, `failure`: as of `stopped` and `failures`.
        """
        chunks = self._partitions[source] = self._new_chunks(source, end)
        chunks.reached, chunks.tally, chunks.held_back = end, tally, held_back
        chunks.stopped_at, chunks.failure = stopped_at, failure

    def _finish(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        self._add_waiting()
        self._send(ranges)
        self._sender.flush()

    def _finish_read(self) -> None:
        """Move the watermarks of partitions that were read to their end; `finish_reached` waits for it."""
        read, self._read, self._read_bytes = self._read, [], 0
        self._finished.update(read)
        ranges = {each: self.ranges[each] for each in read}
        self._send({each: OffsetRange(given.begin, given.end) for each, given in ranges.items()})

    def _send(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        """Send all that is open of these partitions, and move their watermarks."""
        for source in ranges:
            chunks = self._chunks(source)
            self._open_bytes -= chunks.open_bytes
            chunks.send_strays()
        for sources in self._in_groups(ranges):
            encoded = self._encode_together(sources)
            for source in sources:
                self._chunks(source).finish(ranges[source], encoded.get(source, {}))

    def _in_groups(self, sources: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
        """The partitions, so many at a time that their open chunks are not too large together."""
        group: list[TopicPartition] = []
        group_bytes = 0
        for source in sources:
            group.append(source)
            group_bytes += self._chunks(source).open_bytes
            if group_bytes > MAX_TOGETHER_BYTES:
                yield group
                group, group_bytes = [], 0
        yield group

    def _encode_together(self, sources: Iterable[TopicPartition]) -> dict[TopicPartition, dict[int, Chunk]]:
        """The open chunks that can be encoded together, by partition and lane number."""
        found = [
            (source, number, chunk.lane.key_prefix, folded, is_mset)
            for source in sources
            for number, chunk in self._chunks(source).own.items()
            if (folded := chunk.folder.open_chunk) and (is_mset := _is_mset(chunk.lane, folded)) is not None
        ]
        encoded: dict[TopicPartition, dict[int, Chunk]] = {}
        if len(found) > 1:
            _, _, prefixes, chunks, are_msets = zip(*found, strict=True)
            together = encode_together(chunks, prefixes, are_msets)
            for (source, number, *_), chunk in zip(found, together, strict=True):
                encoded.setdefault(source, {})[number] = chunk
        return encoded

    def _chunks(self, source: TopicPartition) -> PartitionChunks:
        chunks = self._partitions.get(source)
        if chunks is None:
            chunks = self._partitions[source] = self._new_chunks(source, self.ranges[source].begin)
        return chunks

    def _new_chunks(self, source: TopicPartition, begin: int) -> PartitionChunks:
        topic, partition = source
        layout = self._layouts[topic]
        return PartitionChunks(self._sender, layout, partition, begin, self._rules_of(layout))

    def _rules_of(self, layout: Layout) -> ValueRules:
        return ValueRules(self._framed, self._transforms.get(layout.topic))


def _is_mset(lane: LaneTarget, folded: Folded) -> bool | None:
    """Whether a chunk may go as a transaction of one MSET, or goes as a call.

    None where it has more than its records: it is encoded by itself.
    """
    if lane.options.fields:
        return None
    in_order = lane.in_order
    if in_order is None or len(folded.records) < PAYS_FROM_RECORDS:
        return False
    return True if in_order.has_records_only and not folded.records.values.null_count else None
