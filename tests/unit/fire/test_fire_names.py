"""The name server of `make under-fire`."""

from __future__ import annotations

import struct

from tests.fire.names import answer_of

HEADER = struct.pack(">HHHHHH", 513, 0x0100, 1, 0, 0, 0)
NAME = b"\x07redis-0\x04fire\x04test\x00"
A, AAAA = 1, 28


def query(kind: int) -> bytes:
    return HEADER + NAME + struct.pack(">HH", kind, 1)


def test_an_address_is_the_loopbacks():
    answer = answer_of(query(A))
    assert answer[:12] == struct.pack(">HHHHHH", 513, 0x8580, 1, 1, 0, 0)
    assert answer[12 : 12 + len(NAME) + 4] == query(A)[12:]
    assert answer.endswith(b"\x7f\x00\x00\x01")


def test_another_type_has_no_answer_and_is_no_error():
    answer = answer_of(query(AAAA) + b"an additional record")
    assert answer == struct.pack(">HHHHHH", 513, 0x8580, 1, 0, 0, 0) + query(AAAA)[12:]
