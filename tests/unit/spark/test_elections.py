"""A query goes on with a new leader if its log has all that the lanes hold, and ends otherwise."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.replicas import SOURCE, Partition

from keylane.errors import LogUnavailable, StateUnavailable, TopicChanged
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.lanes.topic_record import Lineage, Owner, TopicRecord
from keylane_spark.log.kafka_admin import LogEnd
from keylane_spark.serving.elections import Elections

OTHER: Lineage = ((3, 0),)
"""Of a partition that has no new leader."""


class FakeOwnership:
    def __init__(self, record: TopicRecord | None) -> None:
        self.stored = record

    def record(self, topic: str) -> TopicRecord | None:
        assert topic == SOURCE[0]
        return self.stored

    def note_lineages(self, topic: str, lineages: tuple[Lineage, ...]) -> None:
        assert topic == SOURCE[0]
        assert self.stored
        self.stored = replace(self.stored, lineages=lineages)


class Scene:
    """A topic of two partitions, of which the first one is elected; its lanes hold what it had."""

    def __init__(self) -> None:
        self.partition = Partition()
        self.partition.write(10)
        self.held = 10
        lineages: tuple[Lineage, ...] = (((0, 0),), OTHER)
        self.ownership = FakeOwnership(TopicRecord("id", (0, 0), Owner("host", 1, 0, 7), lineages=lineages))
        self.parked = ParkedSlots()
        self.is_other_away = False

    def observe(self) -> dict[tuple[str, int], LogEnd]:
        log = self.partition.log
        return {SOURCE: LogEnd(len(log.records), self.partition.epoch), ("orders", 1): LogEnd(5, 3)}

    def follow(self, observe: Any = None) -> dict[tuple[str, int], int]:
        context: Any = SimpleNamespace(epoch_ends=self.partition.ask, broker=self)
        positions = {SOURCE: 10, ("orders", 1): 5}
        opening: Any = SimpleNamespace(parked=self.parked, positions=positions, unread={("others", 0)})
        ownership: Any = self.ownership
        return Elections(context, ownership, opening).follow({SOURCE: self.held}, observe or self.observe)

    def oldest_offsets(self, counts: dict[str, int]) -> dict[tuple[str, int], int]:
        assert counts == {"orders": 2, "others": 1}
        if self.is_other_away:
            raise LogUnavailable("partition 0 of 'others' has no leader")
        return {}

    @property
    def lineages(self) -> tuple[Lineage, ...]:
        assert self.ownership.stored
        return self.ownership.stored.lineages


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_leader_with_all_that_the_lanes_hold_is_followed_and_put_on_record(scene):
    scene.partition.elect(1)
    scene.partition.write(3)
    assert scene.follow() == {SOURCE: 1}
    assert scene.lineages == (((0, 0), (1, 10)), OTHER)


def test_a_second_election_is_followed_from_the_first(scene):
    scene.partition.elect(1)
    scene.follow()
    scene.partition.write(3)
    scene.held = 13
    scene.partition.elect(2)
    assert scene.follow() == {SOURCE: 2}
    assert scene.lineages == (((0, 0), (1, 10), (2, 13)), OTHER)


def test_a_leader_that_lacks_what_the_lanes_hold_is_not_followed(scene):
    scene.partition.isolate()
    scene.partition.write(5)
    scene.held = 15
    scene.partition.elect(1)
    scene.partition.write(20)
    before = scene.lineages
    with pytest.raises(TopicChanged, match="topic 'orders': the log of partition 0 has records of leader"):
        scene.follow()
    assert scene.lineages == before


def test_lanes_are_not_opened_again_before_another_topic_has_its_leaders(scene):
    """Its lanes, and all others, would grow old meanwhile."""
    scene.partition.isolate()
    scene.partition.write(5)
    scene.held = 15
    scene.partition.elect(1)
    scene.is_other_away = True
    with pytest.raises(LogUnavailable, match="of 'others' has no leader"):
        scene.follow()
    scene.is_other_away = False
    with pytest.raises(TopicChanged):
        scene.follow()


def test_a_batch_in_progress_may_have_written_up_to_its_end(scene):
    """The rows came from the former leader, below offset 15."""
    scene.partition.isolate()
    scene.partition.write(5)
    scene.partition.elect(1)
    scene.held = 15
    with pytest.raises(TopicChanged, match="ends at 10"):
        scene.follow()


def test_leaders_that_change_again_meanwhile_are_asked_later(scene):
    scene.partition.elect(1)
    seen = [scene.observe()]

    def observe() -> dict[tuple[str, int], LogEnd]:
        if seen:
            return seen.pop()
        scene.partition.elect(2)
        return scene.observe()

    before = scene.lineages
    with pytest.raises(LogUnavailable, match="have changed meanwhile"):
        scene.follow(observe)
    assert scene.lineages == before


def test_what_parked_lanes_hold_is_not_known(scene):
    scene.partition.elect(1)
    scene.parked.park([0], "its node is away")
    with pytest.raises(TopicChanged, match="parked lanes"):
        scene.follow()


def test_without_a_record_there_is_nothing_to_compare_with(scene):
    scene.partition.elect(1)
    scene.ownership.stored = None
    with pytest.raises(TopicChanged, match="records are lost"):
        scene.follow()


def test_a_record_that_cannot_be_read_now_is_no_change_of_the_topic(scene, monkeypatch):
    def away(_: str) -> None:
        raise StateUnavailable("the shard is away")

    monkeypatch.setattr(scene.ownership, "record", away)
    with pytest.raises(StateUnavailable):
        scene.follow()
