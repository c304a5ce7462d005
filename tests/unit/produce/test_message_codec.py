"""Bytes of the write-ahead log: golden ones, cut ones, and there and back again."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.model.records import NewRecord
from keylane.produce import message_codec
from keylane.produce.message_codec import MessageBatch
from keylane.state.codec import CodecError

ID = bytes(range(16))
GOLDEN = (
    "01 00 000102030405060708090a0b0c0d0e0f 0000013bf58daa80 01 74 0003"
    "0000 03 00000001 6b 00000002 7631"
    "0001 1d 00000001 6b 00000007 0000013bf58dae68 0002 00000001 61 00000002 6869 00000002 c3a9 ffffffff"
    "0005 02 00000000"
)
RECORDS = (
    (0, NewRecord("t", b"k", b"v1")),
    (1, NewRecord("t", b"k", None, 7, 1_357_034_401_384, (("a", b"hi"), ("é", None)))),
    (5, NewRecord("t", None, b"")),
)
BATCH = MessageBatch(ID, 1_357_034_400_384, "t", RECORDS)
GOLDEN_LEFT = "01 01 000102030405060708090a0b0c0d0e0f 0000013bf58daa80 01 74 0003 742f78"
LEFT = MessageBatch(ID, 1_357_034_400_384, "t", object_name="t/x")

BYTES = st.binary(max_size=9)
HEADERS = st.lists(st.tuples(st.text(max_size=9), st.none() | BYTES), max_size=4).map(tuple)
NEW_RECORDS = st.builds(
    NewRecord,
    st.just("a-topic"),
    st.none() | BYTES,
    st.none() | BYTES,
    st.none() | st.integers(0, 2**31 - 1),
    st.none() | st.integers(0, 253_402_300_799_999),
    HEADERS,
)
BATCHES = st.builds(
    MessageBatch,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    st.just("a-topic"),
    st.lists(st.tuples(st.integers(0, 2**16 - 1), NEW_RECORDS), max_size=5).map(tuple),
)


@pytest.mark.parametrize(("batch", "golden"), [(BATCH, GOLDEN), (LEFT, GOLDEN_LEFT)])
def test_a_batch_has_its_golden_bytes(batch: MessageBatch, golden: str):
    encoded = message_codec.encode(batch)
    assert encoded[:-4] == bytes.fromhex(golden)
    assert message_codec.decode(encoded) == batch


def test_checksums_are_golden_too():
    assert message_codec.encode(BATCH)[-4:].hex() == "20d0f01d"
    assert message_codec.encode(LEFT)[-4:].hex() == "786c4e01"


@given(BATCHES)
def test_every_batch_comes_back_as_it_was(batch: MessageBatch):
    body = message_codec.to_body(message_codec.encode(batch))
    assert body.isascii()
    assert message_codec.decode(message_codec.from_body(body)) == batch


@given(BATCHES)
def test_sizes_are_known_before(batch: MessageBatch):
    encoded = [message_codec.encode_record(*each) for each in batch.records]
    data = message_codec.encode(batch)
    assert len(data) == message_codec.overhead_bytes(batch.topic) + sum(map(len, encoded))
    assert len(message_codec.to_body(data)) == message_codec.body_length(len(data))


@pytest.mark.parametrize("batch", [BATCH, LEFT])
def test_a_batch_that_is_cut_or_changed_anywhere_is_refused(batch: MessageBatch):
    encoded = message_codec.encode(batch)
    for length in range(len(encoded)):
        with pytest.raises(CodecError):
            message_codec.decode(encoded[:length])
    for place in range(len(encoded)):
        with pytest.raises(CodecError):
            message_codec.decode(encoded[:place] + bytes([encoded[place] ^ 0x40]) + encoded[place + 1 :])


@given(st.binary(max_size=200))
def test_bytes_whose_checksum_is_right_are_a_batch_or_refused(data: bytes):
    whole = b"\x01" + data
    with suppress(CodecError):
        message_codec.decode(whole + zlib.crc32(whole).to_bytes(4, "big"))


@given(st.text(max_size=60))
def test_any_text_is_a_message_or_refused(body: str):
    with suppress(CodecError):
        message_codec.decode(message_codec.from_body(body))


def test_ids_name_the_batch_and_the_place():
    assert BATCH.record_id(5) == "000102030405060708090a0b0c0d0e0f-5"
