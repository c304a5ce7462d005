"""Where changes come from: streams of keys and topics over fakes of Redis and Kafka."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.builders import layout_entry
from tests.support.changing_topic import PARTITIONS, ChangingTopic

from keylane import routing
from keylane.api.reads.change_sources import LOG_TIMEOUT_MS
from keylane.api.reads.changes import any_key
from keylane.errors import StateUnavailable, TooLarge
from keylane.model.changes import ABSENT, GAP, RECORD
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.query.changes import TopicPosition
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.reads.change_sources import TopicChanges
    from keylane.model.changes import ChangeEvent


@pytest.fixture
def topic() -> ChangingTopic:
    """A topic whose two partitions hold one key each."""
    topic = ChangingTopic()
    for partition in (0, 1):
        topic.put(topic.key_in(partition), b'"old"')
    return topic


def changes(events: Sequence[ChangeEvent]) -> list[tuple[bytes, bool]]:
    """Return the keys of the records, and whether they are new."""
    return [(event.key, '"new"' in event.data) for event in events if event.name == RECORD]


def test_a_change_is_sent_once_a_replica_that_was_behind_has_it(topic: ChangingTopic):
    stream, key, other = topic.stream(), topic.key_in(0), topic.key_in(1)

    topic.lag(key)
    behind, topic.state.lagging = topic.state.lagging, {}
    topic.put(key, b'"new"')
    topic.put(other, b'"new"')
    # Between the watermarks and the values.
    topic.kafka.before_read = lambda: topic.state.lagging.update(behind)
    events = stream.wait(1)
    assert changes(events) == [(other, True)]
    assert events[-1].id == "0:1,1:2@7"
    topic.state.lagging.clear()
    assert not stream.wait(0.1)
    topic.kafka.before_read = lambda: None
    topic.state.lagging.clear()
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(key, True)], "0:2,1:2@7")


@pytest.mark.parametrize("key", [b"", b"k" * (KEY_LIMIT_BYTES + 1)], ids=["empty", "longer than a request's"])
def test_a_stream_sends_every_key_that_the_log_has(topic: ChangingTopic, key: bytes):
    stream = topic.stream()
    topic.put(key, b'"new"')
    assert changes(stream.wait(1)) == [(key, True)]


def test_a_stray_s_change_is_read_from_its_primary_and_sent_once_that_answers(topic: ChangingTopic):
    stream, key = topic.stream(), topic.key_in(0)
    topic.lag(key)
    topic.put(key, b'"new"', source=1)
    topic.state.without_primary = {lane_of_key(topic.layout, key).slot}
    assert not stream.wait(1)
    topic.state.without_primary = set()
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(key, True)], "0:1,1:2@7")


@pytest.mark.parametrize("source", [None, 1], ids=["its own", "a stray"])
def test_a_change_waits_where_a_failover_has_taken_strays_of_its_lane_back(
    topic: ChangingTopic, source: int | None
):
    """What the lane has is older than what the key had, and nothing is sent once that has been read again."""
    stream, key = topic.stream(), topic.key_in(0)
    before = topic.held(key)
    topic.put(key, b'"new"', source=1)
    assert changes(stream.wait(1)) == [(key, True)]
    topic.put(key, b'"new"', source=source)
    newest = topic.held(key)
    topic.hold(key, before)
    assert not stream.wait(LOG_TIMEOUT_MS / 1000 - 1)
    with pytest.raises(StateUnavailable, match="behind the changes"):
        stream.wait(LOG_TIMEOUT_MS / 1000 + 1)
    topic.hold(key, newest)
    assert changes(stream.wait(1)) == [(key, True)]


def test_a_stream_stays_where_it_is_while_the_partition_that_gave_strays_has_gone_back(topic: ChangingTopic):
    """Its first lane does not say of these strays whether it gave them."""
    stream, key = topic.stream(), topic.key_in(0)
    topic.put(key, b'"first"', source=1)
    assert changes(stream.wait(1)) == [(key, False)]
    topic.put(key, b'"new"', source=1)
    ends = topic.ends()
    topic.kafka.before_read = lambda: topic.apply(1, 0, ends[1] - 1)
    assert not stream.wait(0)
    topic.kafka.before_read = lambda: None
    topic.apply_all()
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(key, True)], "0:1,1:3@7")


def test_changes_of_values_that_a_node_does_not_return_at_once_come_in_parts(topic: ChangingTopic):
    """The records that were read are small, and the keys have large ones by now."""
    stream, keys = topic.stream(), [b"key-%d" % number for number in range(20)]
    for key in keys:
        topic.append(routing.partition_for(key, PARTITIONS), key)
    for key in keys:
        topic.put(key, b'"new"' + b" " * 400)
    topic.state.limit_bytes = 1_000
    heard = [each for _ in range(60) for each in changes(stream.wait(0))]
    assert {key for key, is_new in heard if is_new} == set(keys)
    topic.put(keys[0], b'"new"' + b" " * 1_000)
    with pytest.raises(TooLarge):
        stream.wait(0)


def test_the_partition_that_is_behind_the_most_is_read_first(topic: ChangingTopic):
    stream = topic.stream()
    topic.put(topic.key_in(0), b'"new"')
    for _ in range(3):
        topic.put(topic.key_in(1), b'"new"')
    topic.kafka.reads.clear()
    stream.wait(0)
    assert [each.partition for each in topic.kafka.reads] == [1, 0]


@pytest.fixture
def stream(topic: ChangingTopic) -> TopicChanges:
    """A stream that has begun."""
    return topic.stream()


@pytest.fixture
def behind(topic: ChangingTopic) -> list[dict[bytes, bytes | None]]:
    """What replicas had after each of three changes of a key. The primary has all of them."""
    behind = []
    for value in (b"1", b"2", b'"new"'):
        topic.put(topic.key_in(0), value)
        topic.lag(topic.key_in(0))
        behind.append(dict(topic.state.lagging))
    topic.state.lagging = behind[0]
    return behind


def hear_the_newest_while_a_replica_says_how_far_the_state_is(topic: ChangingTopic, stream: TopicChanges):
    topic.kafka.before_read = topic.state.lagging.clear
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(topic.key_in(0), True)], "0:2,1:1@7")
    topic.kafka.before_read = lambda: None


def test_a_key_does_not_go_back_where_a_replica_is_behind_what_was_sent(topic: ChangingTopic, stream, behind):
    hear_the_newest_while_a_replica_says_how_far_the_state_is(topic, stream)
    topic.state.lagging = behind[1]
    topic.state.without_primary = {lane_of_key(topic.layout, topic.key_in(0)).slot}
    assert not stream.wait(0.1)
    topic.state.without_primary = set()
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(topic.key_in(0), True)], "0:3,1:1@7")


def test_a_stream_goes_on_where_a_failover_took_back_what_it_had_sent(topic: ChangingTopic, stream, behind):
    hear_the_newest_while_a_replica_says_how_far_the_state_is(topic, stream)
    topic.state.entries |= behind[1]
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(topic.key_in(0), False)], "0:3,1:1@7")


def test_a_stream_waits_for_a_broker_that_is_behind_the_state(topic: ChangingTopic):
    stream, key = topic.stream(), topic.key_in(0)
    topic.put(key, b'"new"')
    newest = topic.log[0].records.pop()
    topic.log[0].high = newest.offset
    assert not stream.wait(1)
    topic.log[0].add(newest)
    assert changes(stream.wait(1)) == [(key, True)]


def test_a_listener_that_catches_up_waits_for_what_is_behind_until_its_time_is_over(topic: ChangingTopic):
    key = topic.key_in(0)
    topic.put(key, b'"new"')
    stream = topic.stream()
    newest = topic.log[0].records.pop()
    topic.log[0].high = newest.offset
    with pytest.raises(StateUnavailable, match="behind"):
        stream.catch_up(TopicPosition(7, {0: 1, 1: 1}), any_key)
    topic.time.on_pause = lambda: topic.log[0].high > newest.offset or topic.log[0].add(newest)
    events, _ = stream.catch_up(TopicPosition(7, {0: 1, 1: 1}), any_key)
    assert changes(events) == [(key, True)]


def test_the_first_record_of_a_key_is_sent_to_a_listener_that_saw_its_absence():
    topic = ChangingTopic()
    topic.apply_all()
    key = topic.key_in(0)
    [event], _ = topic.stream_of(key).catch_up(None, any_key)
    assert (event.name, event.id) == (ABSENT, "absent")
    assert topic.stream_of(key).catch_up(event.id, any_key) == ((), None)
    topic.put(key, b'"new"')
    [event], _ = topic.stream_of(key).catch_up(event.id, any_key)
    assert (event.id, changes([event])) == ("0:0@7", [(key, True)])


def test_a_listener_comes_back_to_a_topic_that_has_grown_by_a_partition_without_records():
    topic = ChangingTopic()
    topic.append(0, topic.key_in(0))
    topic.apply_all()
    events, position = topic.stream().catch_up(TopicPosition(7, {0: 1}), any_key)
    assert ([event.id for event in events], position) == (["0:1,1:0@7"], None)


def test_a_topic_that_is_created_again_is_a_gap_and_is_read_from_its_first_record(topic: ChangingTopic):
    key = topic.key_in(0)
    for value in (b"1", b"2", b"3"):
        topic.put(key, value)
    stream = topic.stream()
    topic.create_again()
    topic.put(key, b'"new"')
    events = stream.wait(1)
    assert [event.name for event in events] == [GAP, GAP, ""]
    assert json.loads(events[0].data) == {"partition": 0, "from": 4, "to": 0}
    assert events[-1].id == "0:0,1:0@8"
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(key, True)], "0:1,1:0@8")
    assert not stream.wait(0.1)


def test_a_listener_that_comes_back_to_a_topic_created_again_is_told_of_the_gap(topic: ChangingTopic):
    topic.create_again()
    topic.put(topic.key_in(0), b'"new"')
    stream = topic.stream()
    missed, position = stream.catch_up(TopicPosition(7, {0: 1, 1: 1}), any_key)
    assert [event.name for event in missed] == [GAP, GAP, ""]
    missed, position = stream.catch_up(position, any_key)
    assert changes(missed) == [(topic.key_in(0), True)]
    assert stream.catch_up(position, any_key)[1] is None


def test_a_listener_that_knows_a_newer_layout_has_it_read_at_once(topic: ChangingTopic):
    stream = topic.stream()
    topic.state.entries |= layout_entry(replace(topic.layout, incarnation=8))
    assert not stream.wait(0.1), "the layout is kept for a while"
    assert stream.catch_up(TopicPosition(8, {0: 0, 1: 0}), any_key)[0][0].name == GAP
    assert [event.id.partition("@")[2] for event in stream.wait(1) if event.id] == ["8"]


def test_a_key_of_a_topic_created_again_has_another_id_at_the_same_position(topic: ChangingTopic):
    key = topic.key_in(0)
    stream = topic.stream_of(key)
    [event], _ = stream.catch_up(None, any_key)
    assert event.id == "0:0@7"
    assert stream.catch_up("0:0@7", any_key) == ((), None)
    topic.create_again()
    topic.put(key, b'"new"')
    [event] = stream.wait(1)
    assert (event.id, changes([event])) == ("0:0@8", [(key, True)])
    assert stream.catch_up("0:0@8", any_key) == ((), None)
    assert stream.catch_up("0:0@7", any_key)[0] == (event,)
