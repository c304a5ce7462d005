"""Which changes a listener with conditions is sent, over fakes of Redis and Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.changing_topic import TERMS, ChangingTopic

from keylane.api.reads import change_conditions
from keylane.api.reads.change_conditions import ConditionedChanges, check_conditions
from keylane.api.reads.changes import TOPIC_NAMES, ChangesRequest, any_key
from keylane.errors import BadRequest, NoFields
from keylane.model.changes import ABSENT, GAP, LEFT, RECORD, ChangeEvent
from keylane.model.records import Options
from keylane.query.changes import TopicPosition
from keylane.query.conditions import EQUAL, PREFIX, RANGE, Asked
from keylane.state import codec
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.reads.change_sources import TopicChanges

FIELDS = (("amount", "number"), ("note", "text"), ("status", "text"))
OPEN = Asked("status", EQUAL, "open")


def a_value(status: str, **more: object) -> bytes:
    return json.dumps({"status": status, **more}).encode()


@pytest.fixture
def topic() -> ChangingTopic:
    topic = ChangingTopic(options=Options(index=1, fields=FIELDS))
    topic.apply_all()
    return topic


class Listener:
    """A client with conditions; `has`: the records that it was left with."""

    def __init__(self, topic: ChangingTopic, *asked: Asked) -> None:
        self.stream: TopicChanges = topic.stream()
        self._conditions = ConditionedChanges(asked, topic.reader.decoder)
        self.has: dict[bytes, object] = {}

    def hear(self) -> list[tuple[str, bytes]]:
        """The events of one poll: their names and keys."""
        return self.take(self.stream.wait(0.2))

    def take(self, events: Sequence[ChangeEvent]) -> list[tuple[str, bytes]]:
        heard = []
        for event in filter(None, map(self._conditions.choose, events)):
            if event.name == RECORD:
                self.has[event.key] = json.loads(event.data)["value"]
            elif event.name in {ABSENT, LEFT}:
                self.has.pop(event.key, None)
            if event.name:
                heard.append((event.name, event.key))
        return heard


def test_a_record_enters_changes_within_and_leaves(topic: ChangingTopic):
    listener, key = Listener(topic, OPEN), topic.key_in(0)
    heard = []
    for value in (a_value("open", n=1), a_value("open", n=2), a_value("paid"), a_value("open"), None):
        topic.put(key, value)
        heard += listener.hear()
    assert heard == [(RECORD, key), (RECORD, key), (LEFT, key), (RECORD, key), (ABSENT, key)]
    assert listener.has == {}


def test_what_leaves_is_sent_with_the_record_that_it_has_now(topic: ChangingTopic):
    listener, key = Listener(topic, OPEN), topic.key_in(0)
    topic.put(key, a_value("paid", amount=7))
    [event, _] = map(listener._conditions.choose, listener.stream.wait(0.2))
    assert (event.name, json.loads(event.data)["value"]) == (LEFT, {"status": "paid", "amount": 7})


def test_a_key_that_the_client_can_t_have_is_silent_until_it_enters(topic: ChangingTopic):
    listener, key = Listener(topic, OPEN), topic.key_in(0)
    topic.put(key, a_value("paid"))
    assert listener.hear() == [(LEFT, key)], "what it was before the stream began is not known"
    for value in (a_value("void"), None, a_value("paid")):
        topic.put(key, value)
        assert listener.hear() == []
    topic.put(key, a_value("open"))
    assert listener.hear() == [(RECORD, key)]
    topic.put(key, a_value("paid"))
    assert listener.hear() == [(LEFT, key)]


def test_a_key_that_was_in_between_two_polls_is_sent_as_left_again(topic: ChangingTopic):
    """Whoever found it by its fields meanwhile hears that it left."""
    listener, key = Listener(topic, OPEN), topic.key_in(0)
    topic.put(key, a_value("paid"))
    listener.hear()
    topic.put(key, a_value("open"))
    topic.put(key, a_value("paid"))
    assert listener.hear() == [(LEFT, key)]
    topic.put(key, a_value("open"))
    topic.put(key, None)
    assert listener.hear() == [(ABSENT, key)]


@pytest.mark.parametrize("last", [a_value("void"), None])
def test_a_value_that_is_newer_than_what_the_log_was_read_to_may_hide_that_it_was_in(
    topic: ChangingTopic, last: bytes | None
):
    listener, key = Listener(topic, OPEN), topic.key_in(0)
    topic.put(key, a_value("paid"))
    listener.hear()

    def overtake() -> None:
        topic.kafka.before_read = lambda: None
        for value in (a_value("open"), last):
            topic.put(key, value)

    topic.put(key, a_value("paid"))
    topic.kafka.before_read = overtake
    name = ABSENT if last is None else LEFT
    assert [listener.hear(), listener.hear()] == [[(name, key)], [(name, key)]]


@pytest.mark.parametrize(("value", "name"), [(None, ABSENT), (a_value("paid"), LEFT)])
def test_in_a_lane_with_strays_one_may_have_come_between_and_each_change_is_sent(
    topic: ChangingTopic, value: bytes | None, name: str
):
    listener, key = Listener(topic, OPEN), topic.key_in(0)
    watermark_key = lane_of_key(topic.layout, key).watermark_key
    for _ in range(2):
        topic.put(key, value)
        watermark = codec.decode_watermark(topic.state.entries[watermark_key])
        topic.state.entries[watermark_key] = codec.encode_watermark(watermark._replace(has_strays=True))
        assert listener.hear() == [(name, key)]


def test_after_a_gap_nothing_is_known_of_any_key(topic: ChangingTopic):
    listener, key = Listener(topic, OPEN), topic.key_in(0)
    topic.put(key, a_value("paid"))
    listener.hear()
    listener.take([ChangeEvent(GAP, "{}")])
    topic.put(key, a_value("void"))
    assert listener.hear() == [(LEFT, key)]


def test_the_keys_that_are_remembered_are_bounded(topic: ChangingTopic, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(change_conditions, "MOST_OUTSIDE", 1)
    listener, one, other = Listener(topic, OPEN), topic.key_in(0), topic.key_in(1)
    for key in (one, other, one):
        topic.put(key, a_value("paid"))
        assert listener.hear() == [(LEFT, key)]
    topic.put(one, a_value("paid"))
    assert listener.hear() == []


def test_a_client_that_comes_back_hears_of_each_key_that_may_have_left(topic: ChangingTopic):
    one, other = topic.key_in(0), topic.key_in(1)
    topic.put(one, a_value("open"))
    topic.put(other, a_value("paid"))
    listener = Listener(topic, OPEN)
    events, _ = listener.stream.catch_up(TopicPosition(7, {0: 0, 1: 0}), any_key)
    assert sorted(listener.take(events)) == sorted([(RECORD, one), (LEFT, other)])


@pytest.mark.parametrize(
    ("asked", "is_in"),
    [
        (Asked("amount", RANGE, "10", "20"), True),
        (Asked("amount", RANGE, "10", "15", below=True), False),
        (Asked("note", PREFIX, "x" * 80), True),
        (Asked("note", PREFIX, "x" * 80 + "z"), False),
        (Asked("note", EQUAL, "x" * 80 + "y"), True),
    ],
)
def test_conditions_are_those_of_find(topic: ChangingTopic, asked: Asked, is_in: bool):
    listener, key = Listener(topic, OPEN, asked), topic.key_in(0)
    topic.put(key, a_value("open", amount=15, note="x" * 80 + "y"))
    assert listener.hear() == [(RECORD if is_in else LEFT, key)]


def test_a_topic_whose_field_is_gone_is_refused(topic: ChangingTopic):
    listener, key = Listener(topic, OPEN), topic.key_in(0)
    topic.put(key, a_value("open"))
    [event, _] = listener.stream.wait(0.2)
    layout = ChangingTopic(options=Options(index=1, fields=FIELDS[:1])).layout
    with pytest.raises(BadRequest, match="the topic has the fields amount"):
        listener.take([event._replace(answer=event.answer._replace(layout=layout))])


def a_request(topic: ChangingTopic, *asked: Asked) -> ChangesRequest:
    return ChangesRequest(topic.layout.topic, b"", TERMS, None, None, asked=asked)


def check(topic: ChangingTopic, *asked: Asked) -> None:
    check_conditions(topic.store, topic.layout.topic, asked, TOPIC_NAMES, TERMS)


def test_a_condition_that_the_topic_can_t_have_is_refused_before_the_stream_begins(topic: ChangingTopic):
    check(topic, OPEN)
    with pytest.raises(BadRequest, match=r"did you mean status.*amount \(number\), note \(text\)"):
        check(topic, Asked("statu", EQUAL, "open"))
    with pytest.raises(BadRequest, match="amount is a field of the type number"):
        check(topic, Asked("amount", EQUAL, "much"))


def test_of_a_topic_without_fields_a_wrong_parameter_is_one_and_a_condition_is_refused():
    topic = ChangingTopic()
    with pytest.raises(BadRequest, match="'prefx' is not a parameter of this route; did you mean prefix"):
        check(topic, Asked("prefx", EQUAL, "a"))
    with pytest.raises(NoFields):
        check(topic, Asked("fields", EQUAL, "a"))
