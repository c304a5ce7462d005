"""Where changes come from: streams of keys and topics over fakes of Redis and Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.changing_topic import ChangingTopic

from keylane.api.reads.changes import any_key
from keylane.errors import StateUnavailable
from keylane.model.changes import RECORD
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    assert events[-1].id == "0:1,1:2"
    topic.state.lagging.clear()
    assert not stream.wait(0.1)
    topic.kafka.before_read = lambda: None
    topic.state.lagging.clear()
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(key, True)], "0:2,1:2")


def test_a_stray_s_change_is_read_from_its_primary_and_sent_once_that_answers(topic: ChangingTopic):
    stream, key = topic.stream(), topic.key_in(0)
    topic.lag(key)
    topic.put(key, b'"new"', source=1)
    topic.state.without_primary = {lane_of_key(topic.layout, key).slot}
    assert not stream.wait(1)
    topic.state.without_primary = set()
    events = stream.wait(1)
    assert (changes(events), events[-1].id) == ([(key, True)], "0:1,1:2")


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
        stream.catch_up({0: 1, 1: 1}, any_key)
    topic.time.on_pause = lambda: topic.log[0].high > newest.offset or topic.log[0].add(newest)
    events, _ = stream.catch_up({0: 1, 1: 1}, any_key)
    assert changes(events) == [(key, True)]
