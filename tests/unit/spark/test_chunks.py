"""Columns to the lane protocol's bytes, against the plain way of doing it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import hiredis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.lanes import Event, Folder, chunks, columns, encode, fold

from keylane.model.records import Options
from keylane.state import codec
from keylane_spark.rows.chunks import Delivery, OpenChunk, add_records, encode_chunks
from keylane_spark.rows.fields import field_entries
from keylane_spark.rows.fold import Repeats
from keylane_spark.rows.records import Records

KEYS = st.binary(min_size=1, max_size=3)
VALUES = st.none() | st.binary(max_size=40)
KINDS = {
    "plain": Options(),
    "history of 1": Options(history_count=1),
    "history of 3": Options(history_count=3, history_age_ms=5),
    "history by age": Options(history_age_ms=5),
    "first value": Options(insert_once=True),
    "first value for a time": Options(insert_once=True, ttl_ms=5),
}


@st.composite
def logs(draw):
    """Events with gaps between the offsets, few keys so that they repeat, tombstones among them."""
    offset, events = draw(st.integers(0, 1 << 40)), []
    for key, value, gap in draw(
        st.lists(st.tuples(KEYS, VALUES, st.integers(1, 3)), min_size=1, max_size=60)
    ):
        events.append(Event(offset, key, value))
        offset += gap
    return events


@dataclass(frozen=True, slots=True)
class Timed:
    """A record of a log whose times go as they like."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp_ms: int


TIMED_LOGS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), VALUES, st.integers(-1, 9)), min_size=1, max_size=50
).map(lambda rows: [Timed(7 + offset, *row) for offset, row in enumerate(rows)])

REPLACED = [Timed(7, b"a", b"x", 50), Timed(8, b"a", b"y", 40), Timed(9, b"b", b"z", 45)]
GONE_BACK = [Timed(7, b"a", b"x", 50), Timed(8, b"b", b"y", 60), Timed(9, b"a", None, 40)]
CUTS = st.lists(st.integers(0, 50), max_size=6)
LIMITS = st.tuples(st.integers(1, 9), st.integers(30, 900))


def arguments_of(chunk) -> list[bytes]:
    """The chunk's RESP bulk strings, read by hiredis."""
    reader = hiredis.Reader()
    reader.feed(b"*%d\r\n" % (2 * chunk.count) + bytes(chunk.arguments))
    return reader.gets()


def applied(state: dict, chunk) -> dict:
    arguments = arguments_of(chunk)
    for name, payload in zip(arguments[::2], arguments[1::2], strict=True):
        key = name.removeprefix(b"prefix:")
        record = codec.decode_record(key, payload, 0)
        if record is None:
            state.pop(key, None)
        else:
            state[key] = record.value, record.offset
    return state


def in_batches(log, cuts, options, max_records, max_bytes):
    """The chunks of a log that comes in several batches."""
    bounds = sorted({0, len(log), *(cut % len(log) for cut in cuts)})
    folder = Folder(options, max_records, max_bytes)
    folded = []
    for start, end in pairwise(bounds):
        folded += folder.add(columns(log[start:end]))
    folded.append(folder.take())
    assert folder.take() is None
    return folded


def plain_fold(events, options: Options) -> list[bytes]:
    """What a chunk of these events carries, by loops: key and payload in turn."""
    carried = []
    for key in {event.key for event in events}:
        own = [event for event in events if event.key == key]
        kept = own[-1:]
        if options.history_count is not None:
            kept = {
                *kept,
                *sorted(own, key=lambda e: (max(0, e.timestamp_ms), e.offset))[-options.history_count :],
            }
        elif options.has_history:
            kept = own
        elif options.insert_once:
            begin = max((i for i, event in enumerate(own) if event.value is None), default=-1)
            sets = own[begin + 1 :] if options.ttl_ms else own[begin + 1 :][:1]
            kept = [*([own[begin]] if begin >= 0 else []), *sets]
        for event in kept:
            order = max(e.timestamp_ms for e in own if e.offset <= event.offset)
            carried.append((event, order if order > max(0, event.timestamp_ms) else None))
    carried.sort(key=lambda pair: pair[0].offset)
    return [
        part
        for event, order in carried
        for part in (
            event.key,
            codec.encode_record(event.value, event.offset, event.timestamp_ms, order_ms=order),
        )
    ]


