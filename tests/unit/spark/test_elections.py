"""A state knows the log that it was read from: a query goes on with a new leader if its log has all of it."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.replicas import SOURCE, Partition

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable, StateUnavailable, TopicChanged
from keylane.ports import Clock
from keylane_local.process.ports import HOST, Ports
from keylane_spark.generations.lineage import LogCheck, epoch_before, last_epochs
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.lanes.topic_record import Lineage, Owner, TopicRecord
from keylane_spark.log.kafka_admin import LogEnd
from keylane_spark.log.leader_epochs import epoch_ends
from keylane_spark.serving.elections import Elections

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write alone", "elect", "join", "read", "read all"]), st.integers(0, 3)
    ),
    min_size=6,
    max_size=30,
)


def take(partition: Partition, step: str, argument: int) -> None:
    if step == "write alone":
        partition.isolate()
    if step.startswith("write"):
        partition.write(argument)
    elif step == "elect":
        partition.elect(argument % 3)
    else:
        partition.join()


@settings(max_examples=300)
@given(STEPS)
def test_a_state_is_found_truncated_if_and_only_if_the_log_has_other_records(steps):
    """The state reads only under the leader that its lineage was last compared with, as the job does."""
    partition = Partition()
    state: list[tuple[int, int]] = []
    lineage = partition.check(0, ()).extend()[SOURCE]
    for step, argument in steps:
        if not step.startswith("read"):
            take(partition, step, argument)
            continue
        check = partition.check(len(state), lineage)
        truncated = check.find_truncated()
        differs = partition.log.records[: len(state)] != state
        assert bool(truncated) == differs, (truncated, lineage, state, partition.log)
        if truncated:
            state, lineage = [], ()
        lineage = partition.check(len(state), lineage).extend()[SOURCE]
        assert last_epochs({SOURCE: lineage}) == {SOURCE: partition.epoch}
        end = None if step == "read all" else len(state) + argument
        state += partition.log.records[len(state) : end]


def test_a_state_of_before_lineages_were_stored_is_compared_from_its_first_epoch_on():
    partition = Partition()
    partition.write(5)
    partition.elect(1)
    partition.elect(2)
    (lineage,) = partition.check(5, ()).extend().values()
    assert lineage == ((0, 0), (2, 5))
    assert partition.check(2, ()).extend() == {SOURCE: lineage}
    partition.isolate()
    assert partition.check(5, lineage).find_truncated() == {}
    partition.replicas[0].records.pop()
    partition.elect(0)
    partition.write(4)
    assert "leader epoch 0 below 4 only" in partition.check(5, lineage).find_truncated()["orders"]


def test_a_log_that_ends_below_the_state_was_truncated_whatever_its_epoch():
    partition = Partition()
    partition.write(3)
    assert "ends at 3" in partition.check(4, ()).find_truncated()["orders"]
    assert partition.check(3, ()).find_truncated() == {}


def test_a_leader_of_the_past_proves_nothing():
    partition = Partition()
    partition.write(3)
    with pytest.raises(LogUnavailable, match="a former leader"):
        partition.check(9, ((4, 0),)).find_truncated()


def test_brokers_that_know_no_epochs_leave_the_state_unchecked():
    ends = {SOURCE: LogEnd(10, None)}
    check = LogCheck({SOURCE: 10}, {SOURCE: ((3, 0),)}, ends, lambda _: {})
    assert check.find_truncated() == {}
    assert check.extend() == {SOURCE: ()}
    check = LogCheck({SOURCE: 10}, {SOURCE: ((3, 0),)}, {SOURCE: LogEnd(10, 4)}, lambda _: {})
    assert check.find_truncated() == {}
    assert check.extend() == {SOURCE: ()}


def test_lineages_are_stored_with_the_topic_and_absent_from_older_records():
    owner = Owner("host", 1, 2, 3)
    record = TopicRecord("id", (0, 7), owner, lineages=(((0, 0), (-1, 5), (4, 9)), ()))
    assert TopicRecord.from_json(record.to_json()) == record
    fields = json.loads(record.to_json())
    del fields["lineages"]
    assert TopicRecord.from_json(json.dumps(fields).encode()) == TopicRecord("id", (0, 7), owner)


def test_the_epoch_before_an_offset_is_that_of_the_record_there():
    lineage = ((2, 0), (5, 100))
    assert [epoch_before(lineage, offset) for offset in (0, 1, 100, 101)] == [None, 2, 2, 5]


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


def test_a_cluster_that_is_gone_is_an_error_after_which_the_job_starts_over():
    nobody = Connection(f"{HOST}:{Ports().any()}")
    with pytest.raises(LogUnavailable, match="the ends of leader epochs are not known: "):
        epoch_ends(nobody, {("t", 0): 1}, Clock(), 0.2)


def test_no_epochs_ask_nobody():
    assert epoch_ends(Connection("localhost:1"), {}, Clock()) == {}
