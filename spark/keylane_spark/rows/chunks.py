"""Records of one lane -> folded chunks -> RESP bytes, without a Python loop over rows.

A chunk is one call of the function library `keylane`. It carries the fold of its records (see `fold`), and
ends where it would carry too many records or bytes. So a key that is written a million times in a row is
written once, and the watermark still moves chunk by chunk with nothing missing below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from keylane.model.records import Options
from keylane_spark.rows.encoding import encode_of_lanes, encode_records
from keylane_spark.rows.fields import Decode, decode_none, field_entries
from keylane_spark.rows.fold import Repeats, first_set_stays, kept, most_per_key, needless_sets, risen
from keylane_spark.rows.ordered_writes import InOrder, OrderedWrites, encode_in_order
from keylane_spark.rows.records import Records

MAX_RECORDS = 2000
MAX_BYTES = 512 * 1024
COMPARED_RECORDS = 200
"""The same where each record is compared with what is stored, which takes five to twenty times as long."""

_PLAIN = Options()


@dataclass(frozen=True, slots=True)
class Chunk:
    """One call's records as RESP.

    `end_offset`: one past the last record read, carried or not. `arguments`: `count` pairs of key and
    envelope (see `state.codec`) as bulk strings, in offset order. `ordered`: the same as commands, for a lane
    that takes records as they come; None for others.
    """

    end_offset: int
    newest_timestamp_ms: int
    count: int
    has_tombstones: bool
    arguments: memoryview
    ordered: OrderedWrites | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """The fold of the records from the previous chunk's end to `end_offset`.

    `newest_timestamp_ms`: of all these records, carried or not.
    """

    records: Records
    end_offset: int
    newest_timestamp_ms: int

    def with_fields(self, options: Options, decode: Decode = decode_none) -> tuple[Folded, int]:
        """Add what indexes of fields have of the records; returns how many values no index can have.

        Errors as of `field_entries`.
        """
        if not options.fields:
            return self, 0
        entries, invalid = field_entries(self.records.values, options, decode)
        return replace(self, records=replace(self.records, fields=entries)), invalid

    def encode(
        self, key_prefix: bytes, source_partition: int | None = None, in_order: InOrder | None = None
    ) -> Chunk:
        """Encode as RESP; `key_prefix` precedes each key in Redis, a source partition marks strays."""
        records = self.records
        arguments = encode_records(records, key_prefix, source_partition)
        return Chunk(
            self.end_offset,
            self.newest_timestamp_ms,
            len(records),
            records.values.null_count > 0,
            arguments,
            encode_in_order(records, key_prefix, in_order, arguments) if in_order else None,
        )


def encode_together(
    chunks: Sequence[Folded], key_prefixes: Sequence[bytes], are_msets: Sequence[bool]
) -> list[Chunk]:
    """As `Folded.encode` of chunks of different lanes, at least one.

    `are_msets`: whether the lane takes the chunk as an MSET and nothing else; it is `ordered` then.
    """
    records = Records.joined([chunk.records for chunk in chunks])
    counts = [len(chunk.records) for chunk in chunks]
    tombstones = np.add.reduceat(records.tombstones, np.cumsum([0, *counts[:-1]])).tolist()
    encoded = encode_of_lanes(records, counts, key_prefixes)
    return [
        Chunk(
            chunk.end_offset,
            chunk.newest_timestamp_ms,
            count,
            bool(deleted),
            arguments,
            OrderedWrites(count, arguments, (), 0) if is_mset else None,
        )
        for chunk, count, deleted, arguments, is_mset in zip(
            chunks, counts, tombstones, encoded, are_msets, strict=True
        )
    ]


def fold_together(
    records: Records, counts: Sequence[int], options: Options
) -> tuple[list[Folded], list[int]]:
    """The folds of several lanes' records, one lane behind the other, and their bytes: each is one chunk.

    `counts`: how many records each lane has, at least one. No key is in two lanes.
    """
    ends: NDArray[np.int64] = np.cumsum(counts)
    begins = ends - np.array(counts, np.int64)
    offsets = (records.offsets[ends - 1] + 1).tolist()
    newest_ms = np.maximum.reduceat(records.timestamps_ms, begins).tolist()
    repeats = _repeats(records)
    if repeats is not None and most_per_key(options, len(records)) > 1:
        parts = zip(begins.tolist(), ends.tolist(), strict=True)
        alone = [_fold_alone(records.part(begin, end), options) for begin, end in parts]
        return alone, [int(each.records.sizes.sum()) for each in alone]
    if repeats is not None:
        if _order_falls(records.order, repeats.previous):
            records = replace(records, order_ms=risen(repeats, records.order))
        last = repeats.following == len(records)
        records = records.where(last)
        ends = np.cumsum(np.add.reduceat(last, begins))
    bounds = [0, *ends.tolist()]
    folded = [
        Folded(records.part(begin, end), offset, newest)
        for (begin, end), offset, newest in zip(pairwise(bounds), offsets, newest_ms, strict=True)
    ]
    return folded, np.add.reduceat(records.sizes, bounds[:-1]).tolist()


def _fold_alone(records: Records, options: Options) -> Folded:
    """The fold of a lane's records."""
    keyed = _KeyedRecords(records, options)
    return replace(keyed.fold(0, len(keyed), 0), end_offset=int(records.offsets[-1]) + 1)