@given(logs(), st.integers(1, 9), st.integers(30, 400))
def test_after_each_chunk_the_state_is_the_fold_of_the_log_up_to_there(events, max_records, max_bytes):
    state = {}
    for chunk in chunks(columns(events), b"prefix:", max_records, max_bytes):
        applied(state, chunk)
        before = [event for event in events if event.offset < chunk.end_offset]
        assert state == fold(before)
        assert chunk.has_tombstones or b"\x01\x02" not in {a[:2] for a in arguments_of(chunk)[1::2]}
    assert chunk.end_offset == events[-1].offset + 1
    assert chunk.newest_timestamp_ms == events[-1].timestamp_ms


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "first value"])
@given(log=TIMED_LOGS, cuts=CUTS, limits=LIMITS)
@example(log=REPLACED, cuts=[1, 2], limits=(9, 999))
@example(log=GONE_BACK, cuts=[1, 2], limits=(9, 999))
def test_a_chunk_carries_what_a_plain_fold_of_its_records_keeps(kind, log, cuts, limits):
    options = KINDS[kind]
    begin = 0
    for folded in in_batches(log, cuts, options, *limits):
        events = [event for event in log if begin <= event.offset < folded.end_offset]
        assert arguments_of(encode(folded, Delivery(b""))) == plain_fold(events, options)
        assert folded.newest_timestamp_ms == max(0, *(event.timestamp_ms for event in events))
        begin = folded.end_offset
    assert begin == log[-1].offset + 1


@given(log=TIMED_LOGS, cuts=CUTS, limits=LIMITS)
def test_where_the_first_value_stays_a_chunk_has_the_last_tombstone_and_the_first_set_after_it(
    log, cuts, limits
):
    state = {}
    for folded in in_batches(log, cuts, KINDS["first value"], *limits):
        rows = list(zip(folded.records.keys.to_pylist(), folded.records.values.to_pylist(), strict=True))
        put_first_values(state, rows)
        before = [(event.key, event.value) for event in log if event.offset < folded.end_offset]
        assert state == put_first_values({}, before)
        for key in {key for key, _ in rows}:
            kinds = [value is None for own, value in rows if own == key]
            assert kinds in ([True], [False], [True, False])
    assert folded.end_offset == log[-1].offset + 1


def put_first_values(state, rows):
    """As the server does: a set finds a value and changes nothing."""
    for key, value in rows:
        if value is None:
            state.pop(key, None)
        else:
            state.setdefault(key, value)
    return state


@given(logs(), st.integers(1, 9), st.integers(30, 400))
def test_a_chunk_carries_no_more_than_its_limits_but_one_record_always(events, max_records, max_bytes):
    for chunk in chunks(columns(events), b"prefix:", max_records, max_bytes):
        assert 1 <= chunk.count <= max_records
        own_bytes = sum(map(len, arguments_of(chunk))) - chunk.count * len(b"prefix:")
        assert chunk.count == 1 or own_bytes <= max_bytes


@pytest.mark.parametrize("kind", KINDS)
@given(log=TIMED_LOGS, cuts=CUTS, limits=LIMITS)
def test_a_chunk_over_several_batches_stays_within_its_limits_too(kind, log, cuts, limits):
    max_records, max_bytes = limits
    for folded in in_batches(log, cuts, KINDS[kind], *limits):
        assert 1 <= len(folded.records) <= max_records
        assert len(folded.records) == 1 or folded.records.sizes.sum() <= max_bytes


@given(st.lists(logs(), min_size=1, max_size=4))
def test_chunks_of_many_lanes_are_encoded_at_once_as_each_is_alone(lanes):
    options = Options(fields=(("n", "number"),))
    taken = [Folder(options) for _ in lanes]
    for folder, events in zip(taken, lanes, strict=True):
        assert folder.add(columns(events)) == []
    folded = [each.with_fields(options) for folder in taken if (each := folder.take())]
    deliveries = [Delivery(b"prefix %d:" % number) for number in range(len(folded))]
    together = encode_chunks(folded, deliveries)
    assert len(together) == len(lanes)
    for chunk, own, delivery in zip(together, folded, deliveries, strict=True):
        alone = encode(own, delivery)
        assert bytes(chunk.arguments) == bytes(alone.arguments)
        assert replace(chunk, arguments=None) == replace(alone, arguments=None)
        assert chunk.has_tombstones == (None in own.records.values.to_pylist())
        assert chunk.invalid_fields == field_entries(own.records.values, options)[1]


def test_of_records_without_a_time_a_history_has_the_last_ones_by_their_offsets():
    log = [Timed(offset, b"a", b"%d" % offset, time) for offset, time in enumerate((0, 0, -1, -1))]
    (folded,) = in_batches(log, [], Options(history_count=2), 9, 999)
    assert folded.records.offsets.tolist() == [2, 3]


