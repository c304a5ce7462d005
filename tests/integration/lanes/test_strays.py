"""Records that lie in another partition than a reader computes: one lane, and a job between real servers."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.servers.own import eventually, primary_and_replica
from tests.support import lanes as t
from tests.support.begun import Run
from tests.support.jobs import State

from keylane.errors import Fenced, LaneBehind, PositionNotReached, StraysLost
from keylane.model.records import Layout, Position
from keylane.state import codec
from keylane_spark.lanes.lane import LaneTarget, OffsetRange, lost_strays
from keylane_spark.rows.records import Rows
from keylane_spark.stream.batch_writer import BatchWriter

NUMBERS = itertools.count()
KEYS = [b"a", b"b"]


def put(
    lanes, lane: LaneTarget, key: bytes, value: bytes | None, *, source: int, offset: int, time: int
) -> None:
    row = codec.encode_record(value, offset, time, source)
    lanes.put_strays(lane, t.chunk_of(lane, (key, row), end_offset=offset + 1), source)
    lanes.flush()


def apply(lanes, lane: LaneTarget, key: bytes, value: bytes | None, *, offset: int, time: int) -> None:
    chunk = t.chunk_of(lane, (key, codec.encode_record(value, offset, time)), has_tombstones=value is None)
    lanes.apply(lane, OffsetRange(offset, offset + 1), chunk)
    lanes.flush()


def value_of(nodes: str, lane: LaneTarget, key: bytes = b"a") -> bytes | None:
    records, _ = t.held(nodes, lane, [key])
    record = records.get(key)
    return record.value if record else None


def test_a_stray_is_found_where_readers_look_and_says_where_it_came_from(redis_cluster, lane, lanes):
    put(lanes, lane, b"a", b"x", source=7, offset=30, time=500)
    records, watermark = t.held(redis_cluster, lane, [b"a"])
    assert (records[b"a"].value, str(records[b"a"].position)) == (b"x", "7:30")
    assert watermark.next_offset == 0


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        ((7, 30, 500), (7, 31, 400), "second"),  # one partition: by offset, whatever the clocks say
        ((7, 31, 400), (7, 30, 500), "first"),
        ((7, 30, 500), (7, 30, 500), "first"),  # the same record again
        ((7, 30, 500), (8, 1, 501), "second"),  # across partitions: by timestamp
        ((8, 1, 501), (7, 30, 500), "first"),
        ((8, 1, 500), (7, 30, 500), "second"),  # a tie: the lower partition, in either order
        ((7, 30, 500), (8, 1, 500), "first"),
    ],
)
def test_of_two_strays_the_newer_wins_in_whatever_order_they_come(
    redis_cluster, first, second, winner, lane, lanes
):
    for (source, offset, time), value in ((first, b"first"), (second, b"second")):
        put(lanes, lane, b"a", value, source=source, offset=offset, time=time)
    assert value_of(redis_cluster, lane) == winner.encode()


@pytest.mark.parametrize(("time", "winner"), [(499, b"stray"), (500, b"own"), (501, b"own")])
def test_the_lane_s_own_record_wins_a_tie_and_loses_to_a_newer_stray(redis_cluster, time, winner):
    for stray_first in (True, False):
        lane = t.new_lane()
        lanes = t.opened(redis_cluster, lane)
        if stray_first:
            put(lanes, lane, b"a", b"stray", source=7, offset=30, time=500)
        apply(lanes, lane, b"a", b"own", offset=0, time=time)
        if not stray_first:
            put(lanes, lane, b"a", b"stray", source=7, offset=30, time=500)
        assert value_of(redis_cluster, lane) == winner


def test_what_a_stray_s_tombstone_deleted_does_not_come_back(redis_cluster, lane, lanes):
    apply(lanes, lane, b"a", b"own", offset=0, time=100)
    put(lanes, lane, b"a", None, source=7, offset=30, time=500)
    assert value_of(redis_cluster, lane) is None
    put(lanes, lane, b"a", b"older", source=8, offset=1, time=400)
    apply(lanes, lane, b"a", b"older too", offset=1, time=450)
    assert value_of(redis_cluster, lane) is None
    apply(lanes, lane, b"a", b"newer", offset=2, time=600)
    assert value_of(redis_cluster, lane) == b"newer"


def test_a_lane_that_has_met_strays_marks_its_own_tombstones_too(redis_cluster, lane, lanes):
    put(lanes, lane, b"b", b"x", source=7, offset=1, time=1)
    apply(lanes, lane, b"a", None, offset=0, time=500)
    put(lanes, lane, b"a", b"older", source=7, offset=30, time=400)
    assert value_of(redis_cluster, lane) is None


def test_a_marker_goes_after_its_time(redis_cluster):
    lane = t.new_lane(marker_ms=1)
    lanes = t.opened(redis_cluster, lane)
    put(lanes, lane, b"a", None, source=7, offset=30, time=500)
    put(lanes, lane, b"b", b"x", source=7, offset=31, time=500)
    offsets = itertools.count()

    def is_written() -> bool:
        put(lanes, lane, b"a", b"older", source=8, offset=next(offsets), time=400)
        return value_of(redis_cluster, lane) == b"older"

    eventually(is_written)


def test_what_is_no_record_of_ours_is_overwritten_and_ends_no_call_half_done(redis_cluster, lane, lanes):
    put(lanes, lane, b"b", b"x", source=7, offset=1, time=1)
    name = lane.key_prefix + b"a"
    with t.client(redis_cluster) as client:
        spoils = (lambda: client.rpush(name, "x"), lambda: client.set(name, b"\x01\x01short"))
        for offset, spoil in enumerate(spoils, 2):
            client.delete(name)
            spoil()
            put(lanes, lane, b"a", b"ours", source=7, offset=offset, time=1)
            assert value_of(redis_cluster, lane) == b"ours"


def test_strays_of_an_older_epoch_or_for_a_lane_that_is_not_open_are_refused(redis_cluster, lane):
    old = t.opened(redis_cluster, lane, epoch=1)
    t.opened(redis_cluster, lane, epoch=2)
    with pytest.raises(Fenced):
        put(old, lane, b"a", b"zombie", source=7, offset=1, time=1)
    with pytest.raises(LaneBehind):
        put(t.writer(redis_cluster, 1), t.new_lane(), b"a", b"x", source=7, offset=1, time=1)
    assert value_of(redis_cluster, lane) is None


EVENTS = st.lists(
    st.tuples(st.sampled_from([4, 7, 8]), st.integers(0, 6), st.none() | st.binary(max_size=3)), max_size=14
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS, order=st.randoms(use_true_random=False))
def test_in_whatever_order_partitions_are_read_the_newest_of_a_key_wins(redis_cluster, events, order):
    """One key written to three partitions, timestamps rising within each as a broker's do."""
    lane = t.new_lane()
    lanes = t.opened(redis_cluster, lane)
    put(lanes, lane, b"b", b"", source=6, offset=0, time=0)
    logs: dict[int, list] = {4: [], 7: [], 8: []}
    for source, step, value in events:
        log = logs[source]
        log.append((log[-1][0] + step if log else step, value))
    turns = [source for source, log in logs.items() for _ in log]
    order.shuffle(turns)
    reached = dict.fromkeys(logs, 0)
    for source in turns:
        offset = reached[source]
        time, value = logs[source][offset]
        if source == 4:
            apply(lanes, lane, b"a", value, offset=offset, time=time)
        else:
            put(lanes, lane, b"a", value, source=source, offset=offset, time=time)
        reached[source] += 1
    lasts = [
        (log[-1][0], -(-1 if source == 4 else source), log[-1][1]) for source, log in logs.items() if log
    ]
    expected = max(lasts, key=lambda last: last[:2])[2] if lasts else None
    assert value_of(redis_cluster, lane) == expected


