"""The headers of Kafka's records, from their bytes into the column of Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from keylane_spark.columns.varints import read_varints

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def read_headers(data: bytes, at: NDArray[np.int64], counts: NDArray[np.int64]) -> pa.ListArray:
    """The headers of records whose first one begins at `at`; null for a record without.

    Raises IndexError, ValueError.
    """
    view = np.frombuffer(data, np.uint8)
    if len(counts) and counts.min() < 0:
        raise ValueError("a record has a negative number of headers")
    # One round for each record's first header, then for the second, and so on: the last rounds are short.
    rows = np.flatnonzero(counts)
    at = at[rows]
    rounds = []
    number = 0
    while len(rows):
        length, begin = read_varints(view, at)
        middle = begin + length
        value_length, value_begin = read_varints(view, middle)
        at = value_begin + np.maximum(value_length, 0)
        if length.min() < 0 or at.max() > len(data):
            raise ValueError("a header ends behind the data")
        rounds.append((rows, begin, middle, value_begin, at, value_length))
        number += 1
        left = counts[rows] > number
        rows, at = rows[left], at[left]
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    columns = [np.concatenate(column) for column in zip(*rounds, strict=True)] if rounds else _NOTHING
    order = np.argsort(columns[0], kind="stable")
    _, begins, middles, value_begins, value_ends, value_lengths = (column[order] for column in columns)
    names = _texts(_cut(data, begins, middles))
    values = _cut(data, value_begins, value_ends, value_lengths < 0)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(ends), pairs, mask=pa.array(counts == 0))


def _cut(
    data: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64], is_null: NDArray[np.bool_] | None = None
) -> pa.BinaryArray:
    bounds = np.empty(2 * len(begins) + 1, np.int32)
    bounds[0:-1:2], bounds[1:-1:2], bounds[-1] = begins, ends, len(data)
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * len(begins), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    return pieces.take(pa.array(2 * np.arange(len(begins), dtype=np.int32), mask=is_null))


def _texts(names: pa.BinaryArray) -> pa.StringArray:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        # Not UTF-8: as Java's client reads it.
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


_NOTHING = [np.empty(0, np.int64)] * 6