class Folder:
    """Cuts the records of one lane into folded chunks, however they are spread over batches.

    Between two calls of `add` it keeps the fold of the open chunk, which still has room. That is within a
    chunk's bounds, unless one record alone is larger, and a copy, so that no batch is kept alive.
    """

    def __init__(
        self, options: Options = _PLAIN, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES
    ) -> None:
        self._options = options
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._open: Folded | None = None
        self.open_bytes = 0

    def add(self, records: Records, max_records: int | None = None) -> Iterator[Folded]:
        """Add records in offset order; yields the chunks that are full. `max_records`: from now on."""
        if not len(records):
            return
        self._max_records = max_records or self._max_records
        if self._open is not None and len(self._open.records) > self._max_records:
            # Divided it would lack what its later records have replaced.
            yield self._open
            self._open = None
        end_offset = int(records.offsets[-1]) + 1
        newest_ms = 0
        if self._open is not None:
            newest_ms = self._open.newest_timestamp_ms
            records = Records.joined([self._open.records, records])
        self._open = None
        keyed = _KeyedRecords(records, self._options)
        start = 0
        while (end := keyed.chunk_end(start, self._max_records, self._max_bytes)) < len(keyed):
            yield keyed.fold(start, end, newest_ms)
            start, newest_ms = end, 0
        rest = keyed.fold(start, end, newest_ms)
        self._open = replace(rest, records=rest.records.copy(), end_offset=end_offset)
        self.open_bytes = int(rest.records.sizes.sum())

    def hold(self, folded: Folded, size_bytes: int) -> None:
        """Take the fold of some records as the open chunk: there is none yet."""
        self._open, self.open_bytes = folded, size_bytes

    @property
    def open_chunk(self) -> Folded | None:
        """What `take` would return."""
        return self._open

    def take(self) -> Folded | None:
        """Close the open chunk and return it; None when there is none."""
        taken, self._open, self.open_bytes = self._open, None, 0
        return taken


class _KeyedRecords:
    """Records of one lane, and which of them have the same key."""

    def __init__(self, records: Records, options: Options) -> None:
        self._repeats = _repeats(records)
        if self._repeats is not None and first_set_stays(options):
            needless = needless_sets(self._repeats, records.tombstones)
            if needless.any():
                records = records.where(~needless)
                self._repeats = _repeats(records)
        self._records = records
        self._options = options
        self._sizes = records.sizes
        self._most_per_key = most_per_key(options, len(records))
        if self._repeats is None:
            self._replaced = np.full(len(records), -1, np.int64)
        elif self._most_per_key == 1:
            self._replaced = self._repeats.previous
        else:
            self._replaced = self._repeats.previous_but(self._most_per_key)

    def __len__(self) -> int:
        return len(self._records)

    def chunk_end(self, start: int, max_records: int, max_bytes: int) -> int:
        """The row at which the chunk that begins at `start` ends: within both limits, but one row at least.

        A record that replaces an earlier one adds no record, and only the difference in bytes; where more
        than one record of a key is kept, all of its bytes.
        """
        window = max_records
        while True:
            stop = min(start + window, len(self))
            replaced = self._replaced[start:stop]
            is_more = replaced < start
            sizes = self._sizes[start:stop]
            if self._most_per_key == 1:
                sizes = sizes - np.where(is_more, 0, self._sizes[replaced])
            over = (np.cumsum(is_more) > max_records) | (np.cumsum(sizes) > max_bytes)
            if over.any():
                return start + max(1, int(over.argmax()))
            if stop == len(self):
                return stop
            window *= 4

    def fold(self, start: int, end: int, newest_ms: int) -> Folded:
        """Fold the rows [start, end)."""
        rows = self._records.part(start, end)
        end_offset = int(rows.offsets[-1]) + 1
        newest_ms = max(newest_ms, int(rows.timestamps_ms.max()))
        if self._repeats is not None:
            rows = self._fold_repeats(self._repeats, rows, start, end)
        return Folded(rows, end_offset, newest_ms)

    def _fold_repeats(self, repeats: Repeats, rows: Records, start: int, end: int) -> Records:
        before = repeats.previous[start:end] - start
        if (before < 0).all():
            return rows
        order_falls = _order_falls(rows.order, before)
        if self._most_per_key == 1 and not order_falls:
            return rows.where(repeats.following[start:end] >= end)
        own = Repeats(repeats.codes[start:end])
        if order_falls:
            rows = replace(rows, order_ms=risen(own, rows.order))
        return rows.where(kept(own, rows.timestamps_ms, rows.tombstones, self._options))


def _order_falls(order: NDArray[np.int64], before: NDArray[np.int64]) -> bool:
    """Whether a row's order is lower than that of the row of its key before it; `before`: < 0 for none."""
    again = np.flatnonzero(before >= 0)
    return bool((order[before[again]] > order[again]).any())


def _repeats(records: Records) -> Repeats | None:
    encoded = records.keys.dictionary_encode()
    if len(encoded.dictionary) == len(records):
        return None
    return Repeats(encoded.indices.to_numpy(zero_copy_only=False))
