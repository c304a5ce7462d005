"""Records -> RESP bulk strings, key and envelope in turn, by Arrow kernels. Envelopes: `state.codec`."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.state import codec
from keylane_spark.columns.headers import binary_array, encode_numbers
from keylane_spark.columns.records import Records

_HEADER = np.dtype([("version", "u1"), ("flags", "u1"), ("offset", ">u8"), ("timestamp", ">u8")])
_STRAY_HEADER = np.dtype([*_HEADER.descr, ("source", ">u4")])


def encode_records(rows: Records, key_prefix: bytes, source_partition: int | None) -> memoryview:
    """Encode all rows, at least one; `source_partition` marks them as strays."""
    kind = _HEADER if source_partition is None else _STRAY_HEADER
    optional = _OptionalFields(rows)
    lengths = pc.fill_null(pc.binary_length(rows.values), 0)
    for column in optional.columns:
        lengths = pc.add(lengths, pc.binary_length(column))
    arguments = pc.binary_join_element_wise(
        _decimal(pc.binary_length(rows.keys), len(key_prefix), b"$", b"\r\n" + key_prefix),
        rows.keys,
        _decimal(lengths, kind.itemsize, b"\r\n$", b"\r\n"),
        _fixed_headers(rows, kind, optional.flags, source_partition),
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


class _OptionalFields:
    """The fields that some envelopes have between fixed header and value; empty in the other rows."""

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
        self.columns.append(encode_numbers(numbers, kind, mask))


def _decimal(lengths: pa.Int32Array, extra: int, before: bytes, after: bytes) -> pa.BinaryArray:
    """`before`, each length + `extra` in decimal, `after`; formatted once for each distinct length."""
    encoded = lengths.dictionary_encode()
    words = [b"%b%d%b" % (before, length + extra, after) for length in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.binary()).take(encoded.indices)


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
    headers["offset"] = rows.offsets
    headers["timestamp"] = np.maximum(rows.timestamps_ms, 0)
    return binary_array(np.arange(0, (len(rows) + 1) * kind.itemsize, kind.itemsize, dtype=np.int32), headers)
