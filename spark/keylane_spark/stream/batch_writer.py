"""Writes one micro-batch into its lanes, on the driver (small batches) or in a task (large ones).

Rows of any number of a topic's partitions go through each step at once: what is stored of them, the lanes,
the fold, and the encoding of chunks that stay open until the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from keylane.errors import RegistryUnavailable
from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout
from keylane_spark.lanes.lane import OffsetRange
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.rows.chunks import MAX_BYTES, MAX_RECORDS, Folded, OpenChunk, add_records, distinct
from keylane_spark.rows.compression import Compress, keep_values
from keylane_spark.rows.records import Rows
from keylane_spark.rows.stored_rows import LANES, StoredRows, store_rows
from keylane_spark.rows.transforms import TopicTransform
from keylane_spark.schemas.framed_values import NO_REGISTRY, FramedReaders
from keylane_spark.stream.partition_chunks import ChunkSender, PartitionChunks, PartitionResult, encode_open
from keylane_spark.telemetry.tally import Tally

NO_TRANSFORMS: Mapping[str, TopicTransform] = {}
MAX_OPEN_BYTES = 64 * 1024 * 1024
"""The most that the open chunks of all lanes may hold: a task's partition may have thousands of stripes."""
MAX_GROUP_BYTES = 4 * 1024 * 1024
"""So many rows wait for those of other partitions, since each step costs the same for few; so much of open
chunks is encoded at once."""


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
        compress: Compress = keep_values,
    ) -> None:
        """`framed`: for topics whose values are of a Schema Registry. `transforms`: by topic.

        `compress`: for topics with `compression`.
        """
        self.ranges = ranges
        self._layouts = layouts
        self._sender = ChunkSender(lanes)
        self._framed = framed
        self._transforms = transforms
        self._compress = compress
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
        """The counts of `results`."""
        return {source: each.tally for source, each in self.results.items()}

    @property
    def results(self) -> dict[TopicPartition, PartitionResult]:
        """What became of the rows of each partition that had any, or was read to its end."""
        self._add_waiting()
        found = {source: each.result for source, each in self._partitions.items()}
        return {source: each for source, each in found.items() if each.reached is not None}

    def write(self, source: TopicPartition, rows: Rows) -> None:
        """Write rows of a partition, which come in offset order; they have arrived once `finish` returns.

        Those of a partition without a range are skipped.
        """
        if source not in self.ranges:
            return
        layout, size_bytes = self._layouts[source[0]], rows.held_bytes
        is_first = source not in self._partitions and source not in self._waiting
        if is_first and len(rows) <= MAX_RECORDS and size_bytes <= MAX_BYTES:
            self._waiting[source] = rows
            self._waiting_bytes += size_bytes
            if (
                self._waiting_bytes > MAX_GROUP_BYTES
                or self._open_bytes + self._waiting_bytes > MAX_OPEN_BYTES
            ):
                self._add_waiting()
            return
        # There are enough rows of this partition by itself.
        chunks = self._chunks(source)
        if (before := self._waiting.pop(source, None)) is not None:
            self._waiting_bytes -= before.held_bytes
            self._add(layout, [(chunks, before)])
        self._add(layout, [(chunks, rows)])

    def _add_waiting(self) -> None:
        """Add the rows that wait, those of a topic at once."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        topics: dict[str, list[tuple[PartitionChunks, Rows]]] = {}
        for source, rows in waiting.items():
            topics.setdefault(source[0], []).append((self._chunks(source), rows))
        for topic, given in topics.items():
            self._add(self._layouts[topic], given)
        ended, self._read_to_end = self._read_to_end, set()
        for source in ended:
            self.note_range_read(source)

    def _add(self, layout: Layout, given: Sequence[tuple[PartitionChunks, Rows]]) -> None:
        """Add rows of a topic's partitions to the chunks of their lanes; send the chunks that are full."""
        taken = [(chunks, rows) for chunks, rows in given if chunks.takes(rows)]
        if not taken:
            return
        try:
            stored = store_rows(
                [(chunks.partition, rows) for chunks, rows in taken],
                layout,
                self._framed.judge,
                self._transforms.get(layout.topic),
            )
        except RegistryUnavailable as error:
            if len(taken) == 1:
                taken[0][0].hold_back(str(error))
                return
            for each in taken:  # the others go on
                self._add(layout, [each])
            return
        partitions = [chunks for chunks, _ in taken]
        for chunks, counts in zip(partitions, stored.counts, strict=True):
            chunks.note(counts)
        if len(stored.records):
            before = sum(chunks.open_bytes for chunks in partitions)
            _add_records(partitions, stored, layout)
            self._note_open(sum(chunks.open_bytes for chunks in partitions) - before)

    def _note_open(self, more_bytes: int) -> None:
        self._open_bytes += more_bytes
        if self._open_bytes > MAX_OPEN_BYTES:
            self._send(dict.fromkeys(self._partitions))

    def finish(self, partitions: Collection[TopicPartition]) -> None:
        """Move the watermarks of these partitions, with or without records, and wait for all replies."""
        covered = self.covered
        self._finish({source: covered[source] for source in partitions})

    @property
    def covered(self) -> dict[TopicPartition, OffsetRange]:
        """What was read of each partition's range: all of it, unless the partition is left.

        Of a partition that is left it is what came before, and nothing says as of when that is complete.
        """
        results, covered = self.results if self.left else {}, dict(self.ranges)
        for source in self.left:
            given = self.ranges[source]
            end = results[source].reached if source in results else None
            end = given.begin if end is None else end
            covered[source] = OffsetRange(given.begin, end, log_end=given.log_end)
        return covered

    def leave(self, source: TopicPartition, why: str) -> None:
        """Note that the rest of a partition's range is left for a later batch."""
        self.left[source] = why

    def finish_reached(self) -> None:
        """Move the watermarks to the last rows that came, and wait for all replies."""
        self._finish(
            {
                source: OffsetRange(self.ranges[source].begin, each.reached)
                for source, each in self.results.items()
                if source not in self._finished and each.reached is not None
            }
        )

    def note_range_read(self, source: TopicPartition) -> None:
        """Note that the partition's rows have all come: its range has been read to its end."""
        chunks = self._partitions.get(source)
        if source in self._waiting:
            self._read_to_end.add(source)
        elif chunks is None or not chunks.result.is_stopped:
            chunks = self._chunks(source)
            chunks.result.reached = self.ranges[source].end
            self._read.append(source)
            self._read_bytes += chunks.open_bytes
            if self._read_bytes > MAX_GROUP_BYTES:
                self._finish_read()

    def note_written(self, source: TopicPartition, end: int, result: PartitionResult) -> None:
        """Note that another writer has written the partition's rows below `end`."""
        chunks = self._partitions[source] = self._new_chunks(source, end)
        chunks.result = replace(result, reached=end)

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

    def _send(self, ranges: Mapping[TopicPartition, OffsetRange | None]) -> None:
        """Send all that is open of these partitions, and move their watermarks where a range is given."""
        for source in ranges:
            chunks = self._chunks(source)
            self._open_bytes -= chunks.open_bytes
            chunks.send_strays()
        for sources in self._in_groups(ranges):
            own = (chunk for source in sources for chunk in self._chunks(source).own.values())
            encode_open(own, self._layouts, self._framed.decode, self._compress)
            for source in sources:
                self._chunks(source).send_own(ranges[source])

    def _in_groups(self, sources: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
        """The partitions, so many at a time that their open chunks are not too large in total."""
        group: list[TopicPartition] = []
        group_bytes = 0
        for source in sources:
            group.append(source)
            group_bytes += self._chunks(source).open_bytes
            if group_bytes > MAX_GROUP_BYTES:
                yield group
                group, group_bytes = [], 0
        yield group

    def _chunks(self, source: TopicPartition) -> PartitionChunks:
        chunks = self._partitions.get(source)
        if chunks is None:
            chunks = self._partitions[source] = self._new_chunks(source, self.ranges[source].begin)
        return chunks

    def _new_chunks(self, source: TopicPartition, begin: int) -> PartitionChunks:
        topic, partition = source
        steps = self._framed.decode, self._compress
        return PartitionChunks(self._sender, self._layouts[topic], partition, begin, *steps)


def _add_records(partitions: Sequence[PartitionChunks], stored: StoredRows, layout: Layout) -> None:
    """Add records to the open chunks of their lanes, and send the chunks that are full."""
    # Each partition has chunks of its own for the lanes of its strays.
    opened: dict[int, OpenChunk] = {}
    strays: dict[int, list[int]] = {}
    for number in distinct(stored.lanes):
        part, lane = divmod(number, LANES)
        if lane not in partitions[part].own:
            strays.setdefault(part, []).append(number)
        opened[number] = partitions[part].to_add_to(lane)
    found = add_records(opened, stored.records, stored.lanes, layout.options)
    for part, numbers in strays.items():
        keys = stored.records.keys.filter(pa.array(np.isin(stored.lanes, numbers)))
        partitions[part].result.tally.add_strays(keys, partitions[part].partition, layout)
    full: dict[int, dict[int, list[Folded]]] = {}
    for number, chunks in found.items():
        part, lane = divmod(number, LANES)
        full.setdefault(part, {})[lane] = chunks
    for part in sorted(full):
        partitions[part].send_full(full[part])
