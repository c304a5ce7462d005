"""Columns to the lane protocol's bytes, against the plain way of doing it."""

from __future__ import annotations

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lanes import Event, columns, fold

from keylane import codec
from keylane_spark.columns import chunks

KEYS = st.binary(min_size=1, max_size=3)
VALUES = st.none() | st.binary(max_size=40)


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


@given(logs(), st.integers(1, 9), st.integers(30, 400))
def test_a_chunk_carries_no_more_than_its_limits_but_one_record_always(events, max_records, max_bytes):
    for chunk in chunks(columns(events), b"prefix:", max_records, max_bytes):
        assert 1 <= chunk.count <= max_records
        own_bytes = sum(map(len, arguments_of(chunk))) - chunk.count * len(b"prefix:")
        # A key's bytes are counted at its first value in the chunk: a later one may be 40 bytes longer.
        assert chunk.count == 1 or own_bytes <= max_bytes + 40 * chunk.count


def test_payloads_are_the_codec_s_own_bytes():
    event = Event(1 << 40, b"k\x00\xff", b"v\r\n")
    (chunk,) = chunks(columns([event]), b"prefix:")
    assert arguments_of(chunk) == [
        b"prefix:k\x00\xff",
        codec.encode_record(b"v\r\n", event.offset, event.timestamp_ms),
    ]


def test_a_tombstone_is_a_payload_with_its_flag():
    (chunk,) = chunks(columns([Event(7, b"k", None)]), b"")
    assert arguments_of(chunk) == [b"k", codec.encode_record(None, 7, Event(7, b"k", None).timestamp_ms)]
    assert chunk.has_tombstones


def test_a_key_written_a_hundred_thousand_times_is_one_write():
    events = [Event(offset, b"hot", b"%d" % offset) for offset in range(100_000)]
    (chunk,) = chunks(columns(events), b"")
    assert (chunk.count, chunk.end_offset) == (1, 100_000)
    assert arguments_of(chunk)[1].endswith(b"99999")


def test_different_keys_fill_chunks_of_a_thousand():
    events = [Event(offset, b"%d" % offset, b"v") for offset in range(2500)]
    assert [chunk.count for chunk in chunks(columns(events), b"")] == [1000, 1000, 500]


@pytest.mark.parametrize("size", [1, 1000])
def test_a_batch_that_is_a_slice_of_a_larger_one_is_cut_as_if_it_were_whole(size):
    events = [Event(offset, b"%d" % (offset % 7), b"v%d" % offset) for offset in range(size + 13)]
    whole, part = columns(events), columns(events[13:])
    sliced = type(whole)(whole.keys[13:], whole.values[13:], whole.offsets[13:], whole.timestamps_ms[13:])
    assert [bytes(c.arguments) for c in chunks(sliced, b"p")] == [
        bytes(c.arguments) for c in chunks(part, b"p")
    ]
