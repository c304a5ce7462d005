"""Writes one micro-batch into its lanes, on the driver (small batches) or in a task (large ones).

Few rows of many partitions go through each step together; others are a partition's own, see
`partition_chunks`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout
from keylane_spark.adapters.framed_values import NO_REGISTRY, FramedReaders
from keylane_spark.adapters.lane import OffsetRange
from keylane_spark.adapters.lane_writer import LaneWriter
from keylane_spark.columns.chunks import Chunk, encode_together
from keylane_spark.columns.records import Rows, stored_records
from keylane_spark.columns.routing import lane_column
from keylane_spark.columns.transforms import TopicTransform
from keylane_spark.stream.partition_chunks import NOWHERE, ChunkSender, PartitionChunks, ValueRules
from keylane_spark.telemetry.tally import Tally

NO_TRANSFORMS: Mapping[str, TopicTransform] = {}
MAX_OPEN_BYTES = 64 * 1024 * 1024
"""The most that the open chunks of all lanes may hold: a task's partition may have thousands of stripes."""
FEW_ROWS, FEW_BYTES = 100, 64 * 1024
"""Up to so many rows of a partition wait for those of others: each step by columns costs the same for few."""
MAX_WAITING_BYTES = 8 * 1024 * 1024


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
        self._partitions: dict[TopicPartition, PartitionChunks] = {}
        self._open_bytes = 0
        self._waiting: dict[TopicPartition, Rows] = {}
        self._waiting_bytes = 0
        self._read_to_end: set[TopicPartition] = set()
        """Those that wait, and have no more rows."""
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
        if len(rows) <= FEW_ROWS and source not in self._partitions and source not in self._waiting:
            held_bytes = rows.held_bytes
            if held_bytes <= FEW_BYTES:
                self._waiting[source] = rows
                self._waiting_bytes += held_bytes
                if self._waiting_bytes > MAX_WAITING_BYTES:
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
            together = self._add_together(self._layouts[topic], own) if len(own) > 1 else set()
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

        The others have rows without a key, or strays, or their values are changed before they are stored.
        """
        if self._rules_of(layout).changes_values(layout):
            return set()
        waiting = {source: rows for source, rows in waiting.items() if not rows.keys.null_count}
        if not waiting:
            return set()
        rows = Rows.joined([*waiting.values()])
        records = stored_records(rows, layout.options)
        counts = [len(each) for each in waiting.values()]
        numbers = lane_column(records.keys, layout)
        partitions = np.repeat([partition for _, partition in waiting], counts)
        is_stray = numbers // layout.stripes != partitions
        are_distinct = len(records.keys.unique()) == len(records)
        sizes = records.sizes
        ends = np.cumsum(counts).tolist()
        added = set()
        for source, begin, end in zip(waiting, [0, *ends[:-1]], ends, strict=True):
            rows_of = slice(begin, end)
            if is_stray[rows_of].any():
                continue
            chunks = self._chunks(source)
            part = records.part(begin, end)
            chunks.add_own(part, sizes[rows_of], numbers[rows_of], are_distinct=are_distinct)
            self._note_open(chunks.open_bytes)
            added.add(source)
        return added

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
        reached = self.reached.items()
        self._finish({source: OffsetRange(self.ranges[source].begin, end) for source, end in reached})

    def note_range_read(self, source: TopicPartition) -> None:
        """Note that the partition's rows have all come: its range has been read to its end."""
        chunks = self._partitions.get(source)
        if source in self._waiting:
            self._read_to_end.add(source)
        elif chunks is None or not chunks.is_stopped:
            self._chunks(source).reached = self.ranges[source].end

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
        for source in ranges:
            self._chunks(source).send_strays()
        encoded = self._encode_small(ranges)
        for source, last in ranges.items():
            self._chunks(source).finish(last, encoded.get(source, {}))
        self._sender.flush()
        self._open_bytes = sum(each.open_bytes for each in self._partitions.values())

    def _encode_small(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, dict[int, Chunk]]:
        """The open chunks of few records, by partition and lane number, encoded together."""
        small = [
            (source, number, chunk.lane.key_prefix, folded)
            for source in sources
            for number, chunk in self._chunks(source).own.items()
            if (folded := chunk.folder.open_chunk)
            and len(folded.records) <= FEW_ROWS
            and not chunk.lane.options.fields
            and chunk.folder.open_bytes <= FEW_BYTES
        ]
        encoded: dict[TopicPartition, dict[int, Chunk]] = {}
        if len(small) > 1:
            _, _, prefixes, chunks = zip(*small, strict=True)
            for (source, number, _, _), chunk in zip(small, encode_together(chunks, prefixes), strict=True):
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
