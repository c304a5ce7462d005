"""Chunks that only set values go as transactions: a lane then holds what calls would have left.

Behind each transaction the writer has already watched and read the lane for its next chunk: what happens
between two chunks happens between that reading and EXEC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.lanes.test_lanes import new_lane, opened, primary_of
from tests.support import lanes as t

from keylane.errors import Fenced, LaneBehind
from keylane.model.records import Watermark
from keylane.state import codec
from keylane_spark.adapters import lane_writer
from keylane_spark.adapters.lane import OffsetRange

if TYPE_CHECKING:
    from redis import Redis

    from keylane_spark.adapters.lane import LaneTarget
    from keylane_spark.adapters.lane_writer import LaneWriter


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


def test_chunks_of_sets_run_no_function_and_a_tombstone_does(redis_cluster):
    lane = new_lane()
    lanes = opened(redis_cluster, lane)
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


def test_few_records_are_no_transaction(redis_cluster, monkeypatch):
    monkeypatch.setattr(lane_writer, "PAYS_FROM_RECORDS", 2)
    lane = new_lane()
    lanes = opened(redis_cluster, lane)
    with primary_of(redis_cluster, lane) as primary:
        functions = calls(primary, "fcall")
        put(lanes, lane, 0)
        assert calls(primary, "fcall") == functions + 1


def test_the_watermark_moves_with_the_records_and_keeps_what_else_it_says(redis_cluster):
    lane = new_lane()
    lanes = opened(redis_cluster, lane)
    lanes.mark_incomplete([lane])
    t.complete(lanes, lane, 0, t.BASE_MS)
    put(lanes, lane, 0)
    _, watermark = t.held(redis_cluster, lane, [])
    assert watermark == Watermark(1, 1, t.BASE_MS, complete_as_of_ms=t.BASE_MS, incomplete=True)


def test_a_heartbeat_between_two_chunks_costs_no_record_and_stays(redis_cluster):
    lane = new_lane()
    lanes, heartbeat = opened(redis_cluster, lane), t.writer(redis_cluster, 1)
    with primary_of(redis_cluster, lane) as primary:
        put(lanes, lane, 0)
        t.complete(heartbeat, lane, 1, t.BASE_MS)
        functions = calls(primary, "fcall")
        put(lanes, lane, 1, b"b")
        assert calls(primary, "fcall") == functions
    assert values(redis_cluster, lane, b"a", b"b") == {b"a": b"v0", b"b": b"v1"}
    _, watermark = t.held(redis_cluster, lane, [])
    assert (watermark.next_offset, watermark.complete_as_of_ms) == (2, t.BASE_MS)


def test_a_newer_writer_between_two_chunks_fences_the_second(redis_cluster):
    lane = new_lane()
    lanes = opened(redis_cluster, lane)
    put(lanes, lane, 0)
    opened(redis_cluster, lane, epoch=2)
    with pytest.raises(Fenced):
        put(lanes, lane, 1, b"b")
    assert values(redis_cluster, lane, b"a", b"b") == {b"a": b"v0"}


def test_a_connection_that_was_lost_watches_nothing_and_is_not_relied_on(redis_cluster):
    lane = new_lane()
    cluster = t.Cluster(t.settings(redis_cluster))
    lanes = t.writer_over(cluster, 1)
    lanes.open([(lane, 0)])
    put(lanes, lane, 0)
    cluster.drop(cluster.primary(lane.slot))
    opened(redis_cluster, lane, epoch=2)
    with pytest.raises(Fenced):
        put(lanes, lane, 1, b"b")
    assert values(redis_cluster, lane, b"b") == {}


def test_a_chunk_whose_connection_breaks_is_applied_once(redis_cluster):
    lane = new_lane()
    lanes = opened(redis_cluster, lane)
    put(lanes, lane, 0)
    with primary_of(redis_cluster, lane) as primary:
        primary.client_kill_filter(_type="normal", skipme=True)
    put(lanes, lane, 1, b"b")
    assert values(redis_cluster, lane, b"a", b"b") == {b"a": b"v0", b"b": b"v1"}


def test_a_lanes_first_stray_between_two_chunks_is_compared_with_the_second(redis_cluster):
    lane = new_lane()
    lanes, others = opened(redis_cluster, lane), t.writer(redis_cluster, 1)
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


def test_a_chunk_that_does_not_follow_is_refused_and_one_that_the_lane_has_changes_nothing(redis_cluster):
    lane = new_lane()
    lanes = opened(redis_cluster, lane)
    put(lanes, lane, 0)
    put(lanes, lane, 1)
    put(lanes, lane, 0)
    assert values(redis_cluster, lane, b"a") == {b"a": b"v1"}
    with pytest.raises(LaneBehind):
        put(lanes, lane, 3)


def test_a_lane_that_vanished_between_two_chunks_gets_nothing(redis_cluster):
    lane = new_lane()
    lanes = opened(redis_cluster, lane)
    put(lanes, lane, 0)
    with primary_of(redis_cluster, lane) as primary:
        primary.delete(lane.watermark_key)
    with pytest.raises(LaneBehind):
        put(lanes, lane, 1, b"b")
    assert values(redis_cluster, lane, b"b") == {}


def test_chunks_of_several_lanes_of_one_node_take_turns_and_all_arrive(redis_cluster):
    lanes_of_node = [new_lane(4) for _ in range(3)]
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