def test_a_lane_that_has_lost_strays_is_named_with_what_must_be_read_again(redis_cluster):
    """A failover of its shard alone takes the strays back, and the note of them; their partition's stays."""
    layout = Layout(f"strays-{next(NUMBERS)}", 9)
    target, source, other = (LaneTarget.of(layout, partition, 0) for partition in (4, 7, 8))
    lanes = t.writer(redis_cluster, 1)
    lanes.open([(lane, 0) for lane in (target, source, other)])
    name = target.key_prefix[:-2] + b"s:4.0"

    def give(first: int, end: int) -> None:
        row = codec.encode_record(b"%d" % first, first, first, 7)
        lanes.put_strays(target, t.chunk_of(target, (b"a", row), end_offset=end), 7)
        lanes.flush()
        lanes.note_strays(source, {target: end})
        lanes.apply(source, OffsetRange(first, end))
        lanes.flush()

    give(0, 10)
    with t.client(redis_cluster) as client:
        before = client.get(target.key_prefix + b"a"), client.hgetall(name)
        give(10, 30)
        starts = t.writer(redis_cluster, 2).open([(lane, 0) for lane in (target, source, other)])
        assert starts[target].taken == {7: 30}
        assert starts[source].given == {"4.0": 30}
        assert list(lost_strays(starts)) == []
        client.set(target.key_prefix + b"a", before[0])
        client.hset(name, mapping=before[1])
        starts = t.writer(redis_cluster, 3).open([(lane, 0) for lane in (target, source, other)])
        assert list(lost_strays(starts)) == [(target, 7, 10, 30)]
        client.delete(name, target.watermark_key)
        starts = t.writer(redis_cluster, 4).open([(lane, 0) for lane in (target, source, other)])
        assert list(lost_strays(starts)) == [(target, 7, 0, 30)]


