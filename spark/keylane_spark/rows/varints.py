"""Kafka's variable-length numbers, many at once: zigzag, seven bits a byte, the lowest first."""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MORE, _BITS = 0x80, 0x7F
_LONGEST_BYTES = 10
_RUN = 64
"""How many records of the same length are looked for at first; twice as many after each success."""
_LONGEST_RUN = 65_536
"""The most that are looked for at a time, in all blocks together."""
_SAME = 16
"""A search that finds fewer records of the same length was in vain."""
_MISSES = 4
"""After so many searches in vain, the lengths are read one by one."""
_IN_STEP = 128
"""In so many blocks one step of columns finds the next record of each sooner than a loop does."""


def read_varints(
    data: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers that begin at these positions, and the positions behind them.

    Raises IndexError where one ends behind the data, ValueError for one of more than ten bytes.
    """
    first = data[at]
    values = (first & _BITS).astype(np.int64)
    at = at + 1
    longer = np.flatnonzero(first & _MORE)
    for shift in range(7, 7 * _LONGEST_BYTES, 7):
        if not len(longer):
            break
        more = data[at[longer]]
        values[longer] |= (more & _BITS).astype(np.int64) << shift
        at[longer] += 1
        longer = longer[(more & _MORE) != 0]
    if len(longer):
        raise ValueError("a number has more than ten bytes")
    return (values >> 1) & _MAX ^ -(values & 1), at


_MAX = np.int64(2**63 - 1)


def find_bodies(
    data: bytes, begins: Sequence[int], counts: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the bodies of the records of several blocks begin, block by block, and where each block ends.

    A block has `counts` records, at least one, one behind the other from `begins` on. A record is its body's
    length, as a varint, and the body. Raises IndexError if one is cut, ValueError.
    """
    at, left = np.array(begins, np.int64), np.array(counts, np.int64)
    places = np.cumsum(left) - left
    found = np.empty(left.sum(), np.int64)
    view = np.frombuffer(data, np.uint8)
    going, run, misses = np.arange(len(at)), _RUN, 0
    while len(going) and (misses < _MISSES or len(going) >= _IN_STEP):
        # Records of one producer often have the same length: then one comparison finds many.
        wanted = min(run, int(left[going].max()), max(1, _LONGEST_RUN // len(going)))
        lengths, bodies = read_varints(view, at[going])
        if lengths.min() < 0:
            raise ValueError("a record has a negative length")
        if (bodies + lengths).max() > len(data):
            raise IndexError("a record ends behind the data")
        widths = bodies - at[going]
        sizes = widths + lengths
        steps = np.arange(wanted)
        records = at[going, np.newaxis] + sizes[:, np.newaxis] * steps
        good = _count_same(view, records, widths[:, np.newaxis], left[going, np.newaxis])
        is_good = steps < good[:, np.newaxis]
        found[(places[going, np.newaxis] + steps)[is_good]] = (records + widths[:, np.newaxis])[is_good]
        at[going] += sizes * good
        places[going] += good
        left[going] -= good
        is_cut = good < np.minimum(wanted, good + left[going])
        run = _RUN if is_cut.any() else 2 * run
        if np.count_nonzero(is_cut & (good < _SAME)) > len(going) // 2:
            misses += 1
            run = 1 if misses >= _MISSES else _RUN
        going = going[left[going] > 0]
    for block in going.tolist():
        rest, at[block] = _find_one_by_one(data, int(at[block]), int(left[block]))
        found[places[block] : places[block] + left[block]] = rest
    if at.max() > len(data):
        raise IndexError("the last record ends behind the data")
    return found, at


def _count_same(
    view: NDArray[np.uint8], records: NDArray[np.int64], widths: NDArray[np.int64], left: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many records of each block begin as its first one does, if all are as long as that: at least one.

    `records`: where they would begin (blocks, n). `widths`: the bytes of the first ones' lengths (blocks, 1).
    `left`: how many records the blocks have (blocks, 1).
    """
    count = records.shape[1]
    same = np.arange(count) < left
    last = len(view) - 1
    for byte in range(int(widths.max())):
        read = view[np.minimum(records + byte, last)]
        same &= (read == read[:, :1]) | (byte >= widths)
    counts: NDArray[np.int64] = np.where(same.all(axis=1), count, same.argmin(axis=1))
    return counts


def _find_one_by_one(data: bytes, at: int, count: int) -> tuple["array[int]", int]:
    found = array("q", bytes(8 * count))
    for index in range(count):
        # Two bytes, up to 8,191, is the usual case; the rest is `_length`.
        low = data[at]
        if low < _MORE:
            length, at = low >> 1, at + 1
        else:
            high = data[at + 1]
            if high < _MORE:
                length, at = (low & _BITS | high << 7) >> 1, at + 2
            else:
                length, at = _length(data, at)
                if length < 0:
                    raise ValueError("a record has a negative length")
        found[index] = at
        at += length
    return found, at


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """One number, not zigzag, and the position behind it. Raises IndexError if it ends behind the data."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & _BITS) << shift
        if byte < _MORE:
            return value, at
        shift += 7


def _length(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at
