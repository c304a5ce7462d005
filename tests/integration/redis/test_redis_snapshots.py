"""Snapshots of a lane on a real Redis Cluster: its scripts, and its slot that moves meanwhile."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import SlotMove, eventually, own_cluster
from tests.support import lanes as t
from tests.support.builders import TERMS
from tests.support.fakes import FakeKafka
from tests.support.served import Served
from tests.support.written_topic import SnapshotTaker

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.ports import Clock, WaitBudget
from keylane.query.changes import ChangeReader
from keylane.query.decoding import ValueDecoder
from keylane.query.layouts import Layouts
from keylane.query.snapshot import SnapshotScan, TopicSnapshot
from keylane.query.store import Store
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keylane_local.servers.redis_cluster import RedisCluster

KEYS = 900
"""Of all nine lanes: a lane has several steps by `SCANNED_AT_ONCE` of 10."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisCluster]:
    with own_cluster(tmp_path) as cluster:
        yield cluster


class LaneOnRedis:
    """A topic in Redis alone, which is at rest: nobody asks for its log."""

    def __init__(self, nodes: str) -> None:
        self.clusters = [Cluster(t.settings(nodes)) for _ in range(2)]
        self.served = Served(nodes, self.clusters[0])
        self.state = RedisState(self.clusters[1])
        self.rows: dict[bytes, bytes] = {}

    def put(self, key: bytes, value: bytes | None) -> None:
        self.served.put(key, value)
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value

    def snapshot(self, clock: Clock = t.CLOCK, prefix: bytes = b"") -> TopicSnapshot:
        store = Store(self.state, Layouts(self.state, clock, 30), clock)
        reader = ChangeReader(store, FakeKafka, lambda **_: ValueDecoder(lambda: None, WaitBudget(0, clock)))
        return TopicSnapshot(reader, self.served.topic, SnapshotScan(prefix), TERMS)

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.close()


@pytest.fixture
def lane(redis_cluster: str) -> Iterator[LaneOnRedis]:
    topic = LaneOnRedis(redis_cluster)
    yield topic
    topic.close()


def taken(snapshot: TopicSnapshot) -> SnapshotTaker:
    taker = SnapshotTaker()
    for part in snapshot.parts():
        taker.take(part)
    return taker


def test_keys_and_values_of_any_kind_are_rows(lane: LaneOnRedis):
    for key in (b"plain", b"a*b", b"a?[b]", b"a\\b", b"\xff\x00", b"a" * 1_000):
        lane.put(key, b"value of " + key[:20])
    for number in range(6):
        lane.put(b"large-%d" % number, b"%d" % number * 700_000)
    lane.put(b"gone", b"1")
    lane.put(b"gone", None)
    lane.put(b"empty", b"")
    assert taken(lane.snapshot()).all_rows == lane.rows
    for prefix in (b"a*", b"a?", b"a\\", b"a", b"\xff"):
        expected = {key: value for key, value in lane.rows.items() if key.startswith(prefix)}
        assert taken(lane.snapshot(prefix=prefix)).all_rows == expected


def test_strays_are_rows_of_their_key_s_lane(lane: LaneOnRedis):
    lane.put(b"own", b"1")
    lane.served.put_stray(b"stray", b"2")
    snapshot = lane.snapshot()
    taker = taken(snapshot)
    assert taker.all_rows == {b"own": b"1", b"stray": b"2"}
    cut = taker.cuts[lane_of_key(snapshot.layout, b"stray")]
    assert list(cut.strays.values()) == [1_000_001]
    assert snapshot.end() == snapshot.begin


@pytest.mark.parametrize("first_goes", ["a record", "the watermark"])
def test_a_lane_whose_slot_moves_while_it_is_scanned_lacks_no_key(
    own: RedisCluster, monkeypatch: pytest.MonkeyPatch, first_goes: str
):
    """A script that asks for the watermark is redirected to the target once that has it."""
    monkeypatch.setattr("keylane.query.lane_scan.SCANNED_AT_ONCE", 10)
    monkeypatch.setattr("keylane.query.lane_scan.SCANS_OF_STEP", 1)
    topic = LaneOnRedis(own.addresses)
    for number in range(KEYS):
        topic.put(b"key-%d" % number, b"%d" % number)
    lane = min((lane_of_key(topic.served.layout, key) for key in topic.rows), key=lambda each: each.slot)
    move = SlotMove(own, lane.slot)
    names = move.source.command("CLUSTER", "GETKEYSINSLOT", lane.slot, 10_000)
    pauses = 0

    def pause(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 5:
            move.move(*names[half:])
            move.finish()
        time.sleep(min(seconds, 0.02))

    snapshot = topic.snapshot(replace(t.CLOCK, pause_s=pause))
    taker, parts = SnapshotTaker(), snapshot.parts()
    taker.take(next(parts))
    half = len(names) // 2
    pauses = 0
    move.begin()
    watermark = lane.watermark_key
    names = [name for name in names if name not in {watermark, watermark.decode()}]
    names.insert(0 if first_goes == "the watermark" else len(names), watermark)
    move.move(*names[:half])
    for part in parts:
        taker.take(part)
    assert pauses >= 5
    assert taker.all_rows == topic.rows
    eventually(lambda: taken(topic.snapshot()).all_rows == topic.rows)
    topic.close()
