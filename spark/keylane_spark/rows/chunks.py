"""Records of lanes -> folded chunks -> RESP bytes, without a Python loop over rows.

A chunk carries the fold of a lane's records (see `fold`), and ends where it would carry too many records or
bytes. So a key that is written a million times in a row is written once, and the watermark still moves chunk
by chunk with nothing missing below it. How a chunk gets into its lane says its `Delivery`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keylane.model.records import Options
from keylane_spark.rows.encoding import encode_of_lanes
from keylane_spark.rows.fields import Decode, decode_none, field_entries
from keylane_spark.rows.fold import Ints, Repeats, first_set_stays, kept, most_per_key, needless_sets, risen
from keylane_spark.rows.ordered_writes import InOrder, OrderedWrites, encode_in_order
from keylane_spark.rows.records import Records

MAX_RECORDS = 2000
MAX_BYTES = 512 * 1024
COMPARED_RECORDS = 200
"""The same where each record is compared with what is stored, which takes five to twenty times as long."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One lane's records as RESP.

    `end_offset`: one past the last record read, carried or not. `arguments`: `count` pairs of key and
    envelope (see `state.codec`) as bulk strings, in offset order. `ordered`: the same as commands, for a
    transaction; None where the chunk goes as a call. `invalid_fields`: as of `Folded`.
    """

    end_offset: int
    newest_timestamp_ms: int
    count: int
    has_tombstones: bool
    arguments: memoryview
    ordered: OrderedWrites | None = None
    invalid_fields: int = 0

    @classmethod
    def empty(cls, end_offset: int) -> Chunk:
        """A chunk of records that nothing is stored of."""
        return cls(end_offset, 0, 0, has_tombstones=False, arguments=memoryview(b""))


class Delivery(NamedTuple):
    """How a lane gets a chunk. `key_prefix` precedes each key in Redis.

    `in_order`: it is sent as the commands of a transaction; None: as a call.
    """

    key_prefix: bytes
    in_order: InOrder | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """The fold of the records from the previous chunk's end to `end_offset`.

    `newest_timestamp_ms`: of all these records, carried or not. `size_bytes`: of those that are carried.
    `invalid_fields`: how many values of fields no index can have.
    """

    records: Records
    end_offset: int
    newest_timestamp_ms: int
    size_bytes: int
    invalid_fields: int = 0

    def with_fields(self, options: Options, decode: Decode = decode_none) -> Folded:
        """Add what indexes of fields have of the records. Errors as of `field_entries`."""
        if not options.fields:
            return self
        entries, invalid = field_entries(self.records.values, options, decode)
        return replace(self, records=replace(self.records, fields=entries), invalid_fields=invalid)


def encode_chunks(
    chunks: Sequence[Folded], deliveries: Sequence[Delivery], source_partition: int | None = None
) -> list[Chunk]:
    """Encode chunks of different lanes, at least one; a source partition marks strays."""
    records = Records.joined([chunk.records for chunk in chunks])
    counts = [len(chunk.records) for chunk in chunks]
    prefixes = [delivery.key_prefix for delivery in deliveries]
    encoded = encode_of_lanes(records, counts, prefixes, source_partition)
    have_tombstones = [False] * len(chunks)
    if records.values.null_count:
        begins = np.cumsum([0, *counts[:-1]])
        have_tombstones = np.logical_or.reduceat(records.tombstones, begins).tolist()
    return [
        Chunk(
            chunk.end_offset,
            chunk.newest_timestamp_ms,
            len(chunk.records),
            deleted,
            arguments,
            encode_in_order(chunk.records, prefix, in_order, arguments) if in_order else None,
            chunk.invalid_fields,
        )
        for chunk, (prefix, in_order), deleted, arguments in zip(
            chunks, deliveries, have_tombstones, encoded, strict=True
        )
    ]


@dataclass(slots=True)
class OpenChunk:
    """The chunk of a lane that has room for more, and its limits; `folded`: None while it has no record."""

    max_records: int = MAX_RECORDS
    max_bytes: int = MAX_BYTES
    folded: Folded | None = None

    @property
    def size_bytes(self) -> int:
        """The size of its records."""
        return self.folded.size_bytes if self.folded else 0

    def take(self) -> Folded | None:
        """Close the chunk and return it; None where it has no record."""
        taken, self.folded = self.folded, None
        return taken


def distinct(lanes: NDArray[np.integer]) -> list[int]:
    """The numbers of the lanes that records have, in rising order."""
    numbers = lanes[np.concatenate(([0], np.flatnonzero(lanes[1:] != lanes[:-1]) + 1))]
    is_rising = (numbers[1:] > numbers[:-1]).all()
    found: list[int] = (numbers if is_rising else np.unique(numbers)).tolist()
    return found


def add_records(
    opened: Mapping[int, OpenChunk], records: Records, lanes: NDArray[np.integer], options: Options
) -> dict[int, list[Folded]]:
    """Add records, at least one, to the open chunks of their lanes; returns those that are full, by lane.

    `lanes`: the number of each record's lane. `opened`: the chunks of these lanes, in the order of
    `distinct`. Records of a lane are in offset order, those of different lanes in any, and the same key in
    two lanes is two keys.

    An open chunk is a copy, so that it keeps no batch alive. Lanes share one where each begins its chunk, and
    none is full.
    """
    full: dict[int, list[Folded]] = {}
    begun: dict[int, Folded] = {}
    for number, chunk in opened.items():
        if (folded := chunk.folded) is None:
            continue
        if len(folded.records) > chunk.max_records:
            # Divided it would lack what its later records have replaced.
            full[number] = [folded]
        else:
            begun[number] = folded
    if begun:
        records = Records.joined([*(folded.records for folded in begun.values()), records])
    numbers, begins = list(opened), np.zeros(1, np.int64)
    if len(numbers) > 1:
        if begun or (lanes[1:] < lanes[:-1]).any():
            before = [np.full(len(folded.records), number) for number, folded in begun.items()]
            lanes = np.concatenate((*before, lanes), dtype=np.int64)
            order = np.argsort(lanes, kind="stable")
            records, lanes = records.take(order), lanes[order]
        else:
            records = records.copy()
        begins = np.searchsorted(lanes, numbers)
    limits = [(chunk.max_records, chunk.max_bytes) for chunk in opened.values()]
    newest_ms = [begun[number].newest_timestamp_ms if number in begun else 0 for number in numbers]
    folds = fold(records, begins, options, limits, newest_ms)
    share = len(numbers) > 1 and not begun and all(len(chunks) == 1 for chunks in folds)
    for number, (*closed, rest) in zip(numbers, folds, strict=True):
        opened[number].folded = rest if share else replace(rest, records=rest.records.copy())
        if closed:
            full.setdefault(number, []).extend(closed)
    return full


def fold(
    records: Records,
    begins: Ints,
    options: Options,
    limits: Sequence[tuple[int, int]],
    newest_ms: Sequence[int],
) -> list[list[Folded]]:
    """The folded chunks of several lanes' records, one lane behind the other.

    `begins`: where each lane begins, in rising order. `limits`: of each lane, how many records and bytes a
    chunk may have. `newest_ms`: of each lane, the newest timestamp of what its first records replace.
    """
    end_offsets = records.offsets[_ends(begins, len(records)) - 1] + 1
    repeats = _repeats(records, begins)
    if repeats is not None and first_set_stays(options):
        needed = ~needless_sets(repeats, records.tombstones)
        if not needed.all():
            records, begins = records.where(needed), _begins_within(begins, needed)
            repeats = _repeats(records, begins)
    sizes = records.sizes
    firsts, starts = _cut(begins, sizes, repeats, most_per_key(options, len(records)), limits)
    lasts = _ends(firsts, len(starts)) - 1
    chunk_ends = records.offsets[_ends(starts, len(records)) - 1] + 1
    chunk_ends[lasts] = end_offsets
    newest = np.maximum(np.maximum.reduceat(records.timestamps_ms, starts), 0)
    newest[firsts] = np.maximum(newest[firsts], newest_ms)
    if repeats is not None:
        repeats = repeats.within(starts)
        if _order_falls(records.order, repeats.previous):
            records = replace(records, order_ms=risen(repeats, records.order))
        stored_ms = np.maximum(records.timestamps_ms, 0)
        mask = kept(repeats, stored_ms, records.tombstones, options)
        if not mask.all():
            records, sizes, starts = records.where(mask), sizes[mask], _begins_within(starts, mask)
    found = [
        Folded(records.part(begin, end), *rest)
        for (begin, end), *rest in zip(
            pairwise([*starts.tolist(), len(records)]),
            chunk_ends.tolist(),
            newest.tolist(),
            np.add.reduceat(sizes, starts).tolist(),
            strict=True,
        )
    ]
    return [found[first : last + 1] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]


def _repeats(records: Records, begins: Ints) -> Repeats | None:
    """Where keys repeat within lanes; None where no key is there twice."""
    encoded = records.keys.dictionary_encode()
    if len(encoded.dictionary) == len(records):
        return None
    return Repeats(encoded.indices.to_numpy(zero_copy_only=False)).within(begins)


def _ends(begins: Ints, count: int) -> Ints:
    """Where parts of so many rows end, by where they begin."""
    return np.concatenate((begins[1:], (count,)))


def _begins_within(begins: Ints, mask: NDArray[np.bool_]) -> Ints:
    """Where parts begin once the mask has been applied, which leaves a row of each."""
    counts = np.add.reduceat(mask, begins)
    return np.cumsum(counts) - counts


def _cut(
    begins: Ints, sizes: Ints, repeats: Repeats | None, most: int, limits: Sequence[tuple[int, int]]
) -> tuple[Ints, Ints]:
    """Cut lanes into chunks: of each lane the number of its first chunk, of each chunk its first row.

    `most`: how many records of a key a chunk may carry.
    """
    ends = _ends(begins, len(sizes))
    max_records, max_bytes = np.array(limits, np.int64).T
    does_not_fit = (ends - begins > max_records) | (np.add.reduceat(sizes, begins) > max_bytes)
    if not does_not_fit.any():
        return np.arange(len(begins)), begins
    if repeats is None:
        replaced: Ints = np.full(len(sizes), -1, np.int64)
    else:
        replaced = repeats.previous if most == 1 else repeats.previous_but(most)
    firsts: list[int] = []
    starts: list[int] = []
    for lane, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        firsts.append(len(starts))
        start = begin
        while start < end:
            starts.append(start)
            start = _chunk_end(start, end, sizes, replaced, most, limits[lane]) if does_not_fit[lane] else end
    return np.array(firsts), np.array(starts)


def _chunk_end(start: int, end: int, sizes: Ints, replaced: Ints, most: int, limit: tuple[int, int]) -> int:
    """The row at which the chunk that begins at `start` ends: within both limits, but one row at least.

    A record that replaces an earlier one adds no record, and only the difference in bytes; where more than
    one record of a key is kept, all of its bytes.
    """
    max_records, max_bytes = limit
    window = max_records
    while True:
        stop = min(start + window, end)
        before = replaced[start:stop]
        is_more = before < start
        added = sizes[start:stop]
        if most == 1:
            added = added - np.where(is_more, 0, sizes[before])
        over = (np.cumsum(is_more) > max_records) | (np.cumsum(added) > max_bytes)
        if over.any():
            return start + max(1, int(over.argmax()))
        if stop == end:
            return stop
        window *= 4


def _order_falls(order: Ints, before: Ints) -> bool:
    """Whether a row's order is lower than that of the row of its key before it; `before`: < 0 for none."""
    again = np.flatnonzero(before >= 0)
    return bool((order[before[again]] > order[again]).any())
