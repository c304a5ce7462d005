"""The lane protocol on a real Redis Cluster: what one lane does with chunks, whatever comes when."""

from __future__ import annotations

import functools
import itertools
import threading

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis
from tests.servers.own import primary_and_replica, resume, suspended
from tests.support import lanes as t
from tests.support.lanes import Event, fold

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.errors import CorruptState, Fenced, LaneBehind, StateUnavailable
from keylane.model.records import Layout, Watermark
from keylane.query.layouts import Layouts
from keylane.query.listed_names import list_kept_topics
from keylane.query.store import Store
from keylane.query.views import list_views
from keylane.state import codec
from keylane.state.windows import state_name
from keylane_spark.lanes.function_library import VERSION
from keylane_spark.lanes.lane import LaneStart, LaneTarget, OffsetRange, lanes_of
from keylane_spark.lanes.layout_store import LayoutStore

NUMBERS = itertools.count()
KEYS = [b"a", b"b", b"c", b"d"]


def state_of(nodes: str, lane: LaneTarget) -> dict[bytes, tuple[bytes, int]]:
    records, _ = t.held(nodes, lane, KEYS)
    return {key: (record.value, record.offset) for key, record in records.items()}


def primary_of(nodes: str, lane: LaneTarget) -> Redis:
    cluster = Cluster(t.settings(nodes))
    cluster.refresh(t.Deadline.after_ms(5000, t.CLOCK))
    node = cluster.primary(lane.slot)
    return Redis(host=node.host, port=node.port)


def test_a_set_then_a_tombstone_in_one_chunk_ends_deleted_and_the_reverse_ends_set(
    redis_cluster, lane, lanes
):
    """Sent as they are, without the fold that the columns make before."""
    events = [(b"a", b"x"), (b"b", None), (b"a", None), (b"b", b"y"), (b"c", b"1"), (b"c", b"2")]
    pairs = [(key, codec.encode_record(value, n, t.BASE_MS)) for n, (key, value) in enumerate(events)]
    lanes.apply(lane, OffsetRange(0, 6), t.chunk_of(lane, *pairs, has_tombstones=True))
    lanes.flush()
    assert state_of(redis_cluster, lane) == {b"b": (b"y", 3), b"c": (b"2", 5)}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(log=[(b"a", b"1"), (b"a", b"2")], turns=[(0, 2), (0, 1)], max_records=4)
@example(log=[(b"a", b"1"), (b"b", b""), (b"a", None)], turns=[(0, 3), (0, 2)], max_records=4)
@example(log=[(b"a", b"1"), (b"a", b"2"), (b"b", b"")], turns=[(0, 2), (0, 1), (1, 3)], max_records=1)
@given(
    log=st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=5)), max_size=30),
    turns=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6),
    max_records=st.integers(1, 4),
)
def test_whatever_is_repeated_the_state_is_the_fold_of_the_log(redis_cluster, log, turns, max_records):
    """Each turn writes a part of the log again, from an offset that the lane has reached."""
    lane = t.new_lane()
    events = [Event(offset, key, value) for offset, (key, value) in enumerate(log)]
    lanes = t.opened(redis_cluster, lane)
    reached = 0
    for begin, end in [*turns, (reached, len(events))]:
        first, last = begin % (reached + 1), end % (len(events) + 1)
        if first <= last:
            t.write(lanes, lane, first, events[first:last], last, max_records=max_records)
            reached = max(reached, last)
        assert state_of(redis_cluster, lane) == fold(events[:reached])
        assert t.held(redis_cluster, lane, [])[1].next_offset == reached


def test_an_older_epoch_is_refused_and_changes_nothing(redis_cluster, lane):
    old = t.opened(redis_cluster, lane, epoch=1)
    t.write(old, lane, 0, [Event(0, b"a", b"old")], 1)
    new = t.opened(redis_cluster, lane, epoch=2)
    with pytest.raises(Fenced, match="written by epoch 2 now, this writer is epoch 1"):
        t.write(old, lane, 1, [Event(1, b"a", b"zombie")], 2)
    t.write(new, lane, 1, [Event(1, b"a", b"new")], 2)
    assert state_of(redis_cluster, lane) == {b"a": (b"new", 1)}


