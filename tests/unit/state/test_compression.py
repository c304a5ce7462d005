"""Frames and dictionaries: what is read, and what is refused before it is decompressed."""

from __future__ import annotations

import pytest
import zstandard
from tests.support.compressed import dictionary_of, frame_of, order, reading, value_of

from keylane.state.codec import CodecError
from keylane.state.compression import MOST_DICTIONARY_BYTES, Dictionary, no_dictionary, read_head

ORDERS = dictionary_of([order(number) for number in range(500)])
READINGS = dictionary_of([reading(number) for number in range(500)])


def test_a_frame_names_its_dictionary_and_its_size_and_has_no_magic_number():
    frame = frame_of(order(1000), ORDERS)
    assert read_head(frame) == (Dictionary(ORDERS).id, len(order(1000)))
    assert frame[:4] != zstandard.FRAME_HEADER
    assert value_of(frame, ORDERS) == order(1000)
    assert len(frame) < len(order(1000)) / 2


def test_a_frame_without_a_dictionary_names_none():
    frame = frame_of(b"value " * 100)
    assert read_head(frame) == (0, 600)
    assert no_dictionary().expand(frame, 600) == b"value " * 100


def test_a_frame_has_its_golden_bytes():
    golden = bytes.fromhex("208c4d00001063630100070a6001")
    assert frame_of(b"c" * 140) == golden
    assert value_of(golden) == b"c" * 140


@pytest.mark.parametrize("cut", range(len(frame_of(order(3), ORDERS))))
def test_a_frame_that_is_cut_off_is_refused(cut: int):
    frame = frame_of(order(3), ORDERS)[:cut]
    with pytest.raises(CodecError):
        Dictionary(ORDERS).expand(frame, read_head(frame).size_bytes)


def test_a_frame_with_more_behind_it_is_refused():
    frame = frame_of(order(3), ORDERS) + b"x"
    with pytest.raises(CodecError, match=r"damaged: .*unused data"):
        Dictionary(ORDERS).expand(frame, read_head(frame).size_bytes)


def test_a_frame_of_another_dictionary_is_refused():
    frame = frame_of(order(3), ORDERS)
    with pytest.raises(CodecError, match=r"damaged: .*Dictionary mismatch"):
        Dictionary(READINGS).expand(frame, len(order(3)))


def test_a_frame_that_claims_ten_gigabytes_says_so_before_anything_is_decompressed():
    # Frame header of RFC 8878: single segment, no dictionary, 8 bytes of size; then a block of one byte.
    frame = bytes((0b1110_0000,)) + (10 * 2**30).to_bytes(8, "little") + b"\x09\x00\x00a"
    assert read_head(frame) == (0, 10 * 2**30)


def test_a_frame_that_does_not_say_its_size_is_refused():
    parameters = zstandard.ZstdCompressionParameters.from_level(
        1, format=zstandard.FORMAT_ZSTD1_MAGICLESS, write_content_size=False
    )
    frame = zstandard.ZstdCompressor(compression_params=parameters).compress(b"value" * 100)
    with pytest.raises(CodecError, match="does not say its size"):
        read_head(frame)


def test_a_size_that_is_not_the_value_s_is_refused():
    frame = frame_of(b"value " * 100)
    with pytest.raises(CodecError, match="has 600 bytes and names 599"):
        no_dictionary().expand(frame, 599)


def test_dictionaries_that_differ_in_anything_have_different_ids():
    """Of these two Zstandard's own training gives the same content, and other tables."""
    alike = [dictionary_of([b"x" * size for size in range(50, 50 + count)]) for count in (150, 400)]
    assert alike[0] != alike[1]
    assert Dictionary(alike[0]).id != Dictionary(alike[1]).id
    changed = ORDERS[:100] + bytes((ORDERS[100] ^ 1,)) + ORDERS[101:]
    with pytest.raises(CodecError, match="are not a dictionary"):
        Dictionary(changed)
    with pytest.raises(CodecError, match="are not a dictionary"):
        Dictionary(ORDERS[:4] + (40_000).to_bytes(4, "little") + ORDERS[8:])


@pytest.mark.parametrize("data", [b"no dictionary", ORDERS[:20], b"\x37\xa4\x30\xec" + b"\0" * 100])
def test_bytes_that_are_not_a_dictionary_are_refused(data: bytes):
    with pytest.raises(CodecError, match="are not a dictionary"):
        Dictionary(data)


def test_a_dictionary_that_is_too_large_is_refused():
    with pytest.raises(CodecError, match=r"has 131073 bytes, at most 131072 are read"):
        Dictionary(b"x" * (MOST_DICTIONARY_BYTES + 1))