def test_what_was_given_and_taken_never_goes_back_by_a_repeated_call(redis_cluster, lane, lanes):
    for end in (30, 10):
        lanes.put_strays(lane, t.chunk_of(lane, end_offset=end), 7)
        lanes.note_strays(lane, {lane: end})
    lanes.flush()
    (start,) = t.writer(redis_cluster, 2).open([(lane, 0)]).values()
    assert (start.taken, start.given) == ({7: 30}, {"4.0": 30})


def delete_without_a_trace(redis_cluster, lanes, lane):
    """A stray of partition 7 at offset 30, its deletion, and the end of the deletion's marker."""
    put(lanes, lane, b"a", b"x", source=7, offset=30, time=400)
    apply(lanes, lane, b"a", None, offset=0, time=500)
    with t.client(redis_cluster) as client:
        eventually(lambda: not client.exists(lane.key_prefix + b"a"))


def test_strays_that_are_read_again_bring_back_nothing_that_was_deleted_since(redis_cluster):
    """Their partition's shard was emptied. The marker of the deletion, which would outrank them, is gone."""
    lane = t.new_lane(marker_ms=1)
    lanes = t.opened(redis_cluster, lane)
    delete_without_a_trace(redis_cluster, lanes, lane)
    put(lanes, lane, b"a", b"x", source=7, offset=30, time=400)
    assert value_of(redis_cluster, lane) is None
    lanes = t.opened(redis_cluster, lane, epoch=2)
    put(lanes, lane, b"a", b"x", source=7, offset=30, time=400)
    assert value_of(redis_cluster, lane) is None
    put(lanes, lane, b"a", b"y", source=7, offset=31, time=600)
    assert value_of(redis_cluster, lane) == b"y"


def test_of_a_chunk_of_strays_the_lane_drops_only_what_it_has(redis_cluster):
    lane = t.new_lane(marker_ms=1)
    lanes = t.opened(redis_cluster, lane)
    delete_without_a_trace(redis_cluster, lanes, lane)
    rows = [(key, codec.encode_record(b"y", offset, 400, 7)) for key, offset in ((b"a", 30), (b"b", 31))]
    lanes.put_strays(lane, t.chunk_of(lane, *rows, end_offset=32), 7)
    lanes.flush()
    assert [value_of(redis_cluster, lane, key) for key in KEYS] == [None, b"y"]


def test_a_chunk_of_strays_that_does_not_follow_is_refused_and_so_is_all_behind_it(
    redis_cluster, lane, lanes
):
    """The first chunk was refused for a moment: were the second one taken, the first would be dropped."""
    put(lanes, lane, b"b", b"x", source=7, offset=4, time=1)
    chunks = [
        t.chunk_of(lane, (b"a", codec.encode_record(b"%d" % end, end - 1, end, 7)), end_offset=end)
        for end in (10, 20, 30)
    ]
    for chunk, after in ((chunks[1], 10), (chunks[2], 20)):
        with pytest.raises(LaneBehind, match="is at offset 5 and received records from"):
            lanes.put_strays(lane, chunk, 7, after), lanes.flush()
    assert value_of(redis_cluster, lane) is None
    for chunk, after in zip(chunks, (0, 10, 20), strict=True):
        lanes.put_strays(lane, chunk, 7, after)
    lanes.flush()
    assert value_of(redis_cluster, lane) == b"30"
    lanes.put_strays(lane, chunks[1], 7, 10)  # a repeated one changes nothing, and the chain goes on
    lanes.put_strays(lane, t.chunk_of(lane, end_offset=40), 7, 30)
    lanes.flush()
    assert value_of(redis_cluster, lane) == b"30"