def test_a_lane_can_not_be_opened_by_an_epoch_it_has_seen(redis_cluster, lane):
    t.opened(redis_cluster, lane, epoch=5)
    for epoch in (4, 5):
        with pytest.raises(Fenced):
            t.opened(redis_cluster, lane, epoch=epoch)


def test_a_chunk_that_does_not_follow_is_refused_and_so_is_all_behind_it(redis_cluster, lane, lanes):
    with pytest.raises(LaneBehind, match="is at offset 0 and received records from 5"):
        t.write(
            lanes, lane, 5, [Event(offset, b"%d" % offset, b"v") for offset in range(5, 9)], 9, max_records=1
        )
    assert t.held(redis_cluster, lane, [b"5", b"6", b"7", b"8"]) == ({}, Watermark(0, 1))


def test_a_lane_without_a_watermark_takes_nothing(redis_cluster, lane):
    with pytest.raises(LaneBehind, match="is at offset None"):
        t.write(t.writer(redis_cluster, 1), lane, 0, [Event(0, b"a", b"x")], 1)
    assert t.held(redis_cluster, lane, KEYS) == ({}, None)


def test_a_damaged_watermark_stops_the_writer_and_is_named(redis_cluster, lane, lanes):
    primary_of(redis_cluster, lane).set(lane.watermark_key, b"rubbish")
    with pytest.raises(CorruptState, match=lane.topic):
        t.write(lanes, lane, 0, [Event(0, b"a", b"x")], 1)
    primary_of(redis_cluster, lane).delete(lane.watermark_key)
    assert state_of(redis_cluster, lane) == {}


def test_a_chunk_of_four_thousand_records_is_one_call_all_of_it_applied(redis_cluster, lane):
    for has_tombstones in (False, True):
        last = b"last" if not has_tombstones else None
        events = [Event(offset, b"%d" % offset, b"v") for offset in range(4000)] + [Event(4000, b"x", last)]
        begin = 4001 if has_tombstones else 0
        moved = [Event(begin + event.offset, event.key, event.value) for event in events]
        lanes = t.opened(redis_cluster, lane, epoch=1 + has_tombstones)
        t.write(lanes, lane, begin, moved, begin + 4001, max_records=10_000)
        records, _ = t.held(redis_cluster, lane, [event.key for event in events])
        assert len(records) == 4001 - has_tombstones


def test_a_lane_whose_next_records_the_log_has_lost_goes_on_behind_them_and_says_so(redis_cluster, lane):
    t.write(t.opened(redis_cluster, lane), lane, 0, [Event(0, b"a", b"x")], 10)
    starts = t.writer(redis_cluster, 2).open([(lane, 25)])
    assert (starts[lane].next_offset, starts[lane].incomplete) == (25, True)
    assert t.held(redis_cluster, lane, [])[1] == Watermark(25, 2, t.BASE_MS, 0, incomplete=True)


def test_a_new_lane_begins_where_the_log_begins_and_is_whole(redis_cluster, lane):
    starts = t.writer(redis_cluster, 1).open([(lane, 25)])
    assert (starts[lane].next_offset, starts[lane].incomplete) == (25, False)


def test_a_new_lane_may_be_known_to_have_lost_records_but_one_that_is_there_knows_better(redis_cluster, lane):
    starts = t.writer(redis_cluster, 1).open([(lane, 25)], incomplete=[lane])
    assert starts[lane] == LaneStart(
        25, incomplete=True, has_strays=False, complete_as_of_ms=0, may_lack_strays=True
    )
    whole = t.new_lane()
    t.opened(redis_cluster, whole)
    starts = t.writer(redis_cluster, 2).open([(whole, 0)], incomplete=[whole])
    assert not starts[whole].incomplete


