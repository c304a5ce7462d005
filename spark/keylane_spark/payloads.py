"""Columns of records -> RESP bulk strings, key and envelope in turn, by Arrow kernels. Layout: codec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane import codec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from keylane_spark.records import Records

_HEADER = np.dtype([("version", "u1"), ("flags", "u1"), ("offset", ">u8"), ("timestamp", ">u8")])
_STRAY_HEADER = np.dtype([*_HEADER.descr, ("source", ">u4")])
_LONGEST_NAME_BYTES = 0xFFFF
_LONGEST_NAME_CHARACTERS = _LONGEST_NAME_BYTES // 4


def bulk_strings(rows: Records, key_prefix: bytes, source_partition: int | None) -> memoryview:
    """All rows, one at least; `source_partition` marks them as strays."""
    kind = _HEADER if source_partition is None else _STRAY_HEADER
    optional = _Optional(rows)
    lengths = pc.fill_null(pc.binary_length(rows.values), 0)
    for column in optional.columns:
        lengths = pc.add(lengths, pc.binary_length(column))
    arguments = pc.binary_join_element_wise(
        _decimal(pc.binary_length(rows.keys), len(key_prefix), b"$", b"\r\n" + key_prefix),
        rows.keys,
        _decimal(lengths, kind.itemsize, b"\r\n$", b"\r\n"),
        _fixed(rows, kind, optional.flags, source_partition),
        *optional.columns,
        rows.values,
        b"\r\n",
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    _, ends, data = arguments.buffers()
    bounds = np.frombuffer(ends, np.int32)[arguments.offset :]
    return memoryview(data)[bounds[0] : bounds[len(rows)]]


def header_blocks(headers: pa.ListArray, values: pa.BinaryArray) -> pa.BinaryArray | None:
    """Each record's headers as the codec's block: empty where there are none; None: nowhere are any.

    `headers`: list<struct<key string, value binary>> (n), as Spark's Kafka source gives it. A tombstone's
    are left out: nobody can read them. A name over 65,535 bytes is cut after 16,383 characters.
    """
    counts = pc.if_else(values.is_valid(), pc.fill_null(pc.list_value_length(headers), 0), 0)
    ends = np.cumsum(counts.to_numpy(zero_copy_only=False), dtype=np.int32)
    if not len(ends) or not ends[-1]:
        return None
    entries = headers.filter(values.is_valid()).flatten()
    names, contents = entries.field("key"), entries.field("value")
    if pc.max(pc.binary_length(names)).as_py() > _LONGEST_NAME_BYTES:
        names = pc.utf8_slice_codeunits(names, 0, _LONGEST_NAME_CHARACTERS)
    names = names.cast(pa.binary())
    pieces = pc.binary_join_element_wise(
        _numbers(pc.binary_length(names), ">u2"),
        names,
        _numbers(pc.fill_null(pc.binary_length(contents), -1), ">i4"),
        contents,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    bounds = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
    return pc.binary_join(pa.ListArray.from_arrays(bounds, pieces), b"")


class _Optional:
    """What some envelopes have between the fixed header and the value; `columns` are empty elsewhere."""

    def __init__(self, rows: Records) -> None:
        self.flags: list[tuple[NDArray[np.bool_], int]] = []
        self.columns: list[pa.BinaryArray] = []
        if rows.order_ms is not None:
            self._add(rows.order_ms > np.maximum(rows.timestamps_ms, 0), codec.ORDER, rows.order_ms, ">u8")
        if rows.headers is not None:
            sizes = pc.binary_length(rows.headers).to_numpy(zero_copy_only=False)
            self._add(sizes > 0, codec.HEADERS, sizes, ">u4")
            self.columns.append(rows.headers)
        if rows.left_bytes is not None:
            self._add(rows.left_bytes > 0, codec.LEFT_IN_KAFKA, rows.left_bytes, ">u8")

    def _add(self, mask: NDArray[np.bool_], flag: int, numbers: NDArray[np.integer], kind: str) -> None:
        self.flags.append((mask, flag))
        self.columns.append(_numbers(numbers, kind, mask))


def _numbers(
    numbers: pa.Array | NDArray[np.integer], kind: str, mask: NDArray[np.bool_] | None = None
) -> pa.BinaryArray:
    """Each number's bytes; none where the mask is false."""
    array = np.asarray(numbers)
    here = np.ones(len(array), np.bool_) if mask is None else mask
    width = np.dtype(kind).itemsize
    bounds = np.zeros(len(array) + 1, np.int32)
    np.cumsum(here * width, out=bounds[1:])
    return _binary(bounds, array[here].astype(kind))


def _decimal(lengths: pa.Int32Array, extra: int, before: bytes, after: bytes) -> pa.BinaryArray:
    """`before`, each length + `extra` in decimal, `after`: made once for each length that occurs."""
    encoded = lengths.dictionary_encode()
    words = [b"%b%d%b" % (before, length + extra, after) for length in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.binary()).take(encoded.indices)


def _fixed(
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
    headers["offset"] = rows.offsets
    headers["timestamp"] = np.maximum(rows.timestamps_ms, 0)
    return _binary(np.arange(0, (len(rows) + 1) * kind.itemsize, kind.itemsize, dtype=np.int32), headers)


def _binary(bounds: NDArray[np.int32], data: NDArray[np.generic]) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
