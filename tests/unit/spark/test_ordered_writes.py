"""A chunk as commands, for lanes that take records as they come: what each of them says."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import hiredis
import pytest
from tests.support.lanes import Event, columns

from keylane.model.records import Layout, Options
from keylane.state import codec, redis_keys
from keylane.state.lanes import lane_at
from keylane_spark.adapters.lane import LaneTarget
from keylane_spark.columns.chunks import Chunk, Folder

EVENTS = [
    Event(3, b"zebra", b"1"),
    Event(4, b"apple", b""),
    Event(5, b"gone", None),
    Event(6, b"\x00\xff", b"2"),
    Event(9, b"too", None),
]


def lane_with(**options) -> LaneTarget:
    return LaneTarget.of(Layout("orders", 9, stripes=2, options=Options(**options)), 4, 1)


def chunk_for(lane: LaneTarget, events: list[Event]) -> Chunk:
    folder = Folder(lane.options)
    assert list(folder.add(columns(events))) == []
    folded = folder.take()
    assert folded is not None
    return folded.encode(lane.key_prefix, in_order=lane.in_order)


def commands_of(chunk: Chunk) -> list[list[bytes]]:
    """The other commands, by hiredis; as many as the chunk says."""
    assert chunk.ordered is not None
    reader = hiredis.Reader()
    reader.feed(b"".join(chunk.ordered.others))
    found = [reader.gets() for _ in range(chunk.ordered.other_count)]
    assert reader.gets() is False
    return found


def pairs_of(chunk: Chunk) -> dict[bytes, bytes]:
    assert chunk.ordered is not None
    reader = hiredis.Reader()
    reader.feed(b"*%d\r\n" % (2 * chunk.ordered.count) + bytes(chunk.ordered.arguments))
    words = reader.gets()
    return dict(zip(words[::2], words[1::2], strict=True))


def test_sets_are_pairs_tombstones_have_a_command_each_and_the_index_changes_in_its_order():
    lane = lane_with(index=1, marker_ms=60_000)
    chunk = chunk_for(lane, EVENTS)
    place = lane_at(Layout("orders", 9, stripes=2), 4, 1)
    index = redis_keys.index_key(place.tag, "orders", 1, 4, 1)
    sets = {event.key: event for event in EVENTS if event.value is not None}
    assert pairs_of(chunk) == {
        lane.key_prefix + key: codec.encode_record(event.value, event.offset, event.timestamp_ms)
        for key, event in sets.items()
    }
    gone = [
        [
            b"SET",
            lane.key_prefix + event.key,
            codec.encode_record(None, event.offset, event.timestamp_ms),
            b"PX",
            b"60000",
        ]
        for event in EVENTS
        if event.value is None
    ]
    added = [b"ZADD", index, b"0", b"\x00\xff", b"0", b"apple", b"0", b"zebra"]
    assert commands_of(chunk) == [added, *gone, [b"ZREM", index, b"gone", b"too"]]


def test_without_an_index_there_are_tombstones_alone_and_without_markers_they_are_deletions():
    lane = lane_with(marker_ms=0)
    assert commands_of(chunk_for(lane, EVENTS)) == [
        [b"DEL", lane.key_prefix + b"gone"],
        [b"DEL", lane.key_prefix + b"too"],
    ]


def test_a_chunk_of_sets_is_encoded_once_and_one_of_tombstones_has_no_pair():
    lane = lane_with(index=1)
    sets = chunk_for(lane, [event for event in EVENTS if event.value is not None])
    assert sets.ordered is not None
    assert sets.ordered.arguments is sets.arguments
    deleted = chunk_for(lane, [event for event in EVENTS if event.value is None])
    assert pairs_of(deleted) == {}
    assert [command[0] for command in commands_of(deleted)] == [b"SET", b"SET", b"ZREM"]


def test_in_an_index_of_parts_a_member_is_where_the_library_looks_for_it():
    lane = lane_with(index=3)
    events = [Event(number, b"key-%d" % number, b"v") for number in range(50)]
    commands = commands_of(chunk_for(lane, events))
    assert lane.in_order is not None
    parts = lane.in_order.index_keys
    assert [name for _, name, *_ in commands] == list(parts)
    for _, name, *members in commands:
        keys = members[1::2]
        assert all(first < second for first, second in pairwise(keys))
        for key in keys:
            # string.sub(redis.sha1hex(member), 1, 8) as a number, modulo the parts
            assert parts[int(hashlib.sha1(key, usedforsecurity=False).hexdigest()[:8], 16) % 3] == name
    assert sum(len(command) - 2 for command in commands) == 2 * len(events)


@pytest.mark.parametrize(
    "options",
    [{"ttl_ms": 1}, {"history_count": 1}, {"history_age_ms": 1}, {"insert_once": True}, {"guarded": True}],
)
def test_where_records_are_compared_there_are_no_commands(options):
    lane = lane_with(index=1, **options)
    assert lane.in_order is None
    assert chunk_for(lane, EVENTS).ordered is None


def test_an_open_chunk_that_is_larger_than_the_new_bound_is_sent_whole():
    folder = Folder(max_records=2_000)
    first = [Event(number, b"a" if number == 0 else b"key-%d" % number, b"v") for number in range(300)]
    again = [*first, Event(300, b"a", b"w")]
    assert list(folder.add(columns(again))) == []
    (whole,) = folder.add(columns([Event(301, b"b", b"v")]), 200)
    assert (whole.end_offset, len(whole.records)) == (301, 300)
    rest = folder.take()
    assert rest is not None
    assert rest.records.offsets.tolist() == [301]
