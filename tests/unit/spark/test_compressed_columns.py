"""Columns of values that are compressed, dictionaries of samples, and when another one is made."""

from __future__ import annotations

import random
from dataclasses import replace

import hiredis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.compressed import dictionary_of, order, reading, records_of, value_of

from keylane.model.records import Layout, Options
from keylane.state import codec
from keylane_spark.rows import compression
from keylane_spark.rows.chunks import Folded
from keylane_spark.rows.compression import (
    FEWEST_SAMPLES,
    MOST_SAMPLED_BYTES,
    MOST_SAMPLES,
    ColumnCompressor,
    RatioWatch,
    Samples,
    Sizes,
    best_of,
    compress_chunks,
    keep_values,
    train,
)
from keylane_spark.rows.encoding import encode_history, encode_records

ORDERS = dictionary_of([order(number) for number in range(500)])
READINGS = dictionary_of([reading(number) for number in range(500)])
LAYOUT = Layout("orders", 3, options=Options(compression="zstd"))
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=200),
    st.integers(0, 10**6).map(order),
    st.integers(0, 10**6).map(reading),
    st.integers(0, 5000).map(lambda size: b"x" * size),
)


def expanded(records, dictionary: bytes) -> list[bytes | None]:
    marks = records.compressed if records.compressed is not None else np.zeros(len(records), bool)
    return [
        value_of(value, dictionary) if is_frame else value
        for value, is_frame in zip(records.values.to_pylist(), marks, strict=True)
    ]


@given(st.lists(VALUES, min_size=1), st.integers(0, 3), st.sampled_from([b"", ORDERS]))
@settings(max_examples=60, deadline=None)
def test_values_are_what_they_were_and_none_gets_longer(values, skipped, dictionary):
    column = pa.array([None, b"before", b"x" * 50][:skipped] + values, pa.binary())[skipped:]
    records = replace(records_of(values), values=column)
    found, sizes = ColumnCompressor(dictionary).compress(records)
    assert expanded(found, dictionary) == values
    lengths = [
        (len(old or b""), len(new or b"")) for old, new in zip(values, found.values.to_pylist(), strict=True)
    ]
    assert all(new <= old for old, new in lengths)
    assert sizes.before - sizes.after == sum(old - new for old, new in lengths)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        random.Random(1).randbytes(100_000),
        compression.zstandard().compress(order(1) * 1000),
        b"0123456789abcdef",
    ],
    ids=["empty", "short", "random", "compressed already", "sixteen bytes"],
)
def test_a_value_that_does_not_get_shorter_stays_as_it_is(value: bytes):
    records = records_of([value])
    for dictionary in (b"", ORDERS):
        assert ColumnCompressor(dictionary).compress(records)[0] is records


def test_kinds_of_values_that_alternate_and_large_ones_are_compressed_one_by_one():
    values = [each for number in range(50) for each in (order(number), reading(number), b"", None)]
    values += [order(7) * 30_000, b"\0" * 4 * 1024 * 1024]
    found, _ = ColumnCompressor(ORDERS).compress(records_of(values))
    assert expanded(found, ORDERS) == values
    assert found.compressed is not None
    assert len(found.values[-1].as_py()) < 1000


def test_envelopes_of_compressed_values_say_so_in_records_and_in_histories():
    values = [order(1), b"{}", None]
    records, _ = ColumnCompressor(ORDERS).compress(records_of(values))
    reader = hiredis.Reader()
    reader.feed(b"*6\r\n" + bytes(encode_records(records, b"p:", None)))
    words = reader.gets()
    assert [word[:2] for word in words[1::2]] == [b"\x00\x40", b"\x01\x00", b"\x01\x02"]
    reader.feed(bytes(encode_history(records, b"h:")))
    members = [reader.gets()[3] for _ in values]
    for key, envelope, member, value in zip(words[::2], words[1::2], members, values, strict=True):
        for found in (
            codec.decode_record(key, envelope, 0, lambda frame: value_of(frame, ORDERS)),
            codec.decode_history_member(key, member, 0, lambda frame: value_of(frame, ORDERS)),
        ):
            assert (found and found.value) == value


