"""Kafka's variable-length numbers: every number of 64 bits, and what is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from keylane_spark.rows.varints import read_varints

INT64 = some.integers(-(2**63), 2**63 - 1)


def varint(number: int) -> bytes:
    """As Kafka's protocol has it: zigzag, then seven bits a byte, the lowest first."""
    left = (number << 1 ^ number >> 63) & 2**64 - 1
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(found + bytes([left]))


@given(some.lists(INT64, min_size=1, max_size=20))
@example([0, -1, 1, 63, -64, 64, 2**62, -(2**62) - 1, 2**63 - 1, -(2**63)])
@example([-6_795_364_578_871_345_152])
def test_every_number_is_read_with_others_beside_it(numbers: list[int]):
    texts = [varint(number) for number in numbers]
    begins = np.cumsum([0, *map(len, texts)])
    found, behind = read_varints(np.frombuffer(b"".join(texts), np.uint8), begins[:-1])
    assert found.tolist() == numbers
    assert behind.tolist() == begins[1:].tolist()


def test_a_number_of_more_than_ten_bytes_and_one_that_is_cut_are_errors():
    with pytest.raises(ValueError, match="more than ten bytes"):
        read_varints(np.frombuffer(b"\xff" * 10 + b"\x01", np.uint8), np.array([0]))
    with pytest.raises(IndexError):
        read_varints(np.frombuffer(b"\xff" * 9, np.uint8), np.array([0]))
