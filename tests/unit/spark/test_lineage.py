"""A state knows the log that it was read from, through elections of leaders in sync and not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.replicas import SOURCE, Partition

from keylane.errors import LogUnavailable
from keylane_spark.generations.lineage import LogCheck, epoch_before, last_epochs
from keylane_spark.lanes.topic_record import Owner, TopicRecord
from keylane_spark.log.kafka_admin import LogEnd

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
