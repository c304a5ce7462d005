"""Records -> RESP, by Arrow kernels: bulk strings, key and envelope in turn, or commands.

Envelopes: `state.codec`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.state import codec
from keylane_spark.columns.headers import binary_array, encode_numbers
from keylane_spark.columns.records import Records, lengths_of

_HEADER = np.dtype([("version", "u1"), ("flags", "u1"), ("offset", ">u8"), ("timestamp", ">u8")])
_STRAY_HEADER = np.dtype([*_HEADER.descr, ("source", ">u4")])


@dataclass(frozen=True, slots=True)
class InOrder:
    """How a lane changes that takes records as they come, without a look at what is stored.

    `index_keys`: of the sets of its live keys, as `redis_keys.parts_of` returns them; () without an index.
    `marker_ms`: how long a tombstone leaves a marker; 0: not at all.
    """

    index_keys: tuple[bytes, ...]
    marker_ms: int


@dataclass(frozen=True, slots=True)
class OrderedWrites:
    """The changes as commands: MSET of `count` pairs, as `encode_records` has them, and `others`."""

    count: int
    arguments: memoryview
    others: Sequence[bytes | memoryview]
    """Each has one or more whole commands: `other_count` in all."""
    other_count: int


def encode_in_order(rows: Records, key_prefix: bytes, lane: InOrder, arguments: memoryview) -> OrderedWrites:
    """Encode rows, at most one of a key; `arguments`: what `encode_records` makes of them."""
    sets, deleted = rows, None
    if rows.values.null_count:
        is_set = rows.values.is_valid().to_numpy(zero_copy_only=False)
        sets, deleted = rows.where(is_set), rows.where(~is_set)
        arguments = encode_records(sets, key_prefix, None) if len(sets) else memoryview(b"")
    # Members before removals: Redis deletes a set that is empty.
    others: list[bytes | memoryview] = []
    others += _index_commands(b"ZADD", lane.index_keys, sets.keys, b"$1\r\n0\r\n")
    count = len(others)
    if deleted is not None:
        if lane.marker_ms:
            after = b"$2\r\nPX\r\n$%d\r\n%d\r\n" % (len(str(lane.marker_ms)), lane.marker_ms)
            others.append(encode_records(deleted, key_prefix, None, b"*5\r\n$3\r\nSET\r\n", after))
        else:
            others.append(_words(deleted.keys, b"*2\r\n$3\r\nDEL\r\n", key_prefix))
        removals = list(_index_commands(b"ZREM", lane.index_keys, deleted.keys, b""))
        others += removals
        count += len(deleted) + len(removals)
    return OrderedWrites(len(sets), arguments, others, count)


def _index_commands(
    name: bytes, index_keys: Sequence[bytes], members: pa.BinaryArray, before: bytes
) -> Iterator[bytes]:
    """A command for each part of an index, with `before` before each of its members."""
    if not index_keys or not len(members):
        return
    # In their order members cost the server a sixth less.
    members = members.take(pc.array_sort_indices(members))
    parts = [members]
    if len(index_keys) > 1:
        numbers = _part_numbers(members, len(index_keys))
        parts = [members.filter(pa.array(numbers == part)) for part in range(len(index_keys))]
    for key, own in zip(index_keys, parts, strict=True):
        if len(own):
            words = 2 + (2 if before else 1) * len(own)
            head = b"*%d\r\n$4\r\n%b\r\n$%d\r\n%b\r\n" % (words, name, len(key), key)
            yield head + _words(own, before)


def _part_numbers(members: pa.BinaryArray, count: int) -> NDArray[np.int64]:
    """The part of an index that each member is in, as `in_parts` in merge.lua has it."""
    digests = (hashlib.sha1(each, usedforsecurity=False).digest() for each in members.to_pylist())
    return np.fromiter((int.from_bytes(each[:4]) for each in digests), np.int64, len(members)) % count


def _words(keys: pa.BinaryArray, before: bytes, prefix: bytes = b"") -> memoryview:
    """`before`, and each key behind the prefix as a bulk string."""
    lengths = _decimal(pc.binary_length(keys), len(prefix), before + b"$", b"\r\n" + prefix)
    return _content(pc.binary_join_element_wise(lengths, keys, b"\r\n", b""))


def _content(strings: pa.BinaryArray) -> memoryview:
    """The bytes of all strings, one behind the other."""
    bounds = _bounds(strings)
    return memoryview(strings.buffers()[2])[bounds[0] : bounds[-1]]


def _bounds(strings: pa.BinaryArray) -> NDArray[np.int32]:
    """Where in their buffer each string begins, and the last one ends."""
    return np.frombuffer(strings.buffers()[1], np.int32)[strings.offset :][: len(strings) + 1]


def encode_records(
    rows: Records, key_prefix: bytes, source_partition: int | None, before: bytes = b"", after: bytes = b""
) -> memoryview:
    """Encode all rows, at least one; `source_partition` marks them as strays.

    `before` and `after` surround each pair.
    """
    before_key = _decimal(pc.binary_length(rows.keys), len(key_prefix), before + b"$", b"\r\n" + key_prefix)
    return _content(_encode([before_key], rows, source_partition, after))


def encode_of_lanes(rows: Records, counts: Sequence[int], key_prefixes: Sequence[bytes]) -> list[memoryview]:
    """As `encode_records` for rows of several lanes, one lane behind the other, each with its own prefix."""
    prefixes = pa.array(key_prefixes, pa.binary()).take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    lengths = pc.add(pc.binary_length(rows.keys), pc.binary_length(prefixes))
    arguments = _encode([_decimal(lengths, 0, b"$", b"\r\n"), prefixes], rows, None, b"")
    bounds = _bounds(arguments)[np.cumsum([0, *counts])]
    content = _content(arguments)
    begins = (bounds - bounds[0]).tolist()
    return [content[begin:end] for begin, end in pairwise(begins)]


def _encode(
    before_key: Sequence[pa.BinaryArray | bytes], rows: Records, source_partition: int | None, after: bytes
) -> pa.BinaryArray:
    kind = _HEADER if source_partition is None else _STRAY_HEADER
    optional = _OptionalFields(rows)
    lengths = lengths_of(rows.values)
    for column in optional.columns:
        lengths = pc.add(lengths, pc.binary_length(column))
    return pc.binary_join_element_wise(
        *before_key,
        rows.keys,
        _decimal(lengths, kind.itemsize, b"\r\n$", b"\r\n"),
        _fixed_headers(rows, kind, optional.flags, source_partition),
        *optional.columns,
        rows.values,
        b"\r\n" + after,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )


class _OptionalFields:
    """The fields that some envelopes have between fixed header and value; empty in the other rows."""

    def __init__(self, rows: Records) -> None:
        self.flags: list[tuple[NDArray[np.bool_], int]] = []
        self.columns: list[pa.BinaryArray] = []
        if rows.order_ms is not None:
            self._add(rows.order_ms > np.maximum(rows.timestamps_ms, 0), codec.ORDER, rows.order_ms, ">u8")
        if rows.fields is not None:
            sizes = pc.binary_length(rows.fields).to_numpy(zero_copy_only=False)
            self._add(sizes > 0, codec.FIELDS, sizes, ">u2")
            self.columns.append(rows.fields)
        if rows.headers is not None:
            sizes = pc.binary_length(rows.headers).to_numpy(zero_copy_only=False)
            self._add(sizes > 0, codec.HEADERS, sizes, ">u4")
            self.columns.append(rows.headers)
        if rows.left_bytes is not None:
            self._add(rows.left_bytes > 0, codec.LEFT_IN_KAFKA, rows.left_bytes, ">u8")

    def _add(self, mask: NDArray[np.bool_], flag: int, numbers: NDArray[np.integer], kind: str) -> None:
        self.flags.append((mask, flag))
        self.columns.append(encode_numbers(numbers, kind, mask))


def _decimal(lengths: pa.Int32Array, extra: int, before: bytes, after: bytes) -> pa.BinaryArray | bytes:
    """`before`, each length + `extra` in decimal, `after`; formatted once for each distinct length.

    One for all rows where all lengths are equal.
    """
    encoded = lengths.dictionary_encode()
    words = [b"%b%d%b" % (before, length + extra, after) for length in encoded.dictionary.to_pylist()]
    return words[0] if len(words) == 1 else pa.array(words, pa.binary()).take(encoded.indices)


def _fixed_headers(
    rows: Records,
    kind: np.dtype[np.void],
    flags: list[tuple[NDArray[np.bool_], int]],
    source_partition: int | None,
) -> pa.BinaryArray:
    headers = np.empty(len(rows), kind)
    headers["version"] = codec.VERSION
    headers["flags"] = 0
    if source_partition is not None:
        headers["flags"] = codec.STRAY
        headers["source"] = source_partition
    if rows.values.null_count:
        headers["flags"][rows.values.is_null().to_numpy(zero_copy_only=False)] |= codec.TOMBSTONE
    for mask, flag in flags:
        headers["flags"][mask] |= flag
        if flag == codec.FIELDS:
            headers["version"][mask] = codec.VERSION_WITH_FIELDS
    headers["offset"] = rows.offsets
    headers["timestamp"] = np.maximum(rows.timestamps_ms, 0)
    return binary_array(np.arange(0, (len(rows) + 1) * kind.itemsize, kind.itemsize, dtype=np.int32), headers)
