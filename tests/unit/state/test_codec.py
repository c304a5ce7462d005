"""Bytes in Redis: golden ones, cut ones, and there and back again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.model.records import Layout, Options, Record, Watermark
from keylane.state import codec, redis_keys
from keylane.state.lanes import lane_at

if TYPE_CHECKING:
    from collections.abc import Callable

U64 = st.integers(0, 2**64 - 1)
GOLDEN_RECORD = bytes.fromhex("01 00 000000000000002a 0000013bf58daa80") + b'{"a":1}'
GOLDEN_STRAY = bytes.fromhex("01 01 000000000000002a 0000013bf58daa80 00000007") + b"v"
GOLDEN_FULL = bytes.fromhex(
    "01 0d 000000000000002a 0000013bf58daa80 00000007 0000013bf58dae68"
    "00000011 0001 61 00000002 6869 0002 c3a9 ffffffff"
)
GOLDEN_LEFT_IN_KAFKA = bytes.fromhex("01 10 000000000000002a 0000013bf58daa80 0000000000500000")
GOLDEN_WATERMARK = bytes.fromhex(
    "02 06 0000000000000064 0000000000000003 0000013bf58daa80 0000013bf58dae68 0000000000000070"
)


def test_a_compressed_value_has_a_flag_and_a_version_that_older_readers_refuse():
    golden = bytes.fromhex("00 40 000000000000002a 0000013bf58daa80") + b"frame"
    assert codec.encode_record(b"frame", 42, 1_357_034_400_384, compressed=True) == golden
    record = codec.decode_record(b"k", golden, 3, bytes.upper)
    assert record == Record(b"k", b"FRAME", 3, 42, 1_357_034_400_384)
    assert codec.decode_records([b"k", b"l"], [golden, None], 3, bytes.upper) == [record, None]
    with pytest.raises(codec.CodecError, match="compressed, 5 bytes, where none is expected"):
        codec.decode_record(b"k", golden, 3)
    for version in (1, 2, 3):
        with pytest.raises(codec.CodecError, match=f"envelope version {version} is unknown"):
            codec.decode_record(b"k", bytes((version,)) + golden[1:], 3, bytes.upper)


def test_a_compressed_value_has_fields_headers_and_a_history_as_others_do():
    given = {"source_partition": 7, "order_ms": 9, "fields": b"\0\0\x01a", "headers": (("h", b"1"),)}
    data = codec.encode_record(b"frame", 42, 5, compressed=True, **given)
    assert data[:2] == b"\x00\x6d"
    record = codec.decode_record(b"k", data, 3, bytes.upper)
    assert record == Record(b"k", b"FRAME", 7, 42, 5, (("h", b"1"),), entries=b"\0\0\x01a")
    assert codec.fields_of(data) == b"\0\0\x01a"
    member = data[2:10] + b"\x00\x40" + data[10:18] + b"frame"
    entry = codec.decode_history_entry(b"k", member, 3, bytes.upper)
    assert entry.record == Record(b"k", b"FRAME", 3, 42, 5)


@pytest.mark.parametrize("centered", [True, False])
def test_the_layout_of_compressed_values_is_refused_by_older_readers_in_words(centered):
    layout = Layout("orders", 3, stripes=4, options=Options(compression="zstd"), centered=centered)
    data = codec.encode_layout(layout)
    assert codec.decode_layout(data) == layout
    stripes = json.loads(data)["centered_stripes" if centered else "stripes"]
    with pytest.raises(ValueError, match="of compressed values, which need a newer version of Keylane"):
        int(stripes)  # as they do
    with pytest.raises(codec.CodecError, match=r"this is not a layout record: .*invalid literal"):
        codec.decode_layout(data.replace(b"compressed", b"encrypted"))


@pytest.mark.parametrize(
    ("head", "partition", "lane_partition", "expected"),
    [
        (GOLDEN_RECORD, 3, 3, "01 02 000000000000002a 0000013bf58daa80"),
        (GOLDEN_RECORD, 3, 4, "01 03 000000000000002a 0000013bf58daa80 00000003"),
        (GOLDEN_STRAY, 3, 4, "01 03 000000000000002a 0000013bf58daa80 00000007"),
        (GOLDEN_STRAY, 3, 7, "01 02 000000000000002a 0000013bf58daa80"),
        (GOLDEN_FULL, 3, 3, "01 07 000000000000002a 0000013bf58daa80 00000007 0000013bf58dae68"),
        (GOLDEN_FULL, 3, 7, "01 06 000000000000002a 0000013bf58daa80 0000013bf58dae68"),
        (b"\x01\x04" + GOLDEN_RECORD[2:18] + b"\0" * 12, 3, 4, None),
    ],
)
def test_a_tombstone_has_position_and_order_of_a_record_wherever_it_is_stored(
    head: bytes, partition: int, lane_partition: int, expected: str | None
):
    made = codec.tombstone_of(head[: codec.ORDERED_HEAD_BYTES], partition, lane_partition)
    if expected is None:  # an order timestamp, and no source
        expected = "01 07 000000000000002a 0000013bf58daa80 00000003 0000000000000000"
    assert made == bytes.fromhex(expected)
    with pytest.raises(codec.CodecError):
        codec.tombstone_of(GOLDEN_FULL[:25], partition, lane_partition)


def decoded(decode: Callable[[], object]) -> object:
    try:
        return decode()
    except codec.CodecError as error:
        return str(error)


@given(st.lists(st.binary(max_size=30) | st.none() | st.binary().map(GOLDEN_RECORD.__add__), max_size=4))
def test_many_records_are_decoded_as_each_alone(found: list[bytes | None]):
    found += [GOLDEN_FULL, GOLDEN_STRAY, GOLDEN_RECORD]
    keys = [b"k%d" % number for number in range(len(found))]

    def each_alone() -> list[Record | None]:
        rows = zip(keys, found, strict=True)
        return [None if data is None else codec.decode_record(key, data, 3) for key, data in rows]

    assert decoded(lambda: codec.decode_records(keys, found, 3)) == decoded(each_alone)


HEADERS = (("a", b"hi"), ("\u00e9", None))
AT_MS, LEFT_BYTES = 1_357_034_400_384, 5 * 1024 * 1024
FULL = codec.encode_record(b"v", 42, AT_MS, 7, order_ms=AT_MS + 1000, headers=HEADERS)


@pytest.mark.parametrize(
    ("encoded", "golden", "record"),
    [
        (
            codec.encode_record(b'{"a":1}', 42, AT_MS),
            GOLDEN_RECORD,
            Record(b"k", b'{"a":1}', 3, 42, AT_MS),
        ),
        (codec.encode_record(b"v", 42, AT_MS, 7), GOLDEN_STRAY, Record(b"k", b"v", 7, 42, AT_MS)),
        (FULL, GOLDEN_FULL + b"v", Record(b"k", b"v", 7, 42, AT_MS, HEADERS)),
        (
            codec.encode_record(codec.LeftInKafka(LEFT_BYTES), 42, AT_MS),
            GOLDEN_LEFT_IN_KAFKA,
            Record(b"k", b"", 3, 42, AT_MS, (), LEFT_BYTES),
        ),
    ],
    ids=["plain", "stray", "with everything", "left in Kafka"],
)
def test_a_record_has_its_golden_bytes(encoded: bytes, golden: bytes, record: Record):
    assert encoded == golden
    assert codec.decode_record(b"k", golden, 3) == record


@pytest.mark.parametrize(
    ("golden", "lengths"),
    [(GOLDEN_RECORD, range(18)), (GOLDEN_STRAY, range(18, 22)), (GOLDEN_FULL, range(18, len(GOLDEN_FULL)))],
    ids=["plain", "stray", "with everything"],
)
def test_a_record_that_is_cut_is_refused(golden: bytes, lengths: range):
    for length in lengths:
        with pytest.raises(codec.CodecError, match="too few" if golden is not GOLDEN_FULL else None):
            codec.decode_record(b"k", golden[:length], 0)


def test_history_member_has_its_offset_first():
    member = GOLDEN_STRAY[2:10] + GOLDEN_STRAY[:2] + GOLDEN_STRAY[10:]
    assert codec.decode_history_member(b"k", member, 3) == Record(b"k", b"v", 7, 42, 1_357_034_400_384)


def test_watermark_has_its_golden_bytes():
    watermark = Watermark(
        100, 3, 1_357_034_400_384, 1_357_034_401_384, incomplete=True, has_strays=True, log_end=112
    )
    assert codec.encode_watermark(watermark) == GOLDEN_WATERMARK
    assert codec.decode_watermark(GOLDEN_WATERMARK) == watermark


def test_keys_have_their_golden_bytes():
    assert redis_keys.value_key(b"6b", "flights", 2, b"N\xff") == b"{6b}:flights:2:v:N\xff"
    assert redis_keys.history_key(b"6b", "flights", 2, b"N\xff") == b"{6b}:flights:2:h:N\xff"
    assert redis_keys.index_key(b"6b", "flights", 2, 3, 0) == b"{6b}:flights:2:i:3.0"
    assert redis_keys.parts_of(b"{6b}:flights:2:i:3.0", 1) == [b"{6b}:flights:2:i:3.0"]
    assert redis_keys.parts_of(b"{6b}:flights:2:i:3.0", 2) == [
        b"{6b}:flights:2:i:3.0.0",
        b"{6b}:flights:2:i:3.0.1",
    ]
    assert redis_keys.watermark_key(b"6b", "flights", 2, 3, 0) == b"{6b}:flights:2:w:3.0"
    assert redis_keys.layout_key("flights") == b"{keylane}:layout:flights"
    assert redis_keys.epoch_key("flights") == b"{keylane}:epoch:flights"


def test_layout_has_its_golden_bytes():
    assert codec.encode_layout(Layout("flights", 9)) == (
        b'{"centered_stripes": 1, "generation": 1, "options": {}, "partition_by": "key", '
        b'"partition_count": 9, "partitioner": "murmur2", "topic": "flights"}'
    )


def test_a_layout_of_an_older_writer_has_its_lanes_in_the_first_slots_of_their_shares():
    older = codec.encode_layout(Layout("flights", 9, stripes=4)).replace(b"centered_stripes", b"stripes")
    layout = codec.decode_layout(older)
    assert layout == Layout("flights", 9, stripes=4, centered=False)
    assert lane_at(layout, 1, 0).slot == 1820
    assert lane_at(codec.decode_layout(codec.encode_layout(layout)), 1, 0).slot == 1820
    assert lane_at(replace(layout, centered=True), 1, 0).slot == 2048


def test_a_reader_of_older_layouts_refuses_a_newer_one():
    """It asks for `stripes`, where it would look for keys in other slots."""
    assert "stripes" not in json.loads(codec.encode_layout(Layout("flights", 9)))


@pytest.mark.parametrize(
    ("parts", "stored"), [(0, b"{}"), (1, b'{"index": true}'), (16, b'{"index_parts": 16}')]
)
def test_an_index_in_parts_has_another_name_so_an_older_reader_finds_none_and_not_an_empty_one(
    parts: int, stored: bytes
):
    layout = Layout("flights", 9, options=Options(index=parts))
    assert b'"options": %b,' % stored in codec.encode_layout(layout)
    assert codec.decode_layout(codec.encode_layout(layout)) == layout


def test_an_incarnation_is_stored_and_an_older_layout_has_none():
    layout = Layout("trips", 9, incarnation=1_795_311_449_754)
    assert b'"incarnation": 1795311449754' in codec.encode_layout(layout)
    assert codec.decode_layout(codec.encode_layout(layout)) == layout
    assert codec.decode_layout(codec.encode_layout(Layout("trips", 9))).incarnation == 0


def test_layout_says_by_what_its_keys_are_partitioned():
    layout = Layout("trips", 9, partition_by="prefix:→")
    assert codec.decode_layout(codec.encode_layout(layout)) == layout
    older = codec.encode_layout(Layout("trips", 9)).replace(b'"partition_by": "key", ', b"")
    assert codec.decode_layout(older) == Layout("trips", 9)


def test_timestamp_that_kafka_has_not_is_stored_as_zero():
    record = codec.decode_record(b"k", codec.encode_record(b"v", 0, -1), 0)
    assert record
    assert record.timestamp_ms == 0


@given(st.builds(Watermark, U64, U64, U64, U64, st.booleans(), st.booleans(), st.booleans(), U64))
def test_watermarks_come_back(watermark: Watermark):
    assert codec.decode_watermark(codec.encode_watermark(watermark)) == watermark


@given(
    st.builds(
        Layout,
        st.text(max_size=30),
        st.integers(1, 16384),
        st.integers(1, 64),
        st.text(max_size=10),
        st.integers(1, 2**40),
        st.builds(
            Options, ttl_ms=st.none() | st.integers(1), index=st.booleans(), max_value_bytes=st.integers(1)
        ),
    )
)
def test_layouts_come_back(layout: Layout):
    assert codec.decode_layout(codec.encode_layout(layout)) == layout


@pytest.mark.parametrize("length", [*range(42), 43, 420])
def test_watermark_of_another_length_is_refused(length: int):
    with pytest.raises(codec.CodecError, match="42 bytes"):
        codec.decode_watermark((GOLDEN_WATERMARK * 10)[:length])


def test_other_versions_are_refused():
    with pytest.raises(codec.CodecError, match="version 2"):
        codec.decode_record(b"k", b"\x02" + GOLDEN_RECORD[1:], 0)
    with pytest.raises(codec.CodecError, match="version 9"):
        codec.decode_watermark(b"\x09" + GOLDEN_WATERMARK[1:])


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"[]", b"1", b"{}", b'{"topic": "t"}', codec.encode_layout(Layout("t", 0)),
        codec.encode_layout(Layout("t", 9, stripes=0)),
        codec.encode_layout(Layout("t", 9)).replace(b"9", b'"nine"'),
        codec.encode_layout(Layout("t", 9)).replace(b"{}", b"7"),
    ],
)  # fmt: skip
def test_invalid_layout_is_refused(data: bytes):
    with pytest.raises(codec.CodecError):
        codec.decode_layout(data)


def test_layout_of_a_newer_writer_is_read_without_what_is_unknown():
    data = codec.encode_layout(Layout("t", 9))[:-1] + b', "colour": "red"}'
    data = data.replace(b'"options": {}', b'"options": {"shade": 3, "index": true}')
    assert codec.decode_layout(data) == Layout("t", 9, options=Options(index=True))
