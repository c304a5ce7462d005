"""Columns of records -> bytes of the lane protocol, without a Python loop over rows.

A batch of one lane is cut into chunks; a chunk is one call of the `keylane` library. What a chunk
carries is the fold of its records: of each key the last one. A chunk ends where it would carry too
many records or bytes, so a key written a million times in a row is one write, and the watermark
still moves chunk by chunk with nothing missing below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane import codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MAX_RECORDS = 1000
MAX_BYTES = 512 * 1024
STRAY_RECORDS = 200
"""A stray costs a look at what is there, so a call has fewer."""

_HEADER = np.dtype([("version", "u1"), ("flags", "u1"), ("offset", ">u8"), ("timestamp", ">u8")])
_STRAY_HEADER = np.dtype([*_HEADER.descr, ("source", ">u4")])


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of one lane's records in offset order: keys without nulls, a null value is a tombstone.

    `keys`, `values`: binary (n); `offsets`, `timestamps_ms`: int64 (n).
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def where(self, mask: NDArray[np.bool_]) -> Records:
        """The rows of a boolean mask (n)."""
        selection = pa.array(mask)
        return Records(
            self.keys.filter(selection),
            self.values.filter(selection),
            self.offsets[mask],
            self.timestamps_ms[mask],
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """One call's worth of records.

    `end_offset`: one past the last record read, carried or not.
    `arguments`: RESP bulk strings, key and payload in turn; `count` records in them.
    """

    end_offset: int
    newest_timestamp_ms: int
    count: int
    has_tombstones: bool
    arguments: memoryview


def chunks(
    records: Records, key_prefix: bytes, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES
) -> Iterator[Chunk]:
    """Cut records into chunks that carry at most `max_records` records, and `max_bytes` bytes but for one.

    `key_prefix` stands before each record's own key in Redis.
    """
    previous, following = _occurrences(records.keys)
    sizes = _payload_sizes(records)
    start = 0
    while start < len(records):
        end = _chunk_end(start, previous, sizes, max_records, max_bytes)
        part = slice(start, end)
        kept = following[part] >= end
        yield _encode(records, part, kept, key_prefix)
        start = end


def stray_chunks(
    records: Records, key_prefix: bytes, source_partition: int, max_records: int = STRAY_RECORDS
) -> Iterator[Chunk]:
    """Cut records of another partition into chunks for the lane of their keys; their envelopes name it."""
    for start in range(0, len(records), max_records):
        part = slice(start, min(start + max_records, len(records)))
        everything = np.ones(part.stop - part.start, np.bool_)
        yield _encode(records, part, everything, key_prefix, source_partition)


def _occurrences(keys: pa.BinaryArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row the row of the same key before it (-1: none) and after it (n: none)."""
    n = len(keys)
    encoded = keys.dictionary_encode()
    previous = np.full(n, -1, np.int64)
    following = np.full(n, n, np.int64)
    if len(encoded.dictionary) < n:
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        same = codes[order[1:]] == codes[order[:-1]]
        previous[order[1:][same]] = order[:-1][same]
        following[order[:-1][same]] = order[1:][same]
    return previous, following


def _payload_sizes(records: Records) -> NDArray[np.int64]:
    keys = pc.binary_length(records.keys)
    values = pc.fill_null(pc.binary_length(records.values), 0)
    sizes: NDArray[np.int64] = pc.add(keys, values).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes + codec.HEADER_BYTES


def _chunk_end(
    start: int,
    previous: NDArray[np.int64],
    sizes: NDArray[np.int64],
    max_records: int,
    max_bytes: int,
) -> int:
    """Where the chunk that begins at `start` ends: the furthest row within both limits, one row at least.

    The bytes of a key written again are counted at its first row: near enough for a bound on latency.
    """
    window = max_records
    while True:
        stop = min(start + window, len(previous))
        first_seen = previous[start:stop] < start
        count = np.cumsum(first_seen)
        size = np.cumsum(np.where(first_seen, sizes[start:stop], 0))
        fits = int(
            min(np.searchsorted(count, max_records, "right"), np.searchsorted(size, max_bytes, "right"))
        )
        if fits < stop - start or stop == len(previous):
            return start + max(1, fits)
        window *= 4


def _encode(
    records: Records,
    part: slice,
    kept: NDArray[np.bool_],
    key_prefix: bytes,
    source_partition: int | None = None,
) -> Chunk:
    """The rows of `part` that `kept` (len of part) names, as RESP bulk strings."""
    header = _HEADER if source_partition is None else _STRAY_HEADER
    rows = Records(
        records.keys[part.start : part.stop],
        records.values[part.start : part.stop],
        records.offsets[part],
        records.timestamps_ms[part],
    )
    end_offset = int(rows.offsets[-1]) + 1
    newest = max(0, int(rows.timestamps_ms.max()))
    if not kept.all():
        rows = rows.where(kept)
    arguments = pc.binary_join_element_wise(
        _lengths(pc.binary_length(rows.keys), len(key_prefix), b"$", b"\r\n" + key_prefix),
        rows.keys,
        _lengths(pc.fill_null(pc.binary_length(rows.values), 0), header.itemsize, b"\r\n$", b"\r\n"),
        _headers(rows, header, source_partition),
        rows.values,
        b"\r\n",
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    _, ends, data = arguments.buffers()
    bounds = np.frombuffer(ends, np.int32)[arguments.offset :]
    return Chunk(
        end_offset,
        newest,
        len(rows),
        rows.values.null_count > 0,
        memoryview(data)[bounds[0] : bounds[len(rows)]],
    )


def _lengths(lengths: pa.Int32Array, extra: int, before: bytes, after: bytes) -> pa.BinaryArray:
    """`before`, each length + `extra` in decimal, `after`: made once for each length that occurs."""
    encoded = lengths.dictionary_encode()
    words = [b"%b%d%b" % (before, length + extra, after) for length in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.binary()).take(encoded.indices)


def _headers(rows: Records, kind: np.dtype[np.void], source_partition: int | None) -> pa.BinaryArray:
    headers = np.empty(len(rows), kind)
    headers["version"] = codec.VERSION
    headers["flags"] = 0
    if source_partition is not None:
        headers["flags"] = codec.STRAY
        headers["source"] = source_partition
    if rows.values.null_count:
        headers["flags"][rows.values.is_null().to_numpy(zero_copy_only=False)] |= codec.TOMBSTONE
    headers["offset"] = rows.offsets
    headers["timestamp"] = np.maximum(rows.timestamps_ms, 0)
    bounds = np.arange(0, (len(rows) + 1) * kind.itemsize, kind.itemsize, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(bounds), pa.py_buffer(headers)]
    )