def test_an_older_writer_gives_nothing(redis_cluster, lane):
    old = t.opened(redis_cluster, lane, epoch=1)
    t.opened(redis_cluster, lane, epoch=2)
    old.note_strays(lane, {lane: 5})
    with pytest.raises(Fenced):
        old.flush()


def test_a_lane_that_has_failed_over_takes_no_stray_until_it_is_opened_again(redis_cluster, lane, lanes):
    """A later stray would say that the lane has all before it, and hide what the failover took."""
    put(lanes, lane, b"a", b"x", source=7, offset=1, time=1)
    t.fail_over(redis_cluster, lane)
    with pytest.raises(StraysLost):
        put(lanes, lane, b"a", b"y", source=7, offset=2, time=2)
    assert value_of(redis_cluster, lane) == b"x"
    put(t.opened(redis_cluster, lane, epoch=2), lane, b"a", b"y", source=7, offset=2, time=2)
    assert value_of(redis_cluster, lane) == b"y"


def test_a_lane_that_has_failed_over_is_not_marked_complete(redis_cluster, lane, lanes):
    lanes.apply(lane, OffsetRange(0, 0, 5), unless_failed_over=True)
    lanes.flush()
    t.fail_over(redis_cluster, lane)
    with pytest.raises(StraysLost):
        lanes.apply(lane, OffsetRange(0, 0, 6), unless_failed_over=True), lanes.flush()
    assert t.held(redis_cluster, lane, [])[1].complete_as_of_ms == 5
    lanes.apply(lane, OffsetRange(0, 1, 7))  # a topic without strays is written all the same
    lanes.flush()
    assert t.held(redis_cluster, lane, [])[1].complete_as_of_ms == 7


def test_a_read_that_waits_for_a_stray_gets_it_though_its_shard_is_slow(redis_cluster, cluster):
    """The stray's lane and the partition that it lies in are in two shards, and only one takes writes."""
    topic = f"strays-{next(NUMBERS)}"
    run, state = Run(redis_cluster, topic), State(redis_cluster, topic)
    layout = run.begin(Layout(topic, 3)).plan.serving
    key = run.write(layout, 1)[2]
    reader = state.reader()
    assert reader.value(key) == key
    batch = BatchWriter(run.writer, {topic: layout}, {(topic, 0): OffsetRange(1, 2)})
    stray = Rows(np.array([1]), np.array([t.BASE_MS + 9]), pa.array([key]), pa.array([b"stray"]))

    def write() -> None:
        batch.write((topic, 0), stray)
        batch.finish([(topic, 0)])

    slow, _ = primary_and_replica(cluster, LaneTarget.of(layout, 2, 0).slot)
    with ThreadPoolExecutor(1) as pool:
        slow.command("CLIENT", "PAUSE", 60_000, "WRITE")
        try:
            writing = pool.submit(write)
            with pytest.raises(PositionNotReached):
                reader.latest(key, min_position=Position(0, 1), position_ms=1_000)
            assert not writing.done()
        finally:
            slow.command("CLIENT", "UNPAUSE")
        writing.result(60)
    awaited = partial(reader.latest, key, min_position=Position(0, 1), position_ms=1_000)
    assert awaited().record.value == b"stray"
    with t.client(redis_cluster) as client:
        name = LaneTarget.of(layout, 2, 0).key_prefix[:-2] + b"s:2.0"
        for taken, is_there in ((1, False), (2, True)):  # as a failover leaves it, and as the job repairs it
            assert client.hset(name, "0", taken) == 0
            with nullcontext() if is_there else pytest.raises(PositionNotReached, match="below 1"):
                awaited()
    assert reader.value(key, min_position=Position(0, 1), position_ms=30_000) == b"stray"
    for each in (reader, state, run):
        each.close()