def test_a_compressed_value_with_fields_has_one_version_for_both():
    records, _ = ColumnCompressor(ORDERS).compress(records_of([order(1), b"{}"]))
    records = replace(records, fields=pa.array([b"\0\0\x01a", b"\0\0\x01b"], pa.binary()))
    reader = hiredis.Reader()
    reader.feed(b"*4\r\n" + bytes(encode_records(records, b"p:", 5)))
    assert [word[:2] for word in reader.gets()[1::2]] == [b"\x00\x61", b"\x02\x21"]


def test_chunks_of_a_topic_are_compressed_at_once_and_those_of_others_not_at_all():
    calls = []

    def compress(layout, records):
        calls.append(len(records))
        return ColumnCompressor(ORDERS).compress(records)[0]

    chunks = [Folded(records_of([order(each) for each in range(count)]), count, 0, 0) for count in (3, 1, 5)]
    found = compress_chunks(chunks, LAYOUT, compress)
    assert calls == [9]
    assert [expanded(each.records, ORDERS) for each in found] == [
        each.records.values.to_pylist() for each in chunks
    ]
    assert compress_chunks(chunks, Layout("plain", 1), compress) == chunks
    assert calls == [9]
    assert keep_values(LAYOUT, chunks[0].records) is chunks[0].records


def test_samples_are_bounded_by_their_number_and_by_their_bytes():
    samples = Samples()
    samples.add(pa.array([None, b"", b"short"], pa.binary()))
    assert samples.values == []
    for _ in range(3):
        samples.add(pa.array([order(each) for each in range(3000)], pa.binary()))
    assert len(samples.values) == MOST_SAMPLES
    assert samples.is_full
    large = Samples()
    large.add(pa.array([b"x" * 1_000_000] * 1000, pa.binary()))
    assert MOST_SAMPLED_BYTES <= large.size_bytes < MOST_SAMPLED_BYTES + 20_000


@pytest.mark.parametrize(
    "values",
    [
        [order(each) for each in range(FEWEST_SAMPLES - 1)],
        [b"the same value, always"] * 5000,
        [],
    ],
    ids=["few", "all alike", "none"],
)
def test_of_some_samples_no_dictionary_is_made_or_one_that_works(values):
    samples = Samples()
    samples.add(pa.array(values, pa.binary()))
    trained = train(samples)
    if len(values) < FEWEST_SAMPLES:
        assert trained is None
    elif trained is not None:
        records, _ = ColumnCompressor(trained).compress(records_of(values[:10]))
        assert expanded(records, trained) == values[:10]


def test_another_dictionary_is_taken_only_where_it_is_much_better():
    samples = Samples()
    samples.add(pa.array([reading(each) for each in range(400)], pa.binary()))
    none, orders, readings = ColumnCompressor(), ColumnCompressor(ORDERS), ColumnCompressor(READINGS)
    assert best_of([none, orders, readings], samples) is readings
    assert best_of([readings, none, orders], samples) is readings
    alike = ColumnCompressor(dictionary_of([reading(each) for each in range(600, 1100)]))
    assert best_of([readings, alike], samples) is readings


def test_a_ratio_has_fallen_once_it_is_worse_for_two_windows(monkeypatch):
    monkeypatch.setattr(compression, "WINDOW_BYTES", 1000)
    watch = RatioWatch()
    assert not watch.note(Sizes(1000, 200))
    assert not watch.note(Sizes(1000, 249))
    assert not watch.note(Sizes(1000, 400))
    assert not watch.note(Sizes(1000, 220))
    assert not watch.note(Sizes(1000, 400))
    assert not watch.note(Sizes(500, 200))
    assert watch.note(Sizes(500, 200))
