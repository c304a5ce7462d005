"""Headers of a column of records, against the codec's own."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
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
