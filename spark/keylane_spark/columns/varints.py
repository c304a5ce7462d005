"""Kafka's variable-length numbers, many at once: zigzag, seven bits a byte, the lowest first."""

from array import array

import numpy as np
from numpy.typing import NDArray

_MORE, _BITS = 0x80, 0x7F
_LONGEST_BYTES = 10
_RUN = 64
"""How many records of the same length are looked for at first; twice as many after each success."""
_LONGEST_RUN = 8192
_MISSES = 4
"""After so many searches in vain, the lengths are read one by one."""


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
            return (values >> 1) & _MAX ^ -(values & 1), at
        more = data[at[longer]]
        values[longer] |= (more & _BITS).astype(np.int64) << shift
        at[longer] += 1
        longer = longer[(more & _MORE) != 0]
    raise ValueError("a number has more than ten bytes")


_MAX = np.int64(2**63 - 1)


def find_bodies(data: bytes, at: int, count: int) -> tuple[NDArray[np.int64], int]:
    """Where the bodies of `count` records begin, one behind the other from `at`, and where they end.

    A record is its body's length, as a varint, and the body. Raises IndexError if it is cut.
    """
    found = np.empty(count, np.int64)
    done, misses, run = 0, 0, _RUN
    view = np.frombuffer(data, np.uint8)
    while done < count and misses < _MISSES:
        # Records of one producer often have the same length: then one comparison finds many.
        length, body = _length(data, at)
        size = body - at + length
        if size <= 0:
            raise ValueError("a record has a negative length")
        wanted = min(run, count - done, (len(data) - body) // size + 1)
        begins = at + size * np.arange(wanted, dtype=np.int64)
        same = np.ones(wanted, np.bool_)
        for byte in range(body - at):
            same &= view[begins + byte] == data[at + byte]
        good = wanted if same.all() else int(same.argmin())
        found[done : done + good] = begins[:good] + (body - at)
        done, at = done + good, at + size * good
        run = min(2 * run, _LONGEST_RUN) if good == wanted else _RUN
        misses += good < _RUN // 4
    if done < count:
        rest, at = _find_one_by_one(data, at, count - done)
        found[done:] = rest
    if at > len(data):
        raise IndexError("the last record ends behind the data")
    return found, at


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
