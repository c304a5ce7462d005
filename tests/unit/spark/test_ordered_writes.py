"""A chunk as commands, for lanes that take records as they come: what each of them says."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import hiredis
import pytest
from tests.support.lanes import Event, Folder, columns, encode

from keylane.model.records import Layout, Options
from keylane.state import codec, redis_keys
from keylane.state.lanes import lane_at
from keylane.state.ordered import encode_number
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.rows.chunks import Chunk, Delivery

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
    return encode(folded, Delivery(lane.key_prefix, lane.in_order))


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
    [{"ttl_ms": 1}, {"history_age_ms": 1}, {"insert_once": True}, {"guarded": True}],
)
def test_where_records_are_compared_there_are_no_commands(options):
    lane = lane_with(index=1, **options)
    assert lane.in_order is None
    assert chunk_for(lane, EVENTS).ordered is None


def test_a_history_gets_every_record_and_loses_the_oldest_by_rank_and_the_value_is_the_last():
    lane = lane_with(index=1, history_count=2, marker_ms=0)
    assert lane.in_order
    (index,), (past,) = lane.in_order.index_keys, lane.in_order.past_keys
    events = [Event(1, b"a", b"1"), Event(2, b"b", b"2"), Event(3, b"a", b"3"), Event(4, b"b", None)]
    chunk = chunk_for(lane, events)
    assert chunk.count == 4
    assert pairs_of(chunk) == {lane.key_prefix + b"a": codec.encode_record(b"3", 3, events[2].timestamp_ms)}
    base = lane.key_prefix.removesuffix(b"v:") + b"h:"
    place = lane_at(Layout("orders", 9, stripes=2), 4, 1)
    assert base + b"a" == redis_keys.history_key(place.tag, "orders", 1, b"a")
    assert past == redis_keys.history_index_key(place.tag, "orders", 1, 4, 1)
    added, names, *rest = commands_of(chunk)
    assert (added, names) == (
        [b"ZADD", index, b"0", b"a"],
        [b"ZADD", past, b"0", b"a", b"0", b"b"],
    )
    for event, (command, key, score, member) in zip(events, rest[:4], strict=True):
        assert (command, key, score) == (b"ZADD", base + event.key, b"%d" % event.timestamp_ms)
        entry = codec.decode_history_entry(event.key, member, 4)
        assert (entry.record and entry.record.value) == event.value
        assert member[:8] == event.offset.to_bytes(8)
    assert rest[4:6] == [[b"ZREMRANGEBYRANK", base + key, b"0", b"-3"] for key in (b"a", b"b")]
    assert rest[6:] == [[b"DEL", lane.key_prefix + b"b"], [b"ZREM", index, b"b"]]


FIELDS = (("amount", "number"), ("tags", "texts"))


def changes_of(lane: LaneTarget, before: list[Event], after: list[Event]) -> list[list[bytes]]:
    """The commands that change indexes of fields where the lane has the values of `before`."""
    stored = pairs_of(with_fields(lane, before)) if before else {}
    chunk = with_fields(lane, after)
    assert chunk.ordered
    assert chunk.ordered.fields
    reader = hiredis.Reader()
    reader.feed(bytes(chunk.ordered.fields.look))
    looks = [reader.gets() for _ in range(chunk.ordered.fields.count)]
    assert reader.gets() is False
    assert {name for name, *_ in looks} == {b"GETRANGE"}
    found = chunk.ordered.fields.commands(
        [stored.get(key, b"")[int(first) : int(last) + 1] for _, key, first, last in looks]
    )
    assert found is not None
    reader.feed(b"".join(found))
    return [reader.gets() for _ in found]


def with_fields(lane: LaneTarget, events: list[Event]) -> Chunk:
    folder = Folder(lane.options)
    assert list(folder.add(columns(events))) == []
    folded = folder.take()
    assert folded is not None
    return encode(folded.with_fields(lane.options), Delivery(lane.key_prefix, lane.in_order))


def test_new_keys_enter_the_indexes_of_their_fields_in_the_order_of_members():
    lane = lane_with(index=1, fields=FIELDS)
    place = lane_at(Layout("orders", 9, stripes=2), 4, 1)
    amounts, tags = (redis_keys.field_index_key(place.tag, "orders", 1, 4, 1, number) for number in (0, 1))
    events = [Event(1, b"b", b'{"amount": 7}'), Event(2, b"a", b'{"amount": 7, "tags": ["y", "x"]}')]
    seven = encode_number("7")
    assert changes_of(lane, [], events) == [
        [b"ZADD", amounts, b"0", seven + b"\0a", b"0", seven + b"\0b"],
        [b"ZADD", tags, b"0", b"x\0a", b"0", b"y\0a"],
    ]


def test_of_a_known_key_only_what_changes_is_written_and_a_tombstone_removes_all():
    lane = lane_with(index=1, fields=FIELDS)
    assert lane.in_order
    (amounts,), (tags,) = lane.in_order.field_keys
    before = [
        Event(1, b"same", b'{"amount": 1, "tags": ["x"]}'),
        Event(2, b"changed", b'{"amount": 2, "tags": ["x", "y"]}'),
        Event(3, b"gone", b'{"amount": 3}'),
    ]
    after = [
        Event(4, b"same", b'{"amount": 1.0, "tags": ["x"], "more": 1}'),
        Event(5, b"changed", b'{"amount": 2, "tags": ["y", "z"]}'),
        Event(6, b"gone", None),
    ]
    assert changes_of(lane, before, after) == [
        [b"ZADD", tags, b"0", b"z\0changed"],
        [b"ZREM", tags, b"x\0changed"],
        [b"ZREM", amounts, encode_number("3") + b"\0gone"],
    ]


def test_in_indexes_of_parts_a_field_s_member_is_where_the_library_looks_for_it():
    lane = lane_with(index=3, fields=FIELDS)
    assert lane.in_order
    events = [Event(number, b"k%d" % number, b'{"amount": %d}' % number) for number in range(20)]
    commands = changes_of(lane, [], events)
    assert [name for _, name, *_ in commands] == list(lane.in_order.field_keys[0])
    for _, name, *members in commands:
        for member in members[1::2]:
            part = int(hashlib.sha1(member, usedforsecurity=False).hexdigest()[:8], 16) % 3
            assert lane.in_order.field_keys[0][part] == name


def test_a_head_without_all_of_its_entries_says_so():
    lane = lane_with(index=1, fields=FIELDS)
    tags = b'{"tags": [%b]}' % b",".join(b'"%060d"' % number for number in range(5))
    (stored,) = pairs_of(with_fields(lane, [Event(1, b"a", tags)])).values()
    for event, are_all in ((Event(2, b"a", b"{}"), False), (Event(2, b"a", tags), True)):
        chunk = with_fields(lane, [event])
        assert chunk.ordered
        assert chunk.ordered.fields
        last = int(bytes(chunk.ordered.fields.look).split(b"\r\n")[-2])
        assert (chunk.ordered.fields.commands([stored[: last + 1]]) is not None) is are_all


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
