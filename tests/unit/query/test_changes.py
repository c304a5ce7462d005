"""Changes of a topic: how far the state is, and which keys the log has up to there; through fakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.builders import a_layout, a_watermark
from tests.support.changing_topic import TERMS, ChangingTopic

from keylane.errors import LaneBuilding, LogUnavailable, UnknownTopic
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.records import Answer, Position, Record
from keylane.query import changes
from keylane.query.changes import BATCH_RECORDS, ChangedKeys, read_changed
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from keylane.state.lanes import Lane


@pytest.fixture
def topic() -> ChangingTopic:
    return ChangingTopic()


def in_partitions(**keys: int) -> dict[bytes, frozenset[int]]:
    return {key.encode(): frozenset({partition}) for key, partition in keys.items()}


def test_a_partition_is_as_far_as_the_last_of_its_stripes(topic: ChangingTopic):
    for partition, stripe, next_offset in ((0, 0, 5), (0, 1, 3), (1, 0, 9), (1, 1, 9)):
        topic.apply(partition, stripe, next_offset)
    assert topic.ends() == {0: 3, 1: 9}


def test_a_lane_that_has_not_begun_and_a_topic_that_is_unknown_are_errors(topic: ChangingTopic):
    with pytest.raises(LaneBuilding):
        topic.ends()
    topic.state.entries.clear()
    with pytest.raises(UnknownTopic):
        topic.ends()


def test_only_what_the_state_has_is_reported_and_each_key_once(topic: ChangingTopic):
    topic.append(0, b"a", b"b", b"a", b"not yet")
    topic.append(1, b"c", None)
    found = topic.changed({0: 0, 1: 0}, {0: 3, 1: 2})
    assert list(found.keys) == [b"b", b"a", b"c"]
    assert found == ChangedKeys(in_partitions(b=0, a=0, c=1), {0: 3, 1: 2}, [], frozenset({b"a"}))
    assert topic.changed(found.next_offsets, {0: 3, 1: 2}) == ChangedKeys({}, {0: 3, 1: 2}, [])


def test_an_empty_key_and_one_that_no_request_can_name_are_reported_a_record_without_key_is_not(
    topic: ChangingTopic,
):
    longest = b"k" * (KEY_LIMIT_BYTES + 1)
    topic.append(0, b"", None, longest)
    assert list(topic.changed({0: 0}, {0: 3}).keys) == [b"", longest]


def test_a_key_with_records_in_several_partitions_names_them(topic: ChangingTopic):
    topic.append(0, b"a")
    topic.append(1, b"a")
    assert topic.changed({0: 0, 1: 0}, {0: 1, 1: 1}).keys == {b"a": {0, 1}}


def test_a_partition_that_was_added_is_read_from_its_first_record(topic: ChangingTopic):
    topic.append(1, b"new")
    assert topic.changed({0: 0}, {0: 0, 1: 1}) == ChangedKeys(in_partitions(new=1), {0: 0, 1: 1}, [])
    assert [read.partition for read in topic.kafka.reads] == [1]


def test_aborted_records_are_read_and_offsets_without_records_are_passed(topic: ChangingTopic):
    topic.append(0, b"a")
    topic.log[0].aborted.add(0)
    topic.log[0].high = 7
    assert list(topic.changed({0: 0}, {0: 7}).keys) == [b"a"]
    assert topic.changed({0: 1}, {0: 7}) == ChangedKeys({}, {0: 7}, [])


def test_records_that_were_removed_are_a_gap(topic: ChangingTopic):
    topic.append(0, *(b"%d" % number for number in range(10)))
    topic.log[0].records = topic.log[0].records[6:]
    topic.log[0].low = 6
    topic.append(1, b"other")
    found = topic.changed({0: 2}, {0: 10, 1: 1})
    assert found == ChangedKeys(in_partitions(other=1), {0: 6, 1: 1}, [Position(0, 2)])
    assert list(topic.changed(found.next_offsets, {0: 10}).keys) == [b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("end", [1, 2])
def test_a_broker_that_is_behind_the_state_has_nothing_passed_over(topic: ChangingTopic, end: int):
    topic.append(0, *(b"%d" % number for number in range(end)))
    assert topic.changed({0: 2}, {0: 3}) == ChangedKeys({}, {0: 2}, [])
    topic.append(0, *(b"%d" % number for number in range(end, 3)))
    assert list(topic.changed({0: 2}, {0: 3}).keys) == [b"2"]


def test_a_batch_is_bounded(topic: ChangingTopic):
    count = BATCH_RECORDS + 1
    topic.append(0, *(b"%d" % number for number in range(count)))
    found = topic.changed({0: 0}, {0: count})
    assert (len(found.keys), found.next_offsets) == (BATCH_RECORDS, {0: BATCH_RECORDS})


def test_what_a_batch_has_of_all_partitions_is_bounded(topic: ChangingTopic, monkeypatch: pytest.MonkeyPatch):
    topic.append(0, b"a", b"b")
    topic.append(1, b"c")
    monkeypatch.setattr(changes, "BATCH_BYTES", 4)
    found = topic.changed({0: 0, 1: 0}, {0: 2, 1: 1})
    assert (list(found.keys), found.next_offsets) == ([b"a", b"b"], {0: 2, 1: 0})
    assert list(topic.changed(found.next_offsets, {0: 2, 1: 1}).keys) == [b"c"]


def test_a_partition_that_can_t_be_read_is_left_where_others_were_and_an_error_where_none_was(
    topic: ChangingTopic,
):
    topic.append(0, b"a")
    topic.append(1, b"b")
    topic.log[1].has_leader = False
    found = topic.changed({0: 0, 1: 0}, {0: 1, 1: 1})
    assert found == ChangedKeys(in_partitions(a=0), {0: 1, 1: 0}, [])
    with pytest.raises(LogUnavailable):
        topic.changed(found.next_offsets, {0: 1, 1: 1})


@pytest.mark.parametrize(
    ("partition", "offset", "next_offset", "is_only"),
    [
        (0, 4, 9, True),
        (0, 5, 9, False),
        # Of a partition of which nothing was read, as of a stray.
        (1, 0, 9, False),
        # The key has no record.
        (0, None, 5, True),
        (0, None, 6, False),
        (1, None, 1, False),
    ],
)
def test_an_answer_is_one_change_where_it_is_no_newer_than_what_was_read(
    partition: int, offset: int | None, next_offset: int, is_only: bool
):
    record = None if offset is None else Record(b"k", b"v", partition, offset, 0)
    answer = Answer(a_layout(partition_count=2), partition, record, a_watermark(next_offset))
    assert ChangedKeys({}, {0: 5}, []).is_only_change(b"k", answer) == is_only


def test_a_topic_whose_lanes_are_not_complete_yet_says_how_far_they_are(topic: ChangingTopic):
    topic.apply_all(complete_as_of_ms=0)
    assert topic.ends() == {0: 0, 1: 0}


def test_each_key_is_read_from_a_lane_that_has_all_its_changes_or_these_are_missing(topic: ChangingTopic):
    keys = [b"key-%d" % number for number in range(99)]
    lanes = {lane: key for key in keys if (lane := lane_of_key(topic.layout, key)).partition == 0}
    for key in lanes.values():
        topic.put(key, b"old")
        topic.lag(key)
        topic.put(key, b"new", source=1)
    (first, _), (a, b) = lanes, lanes.values()
    seen: dict[Lane, int] = {}

    def read(**partitions: set[int]) -> tuple[dict[str, bytes], set[int]]:
        names = {"a": a, "b": b}
        found = {names[name]: frozenset(of) for name, of in partitions.items()}
        changed = ChangedKeys(found, {0: 99, 1: 2}, [])
        shown, missing = read_changed(topic.store, topic.layout.topic, changed, TERMS, seen)
        values = {key: answer.record and answer.record.value for key, answer in shown.items()}
        return {name: values[key] for name, key in names.items() if key in values}, missing

    assert read(a={0, 1}, b={1}) == ({"a": b"new", "b": b"new"}, {0})
    assert seen == dict.fromkeys(lanes, 2)
    topic.state.without_primary = {first.slot}
    assert read(a={0, 1}, b={1}) == ({"b": b"new"}, {0, 1})
    assert read(b={1}) == ({"b": b"new"}, set())
    topic.state.runs.clear()
    assert read() == ({}, set())
    assert not topic.state.runs