def test_an_opened_lane_tells_of_its_strays_and_of_the_time_it_was_complete(redis_cluster, lane, lanes):
    lanes.apply(lane, OffsetRange(0, 7, 500))
    lanes.put_strays(lane, t.chunk_of(lane, end_offset=30), 7)
    lanes.flush()
    starts = t.writer(redis_cluster, 2).open([(lane, 0)])
    assert starts[lane] == LaneStart(
        7, incomplete=False, has_strays=True, complete_as_of_ms=500, taken={7: 30}
    )


def test_a_lane_that_is_new_or_has_failed_over_may_lack_strays_until_it_is_marked_complete(
    redis_cluster, lane
):
    epochs = itertools.count(1)

    def may_lack_strays(*complete_ms: int) -> bool:
        """Whether it may when it is opened; then it gets the watermarks of a writer."""
        lanes = t.writer(redis_cluster, next(epochs))
        (start,) = lanes.open([(lane, 0)]).values()
        for time_ms in complete_ms:
            lanes.apply(lane, OffsetRange(0, 0, time_ms))
        lanes.flush()
        return start.may_lack_strays

    assert [may_lack_strays(), may_lack_strays(0), may_lack_strays(5, 0)] == [True, True, True]
    assert [may_lack_strays(), may_lack_strays()] == [False, False]
    t.fail_over(redis_cluster, lane)
    assert [may_lack_strays(), may_lack_strays(0), may_lack_strays(6)] == [True, True, True]
    assert not may_lack_strays()


def test_a_superseded_lane_says_so_and_serves_again_when_it_is_opened(redis_cluster):
    lanes_of = [t.new_lane(), t.new_lane(partition=8)]
    lanes = t.opened(redis_cluster, lanes_of[0])
    lanes.open([(lanes_of[1], 3)])
    unopened = t.new_lane()
    lanes.supersede([*lanes_of, unopened])
    assert [t.held(redis_cluster, lane, [])[1].superseded for lane in lanes_of] == [True, True]
    assert t.held(redis_cluster, unopened, [])[1] is None
    lanes.apply(lanes_of[0], OffsetRange(0, 1))
    lanes.flush()
    assert t.held(redis_cluster, lanes_of[0], [])[1].superseded
    t.opened(redis_cluster, lanes_of[0], epoch=2)
    assert not t.held(redis_cluster, lanes_of[0], [])[1].superseded


def test_an_older_writer_supersedes_nothing(redis_cluster, lane):
    old = t.opened(redis_cluster, lane, epoch=1)
    t.opened(redis_cluster, lane, epoch=2)
    with pytest.raises(Fenced):
        old.supersede([lane])
    assert not t.held(redis_cluster, lane, [])[1].superseded


def test_the_end_of_the_log_is_kept_where_it_was_looked_at_and_completeness_never_goes_back(
    redis_cluster, lane, lanes
):
    rows = [(0, 0, (0, 0)), (500, 500, (500, 500)), (400, 0, (500, 500)), (0, 900, (500, 900))]
    for complete_ms, log_end, known in [*rows, (900, 900, (900, 900))]:
        lanes.apply(lane, OffsetRange(0, 0, complete_ms, log_end))
        lanes.flush()
        mark = t.held(redis_cluster, lane, [])[1]
        assert (mark.complete_as_of_ms, mark.log_end) == known


def test_no_call_leaves_a_claim_of_the_future_whatever_was_sent_or_stored(redis_cluster, lane, lanes):
    held = functools.partial(t.held, redis_cluster, lane, [])
    before_ms = t.CLOCK.now_ms()
    ahead_ms = before_ms + 3_600_000
    lanes.apply(lane, OffsetRange(0, 0, ahead_ms))
    lanes.flush()
    assert before_ms <= held()[1].complete_as_of_ms <= t.CLOCK.now_ms()
    calls = {
        "a heartbeat": lambda: lanes.apply(lane, OffsetRange(0, 0)),
        "a stray": lambda: lanes.put_strays(lane, t.chunk_of(lane), 7),
        "a note": lambda: lanes.note_strays(lane, {}),
        "a mark": lambda: lanes.supersede([lane]),
        "an opening": lambda: t.opened(redis_cluster, lane, epoch=2),
    }
    for name, call in calls.items():
        stored = codec.encode_watermark(held()[1]._replace(complete_as_of_ms=ahead_ms))
        with t.client(redis_cluster) as client:
            client.set(lane.watermark_key, stored)
        call()
        lanes.flush()
        assert held()[1].complete_as_of_ms <= t.CLOCK.now_ms(), name


