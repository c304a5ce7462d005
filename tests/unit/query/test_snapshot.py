"""Snapshots of a topic that is written, moved and failed over between any two of their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.written_topic import KEYS, SnapshotTaker, WrittenTopic

from keylane.errors import LaneBuilding, SnapshotOutdated, StateUnavailable
from keylane.query import lane_scan
from keylane.query.lane_snapshot import SHARE_OF_TIME, LaneCut, LaneRows, Pace
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(60)


def check(topic: WrittenTopic, taker: SnapshotTaker) -> None:
    for lane, cut in taker.cuts.items():
        assert taker.rows[lane] == topic.fold(lane, cut.watermark.next_offset, cut.strays), lane


def run(topic: WrittenTopic, disturb: Callable[[int], None]) -> SnapshotTaker:
    """Take a snapshot while the topic changes, and check it; then check that its stream has all the rest."""
    for _ in range(40):
        topic.write_any()
        if topic.random.random() < 0.5:
            topic.apply_any()
    left = topic.random.randrange(200)

    def between() -> None:
        nonlocal left
        while left > 0 and topic.random.random() < 0.7:
            left -= 1
            topic.random.choice((topic.write_any, topic.apply_any))()
        disturb(left)

    topic.state.before = topic.kafka.before_read = between
    topic.time.on_pause = between
    snapshot, taker = topic.snapshot(), SnapshotTaker()
    for part in snapshot.parts():
        taker.take(part)
    end = snapshot.end()
    topic.state.before = topic.kafka.before_read = topic.time.on_pause = lambda: None
    check(topic, taker)
    assert set(taker.cuts) == set(topic.applied)
    if topic.state.migrating:
        topic.end_migration()
    topic.apply_all()
    final = {}
    for lane in topic.applied:
        ends = {partition: len(log) for partition, log in enumerate(topic.logs)}
        final |= topic.fold(lane, ends[lane.partition], ends)
    for key in set(KEYS) - topic.changed_since(end.next_offsets):
        assert taker.all_rows.get(key) == final.get(key), key
    return taker


@pytest.mark.parametrize("seed", SEEDS)
def test_each_lane_is_the_fold_of_the_log_below_its_cut(seed: int):
    run(WrittenTopic(seed, stripes=1 + seed % 2, markers=seed % 3 > 0), lambda _: None)


@pytest.mark.parametrize("seed", SEEDS)
def test_strays_are_as_of_their_own_offsets(seed: int):
    run(WrittenTopic(seed, partitions=2 + seed % 2, has_strays=True), lambda _: None)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slot_that_moves_or_fails_over_is_read_again(seed: int):
    topic = WrittenTopic(seed, has_strays=seed % 4 == 0)
    troubles = topic.random.randint(1, 6)

    def disturb(left: int) -> None:
        nonlocal troubles
        if topic.state.migrating:
            if topic.random.random() < 0.3:
                topic.end_migration()
            return
        if topic.random.random() < 0.1:
            topic.save()
        if troubles and topic.random.random() < 0.1:
            troubles -= 1
            topic.random.choice((topic.move, topic.fail_over, topic.begin_migration))()
        if not left:
            topic.apply_all()

    run(topic, disturb)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_too_large_for_one_step_are_of_one_moment(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lane_scan, "BYTES_OF_STEP", 1)
    topic = WrittenTopic(seed, has_strays=seed % 2 == 0)
    run(topic, lambda _: None)


def with_two_changes_to_take_back() -> WrittenTopic:
    """A topic of all KEYS whose replica lacks a row that was overwritten since, and one that was deleted."""
    topic = WrittenTopic(1, partitions=1)
    for key in KEYS:
        topic.write(key, b"old")
    topic.apply_all()
    topic.save()
    topic.write(KEYS[0], b"new")
    topic.write(KEYS[1], None)
    topic.apply_all()
    return topic


def test_a_lane_is_not_cut_behind_rows_that_a_failover_took_back():
    topic = with_two_changes_to_take_back()
    taker, behind = SnapshotTaker(), 0
    parts = topic.snapshot().parts()
    taker.take(next(parts))

    def count() -> None:
        nonlocal behind
        behind += 1
        if behind == 5:
            topic.apply_all()

    topic.fail_over()
    topic.time.on_pause = count
    for part in parts:
        taker.take(part)
    (cut,) = taker.cuts.values()
    assert (behind >= 5, cut.watermark.next_offset) == (True, len(KEYS) + 2)
    assert taker.all_rows == topic.fold(cut.lane, len(KEYS) + 2, {})


@pytest.mark.parametrize("after_steps", range(1, 12))
def test_a_lane_that_a_failover_took_back_before_it_was_scanned_has_what_is_applied_again(after_steps: int):
    topic = with_two_changes_to_take_back()
    snapshot, taker, steps = topic.snapshot(), SnapshotTaker(), 0
    topic.fail_over()

    def between() -> None:
        nonlocal steps
        steps += 1
        if steps == after_steps:
            topic.write(KEYS[2], b"newer")
            topic.apply_all()

    topic.state.before = topic.kafka.before_read = topic.time.on_pause = between
    for part in snapshot.parts():
        taker.take(part)
    check(topic, taker)


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("after_steps", range(1, 16))
def test_strays_that_a_failover_took_back_before_their_lane_was_scanned_are_in_it(
    after_steps: int, has_begun: bool
):
    """Their lane alone goes back, whose own watermark stays: the job gives it these strays again."""
    topic = WrittenTopic(1, partitions=2, has_strays=True)
    for key in KEYS:
        topic.write(key, b"old")
    topic.apply_all()
    lane = next(each for each in topic.applied if each.partition == 1)
    own = [key for key in KEYS if lane_of_key(topic.layout, key) == lane]
    topic.write(own[0], b"a stray", 0)
    topic.apply_all()
    topic.save()
    topic.write(own[1], b"another stray", 0)
    topic.apply_all()
    snapshot, taker, steps = topic.snapshot(), SnapshotTaker(), 0
    topic.lose(lane)
    if not has_begun:
        snapshot = topic.snapshot()

    def between() -> None:
        nonlocal steps
        steps += 1
        if steps == after_steps:
            topic.apply_all()

    topic.state.before = topic.kafka.before_read = topic.time.on_pause = between
    for part in snapshot.parts():
        taker.take(part)
    check(topic, taker)
    assert taker.all_rows[own[1]] == b"another stray"


def filled(**options: int) -> WrittenTopic:
    topic = WrittenTopic(7, **options)
    for key in KEYS:
        topic.write(key, b"1")
    topic.apply_all()
    return topic


def taken(topic: WrittenTopic, **scan: object) -> SnapshotTaker:
    taker = SnapshotTaker()
    for part in topic.snapshot(**scan).parts():
        taker.take(part)
    return taker


def test_at_rest_each_key_has_one_row_and_kafka_is_not_read():
    topic = filled()
    taker = taken(topic)
    assert (taker.lines, set(taker.all_rows)) == (len(KEYS), set(KEYS))
    assert topic.kafka.reads == []


def test_a_key_that_was_scanned_after_its_change_has_one_row():
    topic = filled()
    topic.write(KEYS[0], b"2")
    topic.state.before = topic.apply_all
    assert taken(topic).lines == len(KEYS)


def test_rows_begin_with_the_prefix_whatever_characters_it_has():
    topic = filled()
    for key in (b"key-1*", b"key-1[x]", b"key-?"):
        topic.write(key, b"1")
    topic.apply_all()
    assert set(taken(topic, prefix=b"key-1*").all_rows) == {b"key-1*"}
    assert set(taken(topic, prefix=b"key-1[").all_rows) == {b"key-1[x]"}
    assert len(taken(topic, prefix=b"key-1").all_rows) == 7


def test_a_snapshot_that_goes_on_reads_the_lanes_from_there_and_has_no_position():
    topic = filled()
    built = topic.layout.generation, topic.layout.incarnation
    snapshot = topic.snapshot(first_lane=1, built=built)
    cuts = [part for part in snapshot.parts() if isinstance(part, LaneCut)]
    assert ([cut.number for cut in cuts], snapshot.end()) == ([1], None)


def test_one_that_goes_on_in_another_generation_is_outdated():
    with pytest.raises(SnapshotOutdated):
        filled().snapshot(first_lane=1, built=(1, 6))


def test_a_topic_that_is_built_again_meanwhile_ends_it():
    topic = filled()
    parts = topic.snapshot().parts()
    next(parts)
    topic.build_again()
    with pytest.raises(SnapshotOutdated, match="built again"):
        list(parts)


def test_records_that_kafka_has_removed_end_it():
    topic = filled(partitions=1)
    parts = topic.snapshot().parts()
    next(parts)
    topic.write(KEYS[0], b"2")
    topic.write(KEYS[0], b"3")
    topic.apply_all()
    for log in topic.log:
        log.records, log.low = [], log.high
    with pytest.raises(SnapshotOutdated, match="Kafka has removed records"):
        list(parts)


def test_a_lane_that_is_being_built_is_read_where_that_is_accepted():
    topic = filled()
    topic.complete_as_of_ms = 0
    topic.apply_all()
    with pytest.raises(LaneBuilding):
        topic.snapshot()
    assert len([part for part in topic.snapshot(partial=True).parts() if isinstance(part, LaneRows)]) > 1


def test_a_lane_that_does_not_settle_is_unavailable():
    topic = filled()
    topic.begin_migration()
    with pytest.raises(StateUnavailable, match="migrates"):
        taken(topic)
    assert topic.time.pauses


def test_a_lane_that_always_changes_ahead_of_its_log_is_unavailable():
    topic = filled()
    key = next(key for key in KEYS if lane_of_key(topic.layout, key).partition == 0)

    def outrun() -> None:
        topic.write(key, b"2")
        topic.apply_all()
        topic.time.move(0.01)

    topic.state.before = outrun
    with pytest.raises(StateUnavailable, match="changes faster"):
        taken(topic)


def test_steps_leave_nodes_half_of_the_time():
    topic = filled()
    pace, begun_s = Pace(topic.time.clock, SHARE_OF_TIME), topic.time.seconds
    for _ in range(10):
        pace.rest()
        pace.work(lambda: topic.time.move(0.004) or [])
    assert topic.time.seconds - begun_s == pytest.approx(0.004 * 19)


def test_the_position_of_a_topic_with_strays_is_where_the_snapshot_began():
    topic = filled(has_strays=True)
    topic.write(KEYS[0], b"2", 1 - lane_of_key(topic.layout, KEYS[0]).partition)
    topic.apply_all()
    snapshot = topic.snapshot()
    parts = snapshot.parts()
    next(parts)
    begin = dict(snapshot.begin.next_offsets)
    topic.write(KEYS[1], b"3")
    topic.apply_all()
    list(parts)
    assert snapshot.end().next_offsets == begin
