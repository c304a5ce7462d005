"""A heartbeat marks the lanes of a node in one exchange; what gets no reply is repeated as any call is."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.integration.lanes.test_lanes import primary_of
from tests.integration.lanes.test_lanes_in_trouble import moving
from tests.servers.own import hanging, primary_and_replica
from tests.support import lanes as t

from keylane.adapters.redis.cluster import Node
from keylane.errors import CorruptState, Fenced, LaneBehind
from keylane.model.records import Layout
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions
from keylane_spark.lanes.lane import LaneTarget, OffsetRange, lanes_of
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.lanes.parked_slots import ParkedSlots

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBERS = itertools.count()


def new_lanes(nodes: str) -> list[LaneTarget]:
    """Opened lanes on all shards."""
    found = list(lanes_of(Layout(f"beats-{next(NUMBERS)}", 9, stripes=3)))
    t.writer(nodes, 1).open([(lane, 0) for lane in found])
    return found


def beat(lanes: LaneWriter, targets: Iterable[LaneTarget], now_ms: int, begin: int = 0) -> None:
    lanes.beat([(lane, OffsetRange(begin, begin, now_ms, begin), False) for lane in targets])


def times(nodes: str, targets: Iterable[LaneTarget]) -> list[int]:
    return [t.held(nodes, lane, [])[1].complete_as_of_ms for lane in targets]


def test_all_lanes_are_marked_by_one_write_to_each_node(redis_cluster, monkeypatch):
    targets = new_lanes(redis_cluster)
    cluster = t.Cluster(t.settings(redis_cluster))
    lanes = t.writer_over(cluster, 1)
    beat(lanes, targets, t.BASE_MS)
    sent: list[Node] = []
    send = cluster.send

    def note(node, *arguments, **options):
        sent.append(node)
        return send(node, *arguments, **options)

    monkeypatch.setattr(cluster, "send", note)
    beat(lanes, targets, t.BASE_MS + 1)
    assert len(sent) == len(set(sent)) == 3
    assert set(times(redis_cluster, targets)) == {t.BASE_MS + 1}
    cluster.close()


def test_a_node_without_the_library_gets_it_and_all_lanes_are_marked(redis_cluster):
    targets = new_lanes(redis_cluster)
    primary_of(redis_cluster, targets[0]).function_flush()
    beat(t.writer(redis_cluster, 1), targets, t.BASE_MS)
    assert set(times(redis_cluster, targets)) == {t.BASE_MS}


def test_a_lane_whose_slot_moves_is_marked_where_it_is(cluster, redis_cluster):
    targets = new_lanes(redis_cluster)
    lanes = t.writer(redis_cluster, 1)
    beat(lanes, targets, t.BASE_MS)
    with moving(cluster, targets[4]) as move:
        move.arrive()
        beat(lanes, targets, t.BASE_MS + 1)
        assert set(times(redis_cluster, targets)) == {t.BASE_MS + 1}


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda nodes, lane: t.writer(nodes, 2).open([(lane, 0)]), Fenced),
        (lambda nodes, lane: t.client(nodes).delete(lane.watermark_key), LaneBehind),
        (lambda nodes, lane: t.client(nodes).set(lane.watermark_key, b"?"), CorruptState),
    ],
)
def test_what_the_library_refuses_is_raised_for_its_lane(redis_cluster, spoil, error):
    targets = new_lanes(redis_cluster)
    spoil(redis_cluster, targets[7])
    with pytest.raises(error, match=rf"{targets[7].topic}\b.*{targets[7].name}"):
        beat(t.writer(redis_cluster, 1), targets, t.BASE_MS)


def test_a_hanging_node_parks_its_lanes_and_the_others_are_marked(cluster, redis_cluster):
    targets = new_lanes(redis_cluster)
    hung, _ = primary_and_replica(cluster, targets[0].slot)
    own, parked = t.Cluster(t.settings(redis_cluster)), ParkedSlots()
    options = WriteOptions(retry_budget_s=0, attempt_timeout_s=1.5)
    lanes = LaneWriter(FunctionLibrary(own, t.CLOCK, options), 1, parked)
    beat(lanes, targets, t.BASE_MS)
    of_hung = {lane for lane in targets if own.known_primary(lane.slot) == Node("127.0.0.1", hung.port)}
    with hanging(hung):
        beat(lanes, targets, t.BASE_MS + 1)
        assert {lane for lane in targets if lane.slot in parked} == of_hung
    assert 0 < len(of_hung) < len(targets)
    others = [lane for lane in targets if lane not in of_hung]
    assert set(times(redis_cluster, others)) == {t.BASE_MS + 1}
    own.close()
