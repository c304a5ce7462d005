"""The lane protocol when Redis can't take a write at once: migrating slots, a full node, missing replicas."""

from __future__ import annotations

import contextlib
import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import redis
from tests.servers.own import SlotMove, deadline, eventually, full, hanging, primary_and_replica
from tests.support import lane_log as log
from tests.support import lanes as t
from tests.support.begun import Run
from tests.support.fakes import FakeTime
from tests.support.lane_log import OWN, Row

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import StraysLost
from keylane.model.records import Layout, Options
from keylane.state import redis_keys
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.lanes.parked_slots import ParkedSlots, writable
from keylane_spark.lanes.sweep import remove_generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane_local.servers.redis_cluster import RedisCluster
    from keylane_local.servers.redis_node import RedisNode

NUMBERS = itertools.count(1)
KEYS = [b"a", b"b", b"c", b"d"]
HOUR_MS = 3_600_000


def new_lane(**options) -> LaneTarget:
    """A lane in a slot of its own."""
    number = next(NUMBERS)
    layout = Layout(f"trouble-{number}", 16384 // 64, stripes=32, options=Options(**options))
    return LaneTarget.of(layout, OWN, number % 32)


class Writing:
    """A writer in a thread; `until_delayed` returns once it has reported trouble several times."""

    def __init__(self, nodes: str, lane: LaneTarget) -> None:
        self.cluster = t.Cluster(t.settings(nodes))
        self.reported: list[str] = []
        self.lane = lane
        self.epoch = 0
        self.open()
        self._thread: threading.Thread | None = None
        self._failure: list[BaseException] = []

    def open(self) -> None:
        self.epoch += 1
        self.lanes = t.writer_over(self.cluster, self.epoch, self.reported.append)
        self.lanes.open([(self.lane, 0)])

    def send(self, *rows: Row) -> None:
        try:
            log.send(self.lanes, self.lane, rows, rows[0].offset, rows[-1].offset + 1)
        except StraysLost:
            # The slot is on another node now, which looks like a failover of the lane.
            self.open()
            log.send(self.lanes, self.lane, rows, rows[0].offset, rows[-1].offset + 1)

    def send_heartbeat(self, next_offset: int, complete_as_of_ms: int = 0) -> None:
        self.lanes.apply(self.lane, OffsetRange(next_offset, next_offset, complete_as_of_ms))
        self.lanes.flush()

    def begin(self, action: Callable[[], None]) -> None:
        def run() -> None:
            try:
                action()
            except BaseException as error:  # noqa: BLE001 (it is raised where the thread is joined)
                self._failure.append(error)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def until_delayed(self) -> None:
        before = len(self.reported)
        eventually(lambda: len(self.reported) >= before + 3)

    def end(self) -> None:
        assert self._thread
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert not self._failure, self._failure


@contextlib.contextmanager
def writing(nodes: str, lane: LaneTarget) -> Iterator[Writing]:
    one = Writing(nodes, lane)
    try:
        yield one
    finally:
        one.cluster.close()


@contextlib.contextmanager
def moving(cluster: RedisCluster, lane: LaneTarget) -> Iterator[SlotMove]:
    """The slot migrates to another shard; when the block ends it goes back."""
    move = SlotMove(cluster, lane.slot)
    try:
        move.begin()
        yield move
    finally:
        move.arrive()
        move.turn_round()
        move.begin()
        move.arrive()


def contents(node: RedisNode, names: list[bytes]) -> dict[bytes, object]:
    """What the node itself holds under these names, and until when; None if it doesn't serve the slot."""
    found: dict[bytes, object] = {}
    with redis.Redis(port=node.port) as client:
        for name in names:
            try:
                found[name] = client.dump(name), client.execute_command("PEXPIRETIME", name)
            except redis.ResponseError:
                found[name] = None
    return found


def names_of(lane: LaneTarget) -> dict[str, bytes]:
    base, own = lane.key_prefix[:-2], lane.watermark_key[len(lane.key_prefix) :]
    names = {f"v:{key.decode()}": lane.key_prefix + key for key in KEYS}
    names |= {f"h:{key.decode()}": base + b"h:" + key for key in KEYS}
    for kind in ("i", "x"):
        parts = redis_keys.parts_of(base + kind.encode() + b":" + own, lane.options.index)
        names |= dict(zip((kind, kind + "2", kind + "3"), parts, strict=False))
    return names | {"w": lane.watermark_key}


RICH = {"ttl_ms": HOUR_MS, "history_count": 9, "index": 1}
IN_PARTS = RICH | {"index": 2}


@pytest.mark.parametrize(
    ("options", "away", "source", "has_tombstone"),
    [
        # What sets values alone may go as a transaction, all else by the function.
        *(({}, [away], OWN, gone) for away in ("v:b", "new", "w") for gone in (False, True)),
        *(({"marker_ms": 0}, ["v:b"], OWN, gone) for gone in (False, True)),
        ({"guarded": True}, ["v:b"], OWN, True),
        ({"guarded": True}, ["v:b"], 7, True),
        ({}, ["v:b"], 7, True),
        *((RICH, [away], OWN, True) for away in ("v:b", "h:b", "i", "x", "new")),
        (RICH, ["h:a", "i", "v:b"], 7, True),
        (IN_PARTS, ["i"], OWN, True),
        (IN_PARTS, ["i2"], OWN, True),
        (IN_PARTS, ["x2"], 7, True),
    ],
)
def test_in_a_migrating_slot_a_chunk_is_written_whole_or_waits(
    cluster, redis_cluster, options, away, source, has_tombstone
):
    lane = new_lane(**options)
    names = names_of(lane)
    with writing(redis_cluster, lane) as one:
        now_ms = log.server_time_ms(one.cluster, lane)
        rows = [Row(OWN, 0, b"a", b"x", now_ms), Row(OWN, 1, b"b", b"x", now_ms)]
        one.send(*rows)
        value = None if has_tombstone else b"z"
        keys = KEYS if away == ["new"] else KEYS[:2]
        chunk = [Row(source, 2 + number, key, b"y", now_ms + 1) for number, key in enumerate(keys)]
        chunk[1] = chunk[1]._replace(value=value)
        with moving(cluster, lane) as move:
            move.move(*(names[name] for name in away if name != "new"))
            before = [contents(node, [*names.values()]) for node in (move.source, move.target)]
            one.begin(lambda: one.send(*chunk))
            one.until_delayed()
            assert [contents(node, [*names.values()]) for node in (move.source, move.target)] == before
            move.arrive()
            one.end()
            assert contents(move.target, [lane.watermark_key]) != {lane.watermark_key: None}
        one.cluster.refresh(deadline())
        assert log.held(one.cluster, lane, KEYS) == log.fold([*rows, *chunk], lane.options, now_ms)


def test_in_a_migrating_slot_a_chunk_of_more_than_one_command_is_written_whole_or_waits(
    cluster, redis_cluster
):
    lane = new_lane()
    keys = [b"%d" % number for number in range(2500)]
    names = [lane.key_prefix + key for key in keys]
    with writing(redis_cluster, lane) as one:
        rows = [Row(OWN, number, key, b"x", 1) for number, key in enumerate(keys)]
        one.send(*rows)
        chunk = [row._replace(offset=row.offset + 2500, value=b"y") for row in rows]
        with moving(cluster, lane) as move:
            move.move(names[2400])
            before = contents(move.source, names)
            one.begin(lambda: one.send(*chunk))
            one.until_delayed()
            assert contents(move.source, names) == before
            move.arrive()
            one.end()
        one.cluster.refresh(deadline())
        assert log.held(one.cluster, lane, keys) == log.fold(chunk, lane.options, 0)


def test_a_migrating_slot_delays_no_heartbeat_whose_keys_are_still_there(cluster, redis_cluster):
    """Nothing has expired yet, and the set of expiries is not there to say so."""
    lane = new_lane(**RICH)
    with writing(redis_cluster, lane) as one, moving(cluster, lane):
        one.send_heartbeat(0, 500)
        assert one.reported == []


@pytest.mark.parametrize("away", ["i", "i2"])
def test_in_a_migrating_slot_what_has_expired_leaves_all_parts_of_an_index_or_none(
    cluster, redis_cluster, away
):
    lane = new_lane(ttl_ms=HOUR_MS, index=2)
    names = names_of(lane)
    indexes = [names[name] for name in ("i", "i2", "x", "x2")]
    with writing(redis_cluster, lane) as one:
        soon = log.server_time_ms(one.cluster, lane) - HOUR_MS + 100
        one.send(Row(OWN, 0, b"a", b"x", soon), Row(OWN, 1, b"b", b"x", soon))
        eventually(lambda: log.held(one.cluster, lane, KEYS).values == {})
        with moving(cluster, lane) as move:
            move.move(names[away])
            before = contents(move.source, indexes)
            one.begin(lambda: one.send_heartbeat(2))
            one.until_delayed()
            assert contents(move.source, indexes) == before
            move.arrive()
            one.end()
        one.cluster.refresh(deadline())
        assert log.held(one.cluster, lane, KEYS).index == []


@pytest.mark.parametrize("options", [{}, RICH])
def test_a_full_node_delays_the_writer_and_costs_no_record_and_no_order(redis_cluster, cluster, options):
    lane = new_lane(**options)
    primary, _ = primary_and_replica(cluster, lane.slot)
    with writing(redis_cluster, lane) as one:
        now_ms = log.server_time_ms(one.cluster, lane)
        rows = [
            # Each value is longer than the one before: less room would do for others.
            Row(OWN, offset, KEYS[offset % 4], None if offset % 7 == 3 else b"x" * offset, now_ms)
            for offset in range(400)
        ]

        def send_all() -> None:
            for row in rows[20:]:
                chunk = t.chunk_of(
                    lane,
                    (row.key, log.envelope(row)),
                    has_tombstones=row.value is None,
                    newest_timestamp_ms=now_ms,
                )
                one.lanes.apply(lane, OffsetRange(row.offset, row.offset + 1), chunk)
            one.lanes.flush()

        one.send(*rows[:20])
        names = [*names_of(lane).values()]
        with full(primary):
            before = contents(primary, names)
            one.begin(send_all)
            one.until_delayed()
            assert contents(primary, names) == before
            assert "maxmemory" in one.reported[0]
        one.end()
        assert log.held(one.cluster, lane, KEYS) == log.fold(rows, lane.options, now_ms)
        assert t.held(redis_cluster, lane, [])[1].next_offset == 400


@pytest.mark.parametrize("options", [{}, {"marker_ms": 0}, RICH])
@pytest.mark.parametrize("source", [OWN, 7])
def test_a_full_node_takes_deletions_and_what_needs_no_more_room_and_stays_fresh(
    redis_cluster, cluster, options, source
):
    lane = new_lane(**options)
    primary, _ = primary_and_replica(cluster, lane.slot)
    with writing(redis_cluster, lane) as one:
        now_ms = log.server_time_ms(one.cluster, lane)
        rows = [Row(source, number, key, b"x" * 1000, now_ms) for number, key in enumerate(KEYS)]
        one.send(*rows)
        with full(primary):
            later = [Row(source, 4, b"a", None, now_ms), Row(source, 5, b"b", None, now_ms)]
            one.send(later[0])
            one.send(later[1])
            mixed = [Row(source, 6, b"c", None, now_ms), Row(source, 7, b"d", b"y" * 100, now_ms)]
            one.send(*mixed)
            one.lanes.apply(lane, OffsetRange(0, 0, now_ms))
            one.lanes.flush()
            assert one.reported == []
        assert log.held(one.cluster, lane, KEYS) == log.fold([*rows, *later, *mixed], lane.options, now_ms)
        _, mark = t.held(redis_cluster, lane, [])
        assert mark.complete_as_of_ms == now_ms
        assert mark.next_offset == (8 if source == OWN else 0)


def test_deletions_in_one_lane_make_room_for_another_which_then_goes_on_by_itself(redis_cluster, cluster):
    layout = Layout(f"trouble-{next(NUMBERS)}", 3, stripes=2)
    lanes = [LaneTarget.of(layout, 0, stripe) for stripe in range(2)]
    primary, _ = primary_and_replica(cluster, lanes[0].slot)
    assert primary_and_replica(cluster, lanes[1].slot)[0] == primary
    with writing(redis_cluster, lanes[0]) as large, writing(redis_cluster, lanes[1]) as waiting:
        rows = [Row(OWN, number, b"%d" % number, b"x" * 50_000, 1) for number in range(60)]
        large.send(*rows)
        with primary.client() as client:
            used = client.info("memory")["used_memory"]
        with full(primary, used - 500_000):
            waiting.begin(lambda: waiting.send(Row(OWN, 0, b"new", b"v" * 1000, 1)))
            waiting.until_delayed()
            large.send(*(Row(OWN, 60 + number, b"%d" % number, None, 1) for number in range(60)))
            waiting.end()
        assert large.reported == []
    assert b"new" in t.held(redis_cluster, lanes[1], [b"new"])[0]


def test_only_lanes_that_need_room_on_a_full_node_are_parked_and_it_is_waited_for_once(
    redis_cluster, cluster
):
    layout = Layout(f"trouble-{next(NUMBERS)}", 3, stripes=6)
    first, second, third = (LaneTarget.of(layout, 0, stripe) for stripe in range(3))
    primary, _ = primary_and_replica(cluster, first.slot)
    parked = ParkedSlots()
    own = Cluster(t.settings(redis_cluster))
    time = FakeTime()
    options = WriteOptions(retry_budget_s=3)
    writer = LaneWriter(FunctionLibrary(own, time.clock, options), 1, parked)
    writer.open([(lane, 0) for lane in (first, second, third)])
    row = Row(OWN, 0, b"a", b"v", 1)
    log.send(writer, third, [row], 0, 1)
    with full(primary):
        gone = row._replace(offset=1, value=None)
        for lane, each in ((first, row), (third, gone)):
            # Calls, which are in flight together; a transaction is alone.
            chunk = t.chunk_of(lane, (each.key, log.envelope(each)), has_tombstones=True)
            writer.apply(lane, OffsetRange(each.offset, each.offset + 1), chunk)
        writer.flush()
        log.send(writer, second, [row], 0, 1)
        assert sum(time.pauses) == pytest.approx(3)
        assert parked.reasons.keys() == {first.slot, second.slot}
        assert all(f":{primary.port} is full: " in why for why in parked.reasons.values())
        probes = FunctionLibrary(own, t.CLOCK, WriteOptions(retry_budget_s=0))
        assert writable(probes, parked.reasons) == set()
    assert writable(probes, parked.reasons) == {first.slot, second.slot}
    own.close()
    assert t.held(redis_cluster, third, [b"a"])[0] == {}


def test_a_start_and_a_removal_need_no_room(redis_cluster, cluster):
    topic = f"trouble-{next(NUMBERS)}"
    layout = Layout(topic, 3)
    first = Run(redis_cluster, topic)
    first.begin(layout)
    keys = first.write(replace(layout, generation=1), 5)
    first.close()
    again = Run(redis_cluster, topic)
    with contextlib.ExitStack() as stack:
        for node in cluster.nodes:
            if node.facts()["role"] == "master":
                stack.enter_context(full(node))
        again.begin(layout)
        list(remove_generation(FunctionLibrary(again.cluster, t.CLOCK), topic, 1, again.epoch))
    again.close()
    with t.client(redis_cluster) as client:
        assert len(keys) == 15
        assert list(client.scan_iter(match=f"{{*}}:{topic}:1:*", target_nodes="primaries")) == []


def test_a_writer_that_waits_for_replicas_reports_when_they_are_missing_and_continues(cluster, redis_cluster):
    lane = new_lane()
    _, replica = primary_and_replica(cluster, lane.slot)
    reported: list[str] = []
    own = t.Cluster(t.settings(redis_cluster))
    lanes = t.writer_over(own, 1, reported.append, wait_replicas=1, wait_ms=2000)
    lanes.open([(lane, 0)])
    log.send(lanes, lane, [Row(OWN, 0, b"a", b"x", 1)], 0, 1)
    assert reported == []
    with redis.Redis(port=replica.port) as client:
        client.readonly()
        assert client.get(lane.watermark_key)[2:10] == (1).to_bytes(8)
    with hanging(replica):
        began_s = t.CLOCK.monotonic_s()
        log.send(lanes, lane, [Row(OWN, 1, b"a", b"y", 1)], 1, 2)
        assert t.CLOCK.monotonic_s() - began_s >= 2
        log.send(lanes, lane, [Row(OWN, 2, b"a", b"z", 1)], 2, 3)
    assert reported == ["0 of 1 replicas have the writes"]
    assert log.held(own, lane, KEYS).values == {b"a": (OWN, 2, b"z")}
    own.close()
    eventually(lambda: replica.facts()["master_link_status"] == "up")
