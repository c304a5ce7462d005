"""Columns of records: rows of Spark's source by partition, headers, and Kafka's variable-length numbers."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.record_batches import Sent, a_batch

from keylane.model.records import Options
from keylane.state import codec
from keylane_spark.log.record_batches import parse_batches
from keylane_spark.rows.headers import (
    HEADERS,
    LARGEST_HEADERS,
    MOST_HEADERS,
    HeaderValues,
    header_blocks,
)
from keylane_spark.rows.records import stored_records
from keylane_spark.rows.varints import read_varints
from keylane_spark.stream.spark_reader import split_rows

SOURCES = [("orders", 0), ("orders", 1), ("users", 0), ("users", 1)]


def spark_batch(sources: list[tuple[str, int]], *, with_topic: bool = True, with_headers: bool = True):
    """Rows whose offsets are their numbers; times are a millisecond apart, from before 1970 on."""
    numbers = range(len(sources))
    columns = {
        "partition": pa.array([partition for _, partition in sources], pa.int32()),
        "offset": pa.array(numbers, pa.int64()),
        "timestamp": pa.array([1000 * (number - 1) for number in numbers], pa.timestamp("us", "UTC")),
        "key": pa.array([None if number % 5 == 4 else b"%d" % number for number in numbers], pa.binary()),
        "value": pa.array([None if number % 3 == 2 else b"v" for number in numbers], pa.binary()),
    }
    if with_topic:
        columns["topic"] = pa.array([topic for topic, _ in sources], pa.string())
    if with_headers:
        columns["headers"] = pa.array([[("n", b"%d" % number)] for number in numbers], HEADERS)
    return pa.RecordBatch.from_pydict(columns)


def split(*batches: pa.RecordBatch, topics: tuple[str, ...] = ("orders", "users")) -> list:
    return list(split_rows(batches, SimpleNamespace(layouts=dict.fromkeys(topics))))


@given(st.lists(st.sampled_from(SOURCES), max_size=40), st.integers(0, 9))
def test_each_row_comes_once_with_its_partition_and_in_order(sources, skipped):
    found = split(spark_batch(sources).slice(skipped))
    seen = []
    for source, rows in found:
        assert rows.offsets.dtype == rows.timestamps_ms.dtype == np.int64
        assert len(rows) > 0
        columns = (rows.keys.to_pylist(), rows.values.to_pylist(), rows.headers.to_pylist())
        for offset, time_ms, key, value, headers in zip(
            rows.offsets.tolist(), rows.timestamps_ms.tolist(), *columns, strict=True
        ):
            assert time_ms == offset - 1
            assert key == (None if offset % 5 == 4 else b"%d" % offset)
            assert value == (None if offset % 3 == 2 else b"v")
            assert [each["value"] for each in headers] == [b"%d" % offset]
            seen.append((offset, source))
    assert seen == list(enumerate(sources))[skipped:]
    assert all(before[0] != after[0] for before, after in pairwise(found))


def test_rows_without_a_topic_are_of_the_only_one_and_headers_need_not_be_there():
    batches = (spark_batch([("", 3)] * 2, with_topic=False, with_headers=False) for _ in range(2))
    found = split(*batches, topics=("orders",))
    assert [(source, len(rows), rows.headers) for source, rows in found] == [(("orders", 3), 2, None)] * 2


HEADER = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9))
ROW = st.tuples(st.none() | st.lists(HEADER, max_size=4), st.none() | st.binary(max_size=3))


@given(rows=st.lists(ROW, max_size=9), skipped=st.integers(0, 9))
def test_blocks_of_headers_are_the_codec_s_own_and_a_tombstone_has_none(rows, skipped):
    column = pa.array([headers for headers, _ in rows], HEADERS)[skipped:]
    values = pa.array([value for _, value in rows], pa.binary())[skipped:]
    expected = [
        b"" if value is None else codec.encode_headers(tuple(headers or ()))
        for headers, value in rows[skipped:]
    ]
    blocks = header_blocks(column, values)
    assert (blocks.to_pylist() if blocks is not None else [b""] * len(expected)) == expected


def test_headers_that_are_too_many_or_too_large_leave_their_value_in_kafka_and_none_beside_them():
    many = tuple(("", b"") for _ in range(MOST_HEADERS + 1))
    large = (("n", b"h" * (LARGEST_HEADERS + 1)),)
    small = (("n", b"h"), ("m", None))
    given = [small, many, large, small, many, (), large, many[:-1]]
    values = [b"v", b"value", b"", b"v", None, b"v", None, b"v"]
    batch = a_batch(
        *(
            Sent(at, value=value, headers=own)
            for at, (own, value) in enumerate(zip(given, values, strict=True))
        )
    )
    (rows,) = parse_batches(batch, 0, len(given), with_headers=True)
    records = stored_records(rows, Options(headers=True))
    assert records.left_bytes.tolist() == [0, 5, 1, 0, 0, 0, 0, 0]
    assert records.values.to_pylist() == [b"v", b"", b"", b"v", None, b"v", None, b"v"]
    stored = [small, (), (), small, (), (), (), many[:-1]]
    assert records.headers.to_pylist() == [codec.encode_headers(own) if own else b"" for own in stored]
    unread = stored_records(rows, Options())
    assert unread.values.to_pylist() == values, "of a topic that keeps no headers"
    assert unread.left_bytes is None


@pytest.mark.parametrize("character", ["n", "\u00e9", "\U0001f511"])
def test_a_name_too_long_for_its_length_is_cut_between_characters(character):
    column = pa.array([[(character * 70_000, b"v"), ("next", b"w")]], HEADERS)
    (block,) = header_blocks(column, pa.array([b"x"])).to_pylist()
    data = codec.encode_record(b"x", 1, 1, headers=())
    record = codec.decode_record(b"k", data[:18] + len(block).to_bytes(4, "big") + block + b"x", 0)
    assert record.headers == ((character * 16_383, b"v"), ("next", b"w"))


@pytest.mark.parametrize(("limit", "expected"), [(9, [b"1", b"2"]), (1, [b"1"])])
def test_a_header_s_values_are_found_once_over_all_columns(limit, expected):
    rows = [[("t", b"1"), ("other", b"0")], None, [("t", None), ("t", b"2")], [], [("t", b"1")]]
    values = HeaderValues("t", limit)
    for part in (rows[:2], rows[2:], []):
        values.add(pa.array(part, HEADERS))
    assert values.found == expected
    nothing = HeaderValues("t", limit)
    nothing.add(pa.array([], HEADERS))
    assert nothing.found == []


def test_no_more_values_are_kept_than_the_limit():
    values = HeaderValues("t", 32)
    for first in (0, 20, 40):
        values.add(pa.array([[("t", b"%d" % number)] for number in range(first, first + 20)], HEADERS))
    assert values.found == [b"%d" % number for number in range(32)]


INT64 = st.integers(-(2**63), 2**63 - 1)


def varint(number: int) -> bytes:
    """As Kafka's protocol has it: zigzag, then seven bits a byte, the lowest first."""
    left = (number << 1 ^ number >> 63) & 2**64 - 1
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(found + bytes([left]))


@given(st.lists(INT64, min_size=1, max_size=20))
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