def test_a_node_without_the_library_gets_it_in_the_middle_of_a_batch(redis_cluster, lane, lanes):
    primary_of(redis_cluster, lane).function_flush()
    events = [Event(offset, KEYS[offset % 4], b"%d" % offset) for offset in range(200)]
    t.write(lanes, lane, 0, events, 200, max_records=2)
    assert state_of(redis_cluster, lane) == fold(events)


def test_another_library_on_the_node_stays(redis_cluster, lane):
    node = primary_of(redis_cluster, lane)
    node.function_load(
        "#!lua name=theirs\nredis.register_function('theirs', function() return 7 end)", replace=True
    )
    node.execute_command("FUNCTION", "DELETE", f"keylane_{VERSION}")
    t.opened(redis_cluster, lane)
    assert node.fcall("theirs", 0) == 7


def test_many_lanes_of_all_shards_are_opened_on_nodes_without_a_library_and_written_side_by_side(
    cluster, redis_cluster
):
    layout = Layout(f"lanes-{next(NUMBERS)}", 9, stripes=20)
    all_lanes = list(lanes_of(layout))
    for node in cluster.nodes:
        if node.facts()["role"] == "master":
            node.command("FUNCTION", "FLUSH")
    lanes = t.writer(redis_cluster, 1)
    starts = lanes.open([(lane, index) for index, lane in enumerate(all_lanes)])
    assert [starts[lane].next_offset for lane in all_lanes] == list(range(180))
    for index, lane in enumerate(all_lanes):
        lanes.apply(lane, OffsetRange(index, index + 100))
    lanes.flush()
    assert [t.held(redis_cluster, lane, [])[1].next_offset for lane in all_lanes] == list(range(100, 280))


def test_a_shard_that_hangs_for_a_while_costs_time_and_no_record(cluster, redis_cluster, lane):
    """It hangs until the writer has reported it, and a moment longer."""
    hung, _ = primary_and_replica(cluster, lane.slot)
    pid = hung.program.process.pid
    reported: list[str] = []
    wake = threading.Timer(0.7, resume, (pid,))

    def report(text: str) -> None:
        if not reported:
            wake.start()
        reported.append(text)

    lanes = t.opened(redis_cluster, lane, notify=report, attempt_timeout_s=0.3)
    events = [Event(offset, KEYS[offset % 4], b"%d" % offset) for offset in range(300)]
    with suspended(pid):
        t.write(lanes, lane, 0, events, 300, max_records=1)
    wake.join()
    assert state_of(redis_cluster, lane) == fold(events)
    assert reported


def test_a_cluster_that_is_away_is_an_error_once_the_retry_budget_is_spent():
    lanes = t.writer("127.0.0.1:1", 1, retry_budget_s=0.2)
    with pytest.raises(StateUnavailable, match="accepted no writes for 0 s"):
        lanes.open([(t.new_lane(), 0)])


def test_topics_and_views_are_listed_apart_while_they_have_a_layout(redis_cluster):
    cluster = Cluster(t.settings(redis_cluster))
    layouts = LayoutStore(cluster, t.CLOCK)
    state = RedisState(cluster)
    view, topic = f"view-{next(NUMBERS)}", f"lanes-{next(NUMBERS)}"

    def listed() -> tuple[set[str], set[str]]:
        store = Store(state, Layouts(state, t.CLOCK, 0), t.CLOCK)
        page = list_kept_topics(store, lambda name: name in {view, topic}, "", 10, 1000)
        return {view, topic} & list_views(store, 1000).keys(), {each.topic for each in page.layouts}

    for name in (state_name(view), topic):
        layouts.change(name, layouts.next_epoch(name), layout=Layout(name, 3))
    assert listed() == ({view}, {topic})
    layouts.hide(state_name(view), 1)
    assert listed() == (set(), {topic})
    layouts.hide(topic, 1)
    assert listed() == (set(), set())
