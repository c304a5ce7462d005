"""Record headers: from Kafka's bytes into a column, and from there into the headers block of envelopes.

A column of headers is list<struct<key string, value binary>> (n), as Spark's Kafka source has it; null for a
record without. Headers that are too many or too large are not read: a header without a name stands for them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane_spark.rows.varints import read_varints

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MOST_HEADERS, LARGEST_HEADERS = 1000, 1024 * 1024
"""Of a record, and their bytes. A thousand times as many may come in a kilobyte of Kafka's."""
_LONGEST_NAME_BYTES = 0xFFFF
_LONGEST_NAME_CHARACTERS = _LONGEST_NAME_BYTES // 4
_NOTHING = [np.empty(0, np.int64)] * 6


def read_headers(
    data: bytes, at: NDArray[np.int64], counts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> pa.ListArray:
    """The headers of Kafka's records whose first header begins at `at`. Raises IndexError, ValueError.

    `sizes`: about how many bytes they have.
    """
    view = np.frombuffer(data, np.uint8)
    if len(counts) and counts.min() < 0:
        raise ValueError("a record has a negative number of headers")
    is_large = (counts > MOST_HEADERS) | ((counts > 0) & (sizes > LARGEST_HEADERS))
    large = np.flatnonzero(is_large)
    rounds = [(large, *[at[large]] * 4, np.full(len(large), -1))] if len(large) else []
    # One round for each record's first header, then for the second, and so on: the last rounds are short.
    rows = np.flatnonzero((counts > 0) & ~is_large)
    at = at[rows]
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
    counts = np.where(is_large, 1, counts)
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    columns = [np.concatenate(column) for column in zip(*rounds, strict=True)] if rounds else _NOTHING
    order = np.argsort(columns[0], kind="stable")
    owners, begins, middles, value_begins, value_ends, value_lengths = (column[order] for column in columns)
    names = _texts(cut(data, begins, middles, is_large[owners]))
    values = cut(data, value_begins, value_ends, value_lengths < 0)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(ends), pairs, mask=pa.array(counts == 0))


def _texts(names: pa.BinaryArray) -> pa.StringArray:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        # Not UTF-8: as Java's client reads it.
        return pa.array([name and name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def large_headers(headers: pa.ListArray) -> NDArray[np.bool_] | None:
    """Which records have headers that were not read; None: no record."""
    unnamed = headers.flatten().field("key").is_null()
    if not unnamed.true_count:
        return None
    found = np.zeros(len(headers), np.bool_)
    found[np.asarray(pc.list_parent_indices(headers).filter(unnamed))] = True
    return found


def header_blocks(headers: pa.ListArray, values: pa.BinaryArray) -> pa.BinaryArray | None:
    """The headers block of each record, empty for a record without; None when no record has headers.

    Tombstones keep none: nobody could read them. A name over 65,535 bytes is cut after 16,383 characters.
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


class HeaderValues:
    """The first `limit` different values of a header, over several columns of headers."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self.found: list[bytes] = []

    def add(self, headers: pa.ListArray) -> None:
        """Look at a column."""
        entries = headers.flatten()
        own = entries.filter(pc.equal(pc.struct_field(entries, "key"), self._name))
        values = pc.unique(pc.drop_null(pc.struct_field(own, "value")))[: self._limit].to_pylist()
        self.found = list(dict.fromkeys(self.found + values))[: self._limit]


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


def cut(
    data: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64], is_null: NDArray[np.bool_] | None = None
) -> pa.BinaryArray:
    """Copies of the pieces [begins, ends) of the data, which rise: of piece, gap, piece, ... every second."""
    bounds = np.empty(2 * len(begins) + 1, np.int32)
    bounds[0:-1:2], bounds[1:-1:2], bounds[-1] = begins, ends, len(data)
    rows = np.arange(0, 2 * len(begins), 2, dtype=np.int32)
    mask = is_null if is_null is not None and is_null.any() else None
    return binary_array(bounds, data).take(pa.array(rows, mask=mask))


def binary_array(bounds: NDArray[np.int32], data: NDArray[np.generic] | bytes) -> pa.BinaryArray:
    """An Arrow array over buffers, which are not copied: row i is the bytes [bounds[i], bounds[i + 1])."""
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
