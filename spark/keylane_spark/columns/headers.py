"""Record headers -> the headers block of envelopes, or one header's values; and the Arrow helpers for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST_NAME_BYTES = 0xFFFF
_LONGEST_NAME_CHARACTERS = _LONGEST_NAME_BYTES // 4


def header_blocks(headers: pa.ListArray, values: pa.BinaryArray) -> pa.BinaryArray | None:
    """The headers block of each record, empty for a record without; None when no record has headers.

    `headers`: list<struct<key string, value binary>> (n), as Spark's Kafka source returns them. Tombstones
    keep none: nobody could read them. A name over 65,535 bytes is cut after 16,383 characters.
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
        encode_numbers(pc.binary_length(names), ">u2"),
        names,
        encode_numbers(pc.fill_null(pc.binary_length(contents), -1), ">i4"),
        contents,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    bounds = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
    return pc.binary_join(pa.ListArray.from_arrays(bounds, pieces), b"")


def header_values(headers: pa.ListArray | pa.ChunkedArray, name: str, limit: int) -> list[bytes]:
    """The first `limit` different values of a header; `headers` as in `header_blocks`."""
    entries = pc.list_flatten(headers)
    found = entries.filter(pc.equal(pc.struct_field(entries, "key"), name))
    values = pc.drop_null(pc.struct_field(found, "value"))
    different: list[bytes] = pc.unique(values)[:limit].to_pylist()
    return different


def encode_numbers(
    numbers: pa.Array | NDArray[np.integer], kind: str, mask: NDArray[np.bool_] | None = None
) -> pa.BinaryArray:
    """The bytes of each number; empty where the mask is false. `kind`: numpy's, as in ">u4"."""
    array = np.asarray(numbers)
    here = np.ones(len(array), np.bool_) if mask is None else mask
    width = np.dtype(kind).itemsize
    bounds = np.zeros(len(array) + 1, np.int32)
    np.cumsum(here * width, out=bounds[1:])
    return binary_array(bounds, array[here].astype(kind))


def binary_array(bounds: NDArray[np.int32], data: NDArray[np.generic]) -> pa.BinaryArray:
    """An Arrow array over numpy buffers, not copied: row i is the bytes [bounds[i], bounds[i + 1])."""
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
