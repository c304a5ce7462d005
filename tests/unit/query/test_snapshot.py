"""Snapshots of a topic that is written, moved and failed over between any two of their steps."""

from __future__ import annotations

import pytest
from tests.support.written_topic import KEYS, SnapshotTaker, WrittenTopic

SEEDS = range(60)


def check(topic: WrittenTopic, taker: SnapshotTaker) -> None:
    for lane, cut in taker.cuts.items():
        assert taker.rows[lane] == topic.fold(lane, cut.watermark.next_offset, cut.strays), lane


def run(topic: WrittenTopic, disturb, *, writes: float = 1.0) -> SnapshotTaker:
    """Take a snapshot while the topic changes, and check it; then check that its stream has all the rest."""
    for _ in range(40):
        topic.write_any()
        if topic.random.random() < 0.5:
            topic.apply_any()
    left = topic.random.randrange(200)

    def between() -> None:
        nonlocal left
        while left > 0 and topic.random.random() < writes * 0.7:
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
