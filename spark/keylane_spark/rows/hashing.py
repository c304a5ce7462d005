"""Hash functions over columns of keys, as the steps that `rows.routing` runs: in place on numpy arrays."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import mmh3
import numpy as np
from numpy.typing import NDArray

from keylane.routing import PARTITIONERS, murmur2

Words: TypeAlias = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class ColumnHash:
    """An unsigned 32-bit hash: as steps over columns, and as one function of bytes.

    All arrays are uint32 with one element per row.
    `one`: a key -> its hash.
    `start`: lengths in bytes -> states.
    `block`: takes states and the next four bytes, little-endian; overwrites both.
    `tail`: takes states, the last 0 to 3 bytes (padded with zeros) and their number.
    `finish`: takes states and lengths; leaves the hashes in states.
    """

    one: Callable[[bytes], int]
    start: Callable[[Words], Words]
    block: Callable[[Words, Words], None]
    tail: Callable[[Words, Words, Words], None]
    finish: Callable[[Words, Words], None]


def _rotate_left(words: Words, bits: int) -> None:
    high = words >> (32 - bits)
    words <<= bits
    words |= high


# Kafka's murmur2: Utils.murmur2 of kafka-clients.
_M = 0x5BD1E995


def _murmur2_block(states: Words, words: Words) -> None:
    words *= _M
    words ^= words >> 24
    words *= _M
    states *= _M
    states ^= words


def _murmur2_tail(states: Words, tails: Words, sizes: Words) -> None:
    states ^= tails
    np.multiply(states, _M, out=states, where=sizes > 0)


def _murmur2_finish(states: Words, _: Words) -> None:
    states ^= states >> 13
    states *= _M
    states ^= states >> 15


MURMUR2 = ColumnHash(
    one=lambda key: murmur2(key) & 0xFFFFFFFF,
    start=lambda lengths: lengths ^ np.uint32(0x9747B28C),
    block=_murmur2_block,
    tail=_murmur2_tail,
    finish=_murmur2_finish,
)


# MurmurHash3 x86 32 bit with seed 0: aappleby/smhasher, MurmurHash3.cpp.
def _mmh3_scramble(words: Words) -> None:
    words *= 0xCC9E2D51
    _rotate_left(words, 15)
    words *= 0x1B873593


def _mmh3_block(states: Words, words: Words) -> None:
    _mmh3_scramble(words)
    states ^= words
    _rotate_left(states, 13)
    states *= 5
    states += 0xE6546B64


def _mmh3_tail(states: Words, tails: Words, _: Words) -> None:
    _mmh3_scramble(tails)  # zero stays zero
    states ^= tails


def _mmh3_finish(states: Words, lengths: Words) -> None:
    states ^= lengths
    states ^= states >> 16
    states *= 0x85EBCA6B
    states ^= states >> 13
    states *= 0xC2B2AE35
    states ^= states >> 16


MMH3 = ColumnHash(
    one=lambda key: mmh3.hash(key, 0, signed=False),
    start=np.zeros_like,
    block=_mmh3_block,
    tail=_mmh3_tail,
    finish=_mmh3_finish,
)


# FNV-1a 32 bit as Sarama uses it: the absolute value of the int32.
_PRIME = 0x01000193


def _fnv1a_block(states: Words, words: Words) -> None:
    for shift in range(0, 32, 8):
        states ^= words >> shift & 0xFF
        states *= _PRIME


def _fnv1a_tail(states: Words, tails: Words, sizes: Words) -> None:
    for index in range(3):
        states ^= tails >> 8 * index & 0xFF
        np.multiply(states, _PRIME, out=states, where=sizes > index)


def _fnv1a_finish(states: Words, _: Words) -> None:
    np.negative(states, out=states, where=states.view(np.int32) < 0)


FNV1A = ColumnHash(
    one=PARTITIONERS["fnv1a"],
    start=lambda lengths: np.full_like(lengths, 0x811C9DC5),
    block=_fnv1a_block,
    tail=_fnv1a_tail,
    finish=_fnv1a_finish,
)


# zlib's CRC-32 by tables: one for the step of a byte, two for the halves of a block ("slicing by 4").
@cache
def _crc32_tables() -> tuple[Words, Words, Words]:
    byte = np.array([zlib.crc32(bytes([i ^ 0xFF])) ^ 0xFF000000 for i in range(256)], dtype=np.uint32)
    ahead = [byte]
    for _ in range(3):
        ahead.append(byte[ahead[-1] & 0xFF] ^ ahead[-1] >> 8)
    halves = np.arange(65_536)
    low = ahead[3][halves & 0xFF] ^ ahead[2][halves >> 8]
    high = ahead[1][halves & 0xFF] ^ ahead[0][halves >> 8]
    return byte, low, high


def _crc32_block(states: Words, words: Words) -> None:
    _, low, high = _crc32_tables()
    words ^= states
    states[:] = low[words & 0xFFFF]
    states ^= high[words >> 16]


def _crc32_tail(states: Words, tails: Words, sizes: Words) -> None:
    byte, _, _ = _crc32_tables()
    for index in range(3):
        stepped = byte[(states ^ tails >> 8 * index) & 0xFF] ^ states >> 8
        np.copyto(states, stepped, where=sizes > index)


def _crc32_finish(states: Words, _: Words) -> None:
    np.invert(states, out=states)


CRC32 = ColumnHash(
    one=zlib.crc32,
    start=lambda lengths: np.full_like(lengths, 0xFFFFFFFF),
    block=_crc32_block,
    tail=_crc32_tail,
    finish=_crc32_finish,
)
