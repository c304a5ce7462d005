"""Chunks that only set values go as transactions: a lane then holds what calls would have left.

Behind each transaction the writer has already watched and read the lane for its next chunk: what happens
between two chunks happens between that reading and EXEC.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.integration.lanes.test_lanes import primary_of
from tests.support import lanes as t
from tests.support.lanes import Event

from keylane.errors import CorruptState, Fenced, LaneBehind
from keylane.model.records import Options, Watermark
from keylane.state import codec
from keylane_spark.lanes import lane as lane_module
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.rows.chunks import Delivery
from keylane_spark.rows.ordered_writes import FieldChanges
from keylane_spark.rows.records import Records, Rows, stored_records

if TYPE_CHECKING:
    from redis import Redis

    from keylane_spark.lanes.lane_writer import LaneWriter
    from keylane_spark.rows.chunks import Chunk, Folded


def put(lanes: LaneWriter, lane: LaneTarget, offset: int, key: bytes = b"a") -> None:
    """Send one record as one chunk, and wait until it has arrived."""
    pair = key, codec.encode_record(b"v%d" % offset, offset, t.BASE_MS + offset)
    fields = {"end_offset": offset + 1, "newest_timestamp_ms": t.BASE_MS + offset}
    lanes.apply(lane, OffsetRange(offset, offset + 1), t.chunk_of(lane, pair, **fields))
    lanes.flush()


def values(nodes: str, lane: LaneTarget, *keys: bytes) -> dict[bytes, bytes]:
    records, _ = t.held(nodes, lane, keys)
    return {key: record.value for key, record in records.items()}


def calls(client: Redis, command: str) -> int:
    return client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def test_chunks_of_sets_run_no_function_and_a_tombstone_does(redis_cluster, lane, lanes):
    with primary_of(redis_cluster, lane) as primary:
        functions, transactions = calls(primary, "fcall"), calls(primary, "exec")
        for offset in range(3):
            put(lanes, lane, offset)
        assert calls(primary, "fcall") == functions
        assert calls(primary, "exec") == transactions + 3
        tombstone = t.chunk_of(lane, (b"a", codec.encode_record(None, 3, t.BASE_MS)), has_tombstones=True)
        lanes.apply(lane, OffsetRange(3, 4), tombstone)
        lanes.flush()
        assert calls(primary, "fcall") == functions + 1
    assert values(redis_cluster, lane, b"a") == {}


def test_few_records_are_no_transaction(redis_cluster, monkeypatch, lane, lanes):
    monkeypatch.setattr(lane_module, "PAYS_FROM_RECORDS", 2)
    with primary_of(redis_cluster, lane) as primary:
        functions = calls(primary, "fcall")
        put(lanes, lane, 0)
        assert calls(primary, "fcall") == functions + 1


def test_the_watermark_moves_with_the_records_and_keeps_what_else_it_says(redis_cluster, lane, lanes):
    lanes.mark_incomplete([lane])
    t.complete(lanes, lane, 0, t.BASE_MS)
    put(lanes, lane, 0)
    _, watermark = t.held(redis_cluster, lane, [])
    assert watermark == Watermark(1, 1, t.BASE_MS, complete_as_of_ms=t.BASE_MS, incomplete=True)


def test_a_heartbeat_between_two_chunks_costs_no_record_and_stays(redis_cluster, lane):
    lanes, heartbeat = t.opened(redis_cluster, lane), t.writer(redis_cluster, 1)
    with primary_of(redis_cluster, lane) as primary:
        put(lanes, lane, 0)
        t.complete(heartbeat, lane, 1, t.BASE_MS)
        functions = calls(primary, "fcall")
        put(lanes, lane, 1, b"b")
        assert calls(primary, "fcall") == functions
    assert values(redis_cluster, lane, b"a", b"b") == {b"a": b"v0", b"b": b"v1"}
    _, watermark = t.held(redis_cluster, lane, [])
    assert (watermark.next_offset, watermark.complete_as_of_ms) == (2, t.BASE_MS)


def test_a_newer_writer_between_two_chunks_fences_the_second(redis_cluster, lane, lanes):
    put(lanes, lane, 0)
    t.opened(redis_cluster, lane, epoch=2)
    with pytest.raises(Fenced):
        put(lanes, lane, 1, b"b")
    assert values(redis_cluster, lane, b"a", b"b") == {b"a": b"v0"}


def test_a_connection_that_was_lost_watches_nothing_and_is_not_relied_on(redis_cluster, lane):
    cluster = t.Cluster(t.settings(redis_cluster))
    lanes = t.writer_over(cluster, 1)
    lanes.open([(lane, 0)])
    put(lanes, lane, 0)
    cluster.drop(cluster.primary(lane.slot))
    t.opened(redis_cluster, lane, epoch=2)
    with pytest.raises(Fenced):
        put(lanes, lane, 1, b"b")
    assert values(redis_cluster, lane, b"b") == {}


def test_a_chunk_whose_connection_breaks_is_applied_once(redis_cluster, lane, lanes):
    put(lanes, lane, 0)
    with primary_of(redis_cluster, lane) as primary:
        primary.client_kill_filter(_type="normal", skipme=True)
    put(lanes, lane, 1, b"b")
    assert values(redis_cluster, lane, b"a", b"b") == {b"a": b"v0", b"b": b"v1"}


def test_a_lanes_first_stray_between_two_chunks_is_compared_with_the_second(redis_cluster, lane):
    lanes, others = t.opened(redis_cluster, lane), t.writer(redis_cluster, 1)
    put(lanes, lane, 0)
    stray = codec.encode_record(b"stray", 7, t.BASE_MS + 50, source_partition=5)
    others.put_strays(lane, t.chunk_of(lane, (b"a", stray), end_offset=8), 5)
    others.flush()
    put(lanes, lane, 1)
    assert values(redis_cluster, lane, b"a") == {b"a": b"stray"}
    with primary_of(redis_cluster, lane) as primary:
        transactions = calls(primary, "exec")
        put(lanes, lane, 2)
        assert calls(primary, "exec") == transactions


def test_a_lane_that_vanished_between_two_chunks_gets_nothing(redis_cluster, lane, lanes):
    put(lanes, lane, 0)
    with primary_of(redis_cluster, lane) as primary:
        primary.delete(lane.watermark_key)
    with pytest.raises(LaneBehind):
        put(lanes, lane, 1, b"b")
    assert values(redis_cluster, lane, b"b") == {}


def test_chunks_of_several_lanes_of_one_node_take_turns_and_all_arrive(redis_cluster):
    lanes_of_node = [t.new_lane(4) for _ in range(3)]
    lanes = t.writer(redis_cluster, 1)
    lanes.open([(lane, 0) for lane in lanes_of_node])
    for offset in range(5):
        for lane in lanes_of_node:
            pair = b"k%d" % offset, codec.encode_record(b"v", offset, t.BASE_MS)
            lanes.apply(lane, OffsetRange(offset, offset + 1), t.chunk_of(lane, pair, end_offset=offset + 1))
    lanes.flush()
    for lane in lanes_of_node:
        assert len(values(redis_cluster, lane, *(b"k%d" % n for n in range(5)))) == 5
        assert t.held(redis_cluster, lane, [])[1].next_offset == 5


def records_of(events: list[Event], options: Options) -> Records:
    """What a topic with these options stores of events; every third has a header, if headers are kept."""
    records = t.columns(events)
    pairs = [[("trace", b"%d" % event.offset)] if event.offset % 3 == 0 else [] for event in events]
    headers = pa.array(pairs, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    rows = Rows(records.offsets, records.timestamps_ms, records.keys, records.values, headers)
    return stored_records(rows, options)


def encoded(lane: LaneTarget, folded: Folded) -> Chunk:
    return t.encode(folded.with_fields(lane.options), lane.delivery(len(folded.records)))


def content(nodes: str, lane: LaneTarget) -> dict[bytes, object]:
    """All that Redis has of the lane but its watermark: values, and members of the indexes."""
    with primary_of(nodes, lane) as primary:
        names = primary.cluster("GETKEYSINSLOT", lane.slot, 10_000)
        own = {name.encode() if isinstance(name, str) else name for name in names}
        found: dict[bytes, object] = {}
        for name in own:
            kind = name.removeprefix(lane.key_prefix.removesuffix(b"v:"))
            if name.startswith(lane.key_prefix):
                found[name.removeprefix(lane.key_prefix)] = primary.get(name), primary.pttl(name) > 0
            elif kind.startswith((b"h:", b"p:")):
                found[kind] = primary.zrange(name, 0, -1, withscores=True), primary.pttl(name)
            elif kind.startswith((b"i:", b"f:")):
                found[kind] = primary.zrange(name, 0, -1, withscores=True)
        return found


FIELDS = {
    "fields": (("amount", "number"), ("status", "text"), ("tags", "texts")),
    "indexes": (("by_status", ("status", "amount")),),
}


def any_value(source: random.Random) -> bytes | None:
    """Return a tombstone, or a value with none, some or all of the fields, of short or long entries."""
    value: dict[str, object] = {"note": source.choice(["", "n" * 200])}
    if source.random() < 0.7:
        value["status"] = source.choice([*["open", "paid", "\0\1", 7] * 3, "x" * 200])
    if source.random() < 0.7:
        value["amount"] = source.choice([1, -2.5, "1e30", None])
    if source.random() < 0.3:
        value["tags"] = [f"tag-{number}" * 5 for number in range(source.choice([*[1, 2] * 7, 40]))]
    return source.choice([None, b"no JSON", *[json.dumps(value).encode()] * 8])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"index": 1},
        {"index": 3},
        {"index": 1, "marker_ms": 0},
        {"index": 1, **FIELDS},
        {"index": 3, "marker_ms": 0, **FIELDS},
        {"history_count": 1},
        {"history_count": 3, "index": 1, "marker_ms": 0},
        {"history_count": 2, "index": 3, "headers": True, "max_value_bytes": 100, **FIELDS},
    ],
)
def test_a_log_leaves_what_the_function_would_have_left(redis_cluster, monkeypatch, options):
    source = random.Random(str(options))
    keys = [b"key-%d" % number for number in range(12)]
    events = [Event(offset, source.choice(keys), any_value(source)) for offset in range(300)]
    left = []
    for pays in (1, 10**6):
        monkeypatch.setattr(lane_module, "PAYS_FROM_RECORDS", pays)
        lane = t.new_lane(**options)
        lanes = t.opened(redis_cluster, lane)
        with primary_of(redis_cluster, lane) as primary:
            functions = calls(primary, "fcall")
            folder, begin = t.Folder(lane.options, 7), 0
            for at in range(0, len(events), 40):
                folded = [*folder.add(records_of(events[at : at + 40], lane.options), 7)]
                for chunk in (encoded(lane, each) for each in folded):
                    lanes.apply(lane, OffsetRange(begin, chunk.end_offset), chunk)
                    begin = chunk.end_offset
            lanes.flush()
            # The fields of a few are longer than those of the whole chunk that replaces them.
            by_function = calls(primary, "fcall") - functions
            assert by_function <= (8 if "fields" in options else 0) if pays == 1 else by_function > 20
        left.append(content(redis_cluster, lane))
    assert left[0] == left[1]
    assert len(left[0]) > len(keys) // 3


def test_another_type_in_the_way_of_the_index_is_refused(redis_cluster):
    lane = t.new_lane(index=1)
    lanes = t.opened(redis_cluster, lane)
    assert lane.in_order
    with primary_of(redis_cluster, lane) as primary:
        primary.set(lane.in_order.index_keys[0], b"no set")
    (folded,) = t.Folder(lane.options, 1).add(t.columns([Event(0, b"a", b"v"), Event(1, b"b", b"v")]))
    lanes.apply(lane, OffsetRange(0, 1), t.encode(folded, Delivery(lane.key_prefix, lane.in_order)))
    with pytest.raises(CorruptState):
        lanes.flush()


def test_a_lane_with_an_index_and_strays_is_known_to_compare_and_takes_the_chunk_by_the_function(
    redis_cluster,
):
    lane = t.new_lane(index=1)
    lanes, others = t.opened(redis_cluster, lane), t.writer(redis_cluster, 1)
    assert not lanes.is_compared(lane)
    stray = codec.encode_record(b"stray", 7, t.BASE_MS + 50, source_partition=5)
    others.put_strays(lane, t.chunk_of(lane, (b"a", stray), end_offset=8), 5)
    others.flush()
    folded, _ = t.Folder(lane.options, 1).add(
        t.columns([Event(0, b"a", b"v"), Event(1, b"b", b"v"), Event(2, b"c", b"v")])
    )
    lanes.apply(lane, OffsetRange(0, 1), t.encode(folded, Delivery(lane.key_prefix, lane.in_order)))
    lanes.flush()
    assert lanes.is_compared(lane)
    assert values(redis_cluster, lane, b"a") == {b"a": b"stray"}


def lane_with_fields(**options) -> LaneTarget:
    return t.new_lane(**{"index": 1, "fields": (("status", "text"),), **options})


def put_status(lanes: LaneWriter, lane: LaneTarget, offset: int, **statuses: str | None) -> None:
    """Send a record of each key as one chunk, and wait until it has arrived; None: a tombstone."""
    events = [
        Event(offset + at, key.encode(), status and json.dumps({"status": status}).encode())
        for at, (key, status) in enumerate(statuses.items())
    ]
    folder = t.Folder(lane.options)
    assert list(folder.add(t.columns(events))) == []
    folded = folder.take()
    assert folded
    lanes.apply(lane, OffsetRange(offset, offset + len(events)), encoded(lane, folded))
    lanes.flush()


def members(primary: Redis, lane: LaneTarget) -> list[bytes]:
    assert lane.in_order
    return primary.zrange(lane.in_order.field_keys[0][0], 0, -1)


def test_a_field_that_stays_costs_no_write_and_one_that_changes_one_of_each_kind(redis_cluster):
    lane = lane_with_fields()
    lanes = t.opened(redis_cluster, lane)
    with primary_of(redis_cluster, lane) as primary:
        put_status(lanes, lane, 0, a="open", b="open", c="open")
        before = [calls(primary, name) for name in ("fcall", "zadd", "zrem", "getrange")]
        put_status(lanes, lane, 3, a="open", b="open")
        assert [calls(primary, name) for name in ("fcall", "zadd", "zrem", "getrange")] == [
            *(before[0], before[1] + 1, before[2], before[3] + 2)
        ]
        put_status(lanes, lane, 5, a="paid", b="paid", c="open")
        assert [calls(primary, name) for name in ("fcall", "zadd", "zrem")] == [
            *(before[0], before[1] + 3, before[2] + 1)
        ]
        assert members(primary, lane) == [b"open\0c", b"paid\0a", b"paid\0b"]


def test_a_key_that_is_deleted_leaves_the_index_of_its_field_and_the_last_one_removes_it(redis_cluster):
    lane = lane_with_fields()
    lanes = t.opened(redis_cluster, lane)
    with primary_of(redis_cluster, lane) as primary:
        put_status(lanes, lane, 0, a="open", b="paid")
        put_status(lanes, lane, 2, a=None)
        assert members(primary, lane) == [b"paid\0b"]
        put_status(lanes, lane, 3, a="open", b=None)
        assert members(primary, lane) == [b"open\0a"]


def test_a_newer_writer_between_heads_and_exec_leaves_the_indexes_of_fields_as_they_are(
    redis_cluster, monkeypatch
):
    lane = lane_with_fields()
    lanes = t.opened(redis_cluster, lane)
    put_status(lanes, lane, 0, a="open")
    commands = FieldChanges.commands

    def open_meanwhile(self, heads):
        t.opened(redis_cluster, lane, epoch=2)
        return commands(self, heads)

    monkeypatch.setattr(FieldChanges, "commands", open_meanwhile)
    with pytest.raises(Fenced):
        put_status(lanes, lane, 1, a="paid")
    with primary_of(redis_cluster, lane) as primary:
        assert members(primary, lane) == [b"open\0a"]


def test_a_heartbeat_between_heads_and_exec_costs_another_look_and_no_function(redis_cluster, monkeypatch):
    lane = lane_with_fields()
    lanes, heartbeat = t.opened(redis_cluster, lane), t.writer(redis_cluster, 1)
    put_status(lanes, lane, 0, a="open")
    commands, beats = FieldChanges.commands, iter([True])

    def beat_meanwhile(self, heads):
        if next(beats, False):
            t.complete(heartbeat, lane, 1, t.BASE_MS)
        return commands(self, heads)

    monkeypatch.setattr(FieldChanges, "commands", beat_meanwhile)
    with primary_of(redis_cluster, lane) as primary:
        functions, looks = calls(primary, "fcall"), calls(primary, "getrange")
        put_status(lanes, lane, 1, a="paid")
        assert calls(primary, "fcall") == functions + 1  # the heartbeat's
        assert calls(primary, "getrange") == looks + 2
        assert members(primary, lane) == [b"paid\0a"]


def test_entries_longer_than_what_is_looked_at_are_removed_by_the_function(redis_cluster):
    lane = lane_with_fields(fields=(("tags", "texts"),))
    lanes = t.opened(redis_cluster, lane)
    with primary_of(redis_cluster, lane) as primary:
        events = [Event(0, b"a", json.dumps({"tags": ["x" * 60, "y" * 60, "z"]}).encode())]
        (folded,) = t.Folder(lane.options, 1).add(t.columns([*events, Event(1, b"b", b"{}")]))
        lanes.apply(lane, OffsetRange(0, 1), encoded(lane, folded))
        lanes.flush()
        assert len(members(primary, lane)) == 3
        functions = calls(primary, "fcall")
        events = [Event(1, b"a", b'{"tags": ["z"]}'), Event(2, b"b", b"{}")]
        (folded,) = t.Folder(lane.options, 1).add(t.columns(events))
        lanes.apply(lane, OffsetRange(1, 2), encoded(lane, folded))
        lanes.flush()
        assert calls(primary, "fcall") == functions + 1
        assert members(primary, lane) == [b"z\0a"]


def test_what_is_no_envelope_had_no_fields(redis_cluster):
    lane = lane_with_fields()
    lanes = t.opened(redis_cluster, lane)
    with primary_of(redis_cluster, lane) as primary:
        functions = calls(primary, "fcall")
        primary.rpush(lane.key_prefix + b"a", b"no string")
        primary.set(lane.key_prefix + b"b", bytes((2, 32)) + bytes(16) + b"\0\xff\0\4open")
        put_status(lanes, lane, 0, a="open", b="open")
        assert calls(primary, "fcall") == functions
        assert members(primary, lane) == [b"open\0a", b"open\0b"]
