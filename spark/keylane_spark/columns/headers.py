"""A column of record headers as the envelope's bytes."""

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


def _binary(bounds: NDArray[np.int32], data: NDArray[np.generic]) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
