"""Records -> RESP, by Arrow kernels: bulk strings, key and envelope in turn.

Envelopes: `state.codec`.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.state import codec
from keylane_spark.rows.headers import binary_array, encode_numbers
from keylane_spark.rows.records import Records, bounds_of, lengths_of

_HEADER = np.dtype([("version", "u1"), ("flags", "u1"), ("offset", ">u8"), ("timestamp", ">u8")])
_STRAY_HEADER = np.dtype([*_HEADER.descr, ("source", ">u4")])
_OF_OTHER_VERSIONS = (codec.FIELDS, codec.COMPRESSED)
"""In this order: where a record has both, the last one decides."""
_HISTORY_HEADER = np.dtype([("offset", ">u8"), ("version", "u1"), ("flags", "u1"), ("timestamp", ">u8")])


def content_of(strings: pa.BinaryArray) -> memoryview:
    """The bytes of all strings, one behind the other."""
    bounds = bounds_of(strings)
    return memoryview(strings.buffers()[2])[bounds[0] : bounds[-1]]


def encode_records(
    rows: Records, key_prefix: bytes, source_partition: int | None, before: bytes = b"", after: bytes = b""
) -> memoryview:
    """Encode all rows, at least one; `source_partition` marks them as strays.

    `before` and `after` surround each pair.
    """
    before_key = decimal(pc.binary_length(rows.keys), len(key_prefix), before + b"$", b"\r\n" + key_prefix)
    return content_of(_encode([before_key, rows.keys], rows, source_partition, after))


def encode_history(rows: Records, key_prefix: bytes) -> memoryview:
    """Encode for each row, at least one, the command that adds it to the history of its key."""
    rows = replace(rows, order_ms=None, fields=None)
    before_key = decimal(
        pc.binary_length(rows.keys), len(key_prefix), b"*4\r\n$4\r\nZADD\r\n$", b"\r\n" + key_prefix
    )
    scores = pa.array(np.maximum(rows.timestamps_ms, 0)).cast(pa.string()).cast(pa.binary())
    before_score = decimal(pc.binary_length(scores), 0, b"\r\n$", b"\r\n")
    return content_of(
        _encode([before_key, rows.keys, before_score, scores], rows, None, b"", _HISTORY_HEADER)
    )


def encode_of_lanes(
    rows: Records, counts: Sequence[int], key_prefixes: Sequence[bytes], source_partition: int | None = None
) -> list[memoryview]:
    """As `encode_records` for rows of several lanes, one lane behind the other, each with its own prefix."""
    if len(counts) == 1:
        return [encode_records(rows, key_prefixes[0], source_partition)]
    prefixes = pa.array(key_prefixes, pa.binary()).take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    lengths = pc.add(pc.binary_length(rows.keys), pc.binary_length(prefixes))
    before_key = decimal(lengths, 0, b"$", b"\r\n")
    arguments = _encode([before_key, prefixes, rows.keys], rows, source_partition, b"")
    bounds = bounds_of(arguments)[np.cumsum([0, *counts])]
    content = content_of(arguments)
    begins = (bounds - bounds[0]).tolist()
    return [content[begin:end] for begin, end in pairwise(begins)]


def _encode(
    before: Sequence[pa.BinaryArray | bytes],
    rows: Records,
    source_partition: int | None,
    after: bytes,
    own: np.dtype[np.void] = _HEADER,
) -> pa.BinaryArray:
    """Encode the value of each row behind `before`; `own`: the header of records that are no strays."""
    kind = own if source_partition is None else _STRAY_HEADER
    optional = _OptionalFields(rows)
    lengths = lengths_of(rows.values)
    for column in optional.columns:
        lengths = pc.add(lengths, pc.binary_length(column))
    return pc.binary_join_element_wise(
        *before,
        decimal(lengths, kind.itemsize, b"\r\n$", b"\r\n"),
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
        if rows.compressed is not None:
            self.flags.append((rows.compressed, codec.COMPRESSED))

    def _add(self, mask: NDArray[np.bool_], flag: int, numbers: NDArray[np.integer], kind: str) -> None:
        self.flags.append((mask, flag))
        self.columns.append(encode_numbers(numbers, kind, mask))


def decimal(lengths: pa.Int32Array, extra: int, before: bytes, after: bytes) -> pa.BinaryArray | bytes:
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
        if flag in _OF_OTHER_VERSIONS:
            headers["version"][mask] = codec.version_of(flag)
    headers["offset"] = rows.offsets
    headers["timestamp"] = np.maximum(rows.timestamps_ms, 0)
    return binary_array(np.arange(0, (len(rows) + 1) * kind.itemsize, kind.itemsize, dtype=np.int32), headers)