def test_the_same_key_in_two_lanes_is_two_keys():
    opened = [OpenChunk(), OpenChunk()]
    events = [Event(1, b"a", b"x"), Event(2, b"a", b"y"), Event(3, b"a", b"z")]
    assert add_records(dict(enumerate(opened)), columns(events), np.array([1, 0, 1]), Options()) == {}
    found = [encode(chunk.take(), Delivery(b"")) for chunk in opened]
    assert [chunk.end_offset for chunk in found] == [3, 4]
    assert [codec.decode_record(b"a", arguments_of(chunk)[1], 0).value for chunk in found] == [b"y", b"z"]


def test_chunks_that_lanes_begin_at_once_keep_no_batch_alive():
    before, opened = pa.total_allocated_bytes(), [OpenChunk(), OpenChunk()]
    batch = columns([Event(row, b"%d" % row, bytes(100_000)) for row in range(20)])
    add_records(dict(enumerate(opened)), batch.part(4, 6), np.array([0, 1]), Options())
    del batch
    assert pa.total_allocated_bytes() - before < 1_000_000


ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
        st.none() | st.integers(1, 1 << 40),
        st.integers(-1, 1 << 44),
        st.integers(0, 1 << 44),
        st.binary(max_size=300),
    ),
    min_size=1,
    max_size=9,
)


@given(rows=ROWS, source=st.none() | st.integers(0, 16383))
def test_whatever_an_envelope_has_it_is_the_codec_s_own_bytes(rows, source):
    values, headers, left, times, orders, fields = zip(*rows, strict=True)
    is_left = [size is not None and value is not None for size, value in zip(left, values, strict=True)]
    records = Records(
        pa.array([b"%d" % number for number in range(len(rows))], pa.binary()),
        pa.array([b"" if gone else value for gone, value in zip(is_left, values, strict=True)], pa.binary()),
        np.arange(len(rows)),
        np.array(times),
        pa.array([codec.encode_headers(own) for own in headers], pa.binary()),
        np.array([size if gone else 0 for gone, size in zip(is_left, left, strict=True)]),
        np.array(orders),
    )
    folder = Folder()
    assert list(folder.add(records)) == []
    folded = folder.take()
    assert folded
    with_fields = replace(folded.records, fields=pa.array(fields, pa.binary()))
    chunk = encode(replace(folded, records=with_fields), Delivery(b""), source)
    assert arguments_of(chunk)[1::2] == [
        codec.encode_record(
            codec.LeftInKafka(size) if gone else value,
            number,
            time,
            source,
            order_ms=order if order > max(0, time) else None,
            headers=own or None,
            fields=entries,
        )
        for number, (value, own, size, time, order, gone, entries) in enumerate(
            zip(values, headers, left, times, orders, is_left, fields, strict=True)
        )
    ]


def test_different_keys_fill_chunks_of_two_thousand():
    events = [Event(offset, b"%d" % offset, b"v") for offset in range(4500)]
    assert [chunk.count for chunk in chunks(columns(events), b"")] == [2000, 2000, 500]


def test_an_open_chunk_keeps_no_batch_alive():
    before, folder = pa.total_allocated_bytes(), Folder()
    for number in range(20):
        events = [Event(40 * number + row, b"%d" % row, bytes(100_000)) for row in range(40)]
        list(folder.add(columns(events)))
        assert pa.total_allocated_bytes() - before < 1_000_000
        assert folder.opened.size_bytes < 600_000


@pytest.mark.parametrize("size", [1, 1000])
def test_a_batch_that_is_a_slice_of_a_larger_one_is_cut_as_if_it_were_whole(size):
    events = [Event(offset, b"%d" % (offset % 7), b"v%d" % offset) for offset in range(size + 13)]
    whole, part = columns(events).part(13, size + 13), columns(events[13:])
    assert [bytes(c.arguments) for c in chunks(whole, b"p")] == [
        bytes(c.arguments) for c in chunks(part, b"p")
    ]


@pytest.mark.parametrize("count", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 100_000])
def test_repeated_keys_are_found_however_many_keys_there_are(count: int):
    codes = np.tile(np.arange(count), 2)
    repeats = Repeats(codes)
    assert repeats.previous.tolist() == [-1] * count + list(range(count))
    assert repeats.following.tolist() == list(range(count, 2 * count)) + [2 * count] * count
