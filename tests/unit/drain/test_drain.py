"""Batches of the write-ahead log into a fake Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cloudformation import template
from tests.support.fakes import FakeBucket, FakeLog, FakeQueue, FakeTime

from keylane.drain import sqs_event
from keylane.drain.drain import (
    DELIVERIES_OF_UNKNOWN,
    DETAIL,
    REASON,
    SUPERSEDED,
    TOPIC,
    Drained,
    QueuedMessage,
    drain,
    pauses_s,
)
from keylane.errors import (
    KeylaneError,
    LogUnavailable,
    ProduceFailed,
    Superseded,
    TooLarge,
    UnknownPartition,
)
from keylane.model.records import NewRecord
from keylane.ports import Deadline
from keylane.produce import message_codec
from keylane.produce.message_codec import MessageBatch

if TYPE_CHECKING:
    from keylane.ports import AppendResult

ACCEPTED_MS = 1_357_034_400_000


def a_message(
    number: int, *records: NewRecord, group: str | None = "g", deliveries: int = 1
) -> QueuedMessage:
    batch = MessageBatch(number.to_bytes(16, "big"), ACCEPTED_MS, records[0].topic, tuple(enumerate(records)))
    return QueuedMessage(f"m{number}", message_codec.to_body(message_codec.encode(batch)), group, deliveries)


@dataclass
class ScriptedLog(FakeLog):
    """Gives records of some values an error."""

    errors: dict[bytes | None, KeylaneError] = field(default_factory=dict)

    def _result(self, record: NewRecord, deadline: Deadline) -> AppendResult:
        return self.errors.get(record.value) or super()._result(record, deadline)


@pytest.fixture
def log() -> ScriptedLog:
    log = ScriptedLog()
    log.create("t", 1)
    return log


def run(
    log: FakeLog, *messages: QueuedMessage, dead: FakeQueue | None = None, bucket: FakeBucket | None = None
) -> Drained:
    deadline = Deadline.after_ms(1_000, FakeTime().clock)
    return drain(log, bucket, FakeQueue() if dead is None else dead, messages, deadline)


def written(log: FakeLog) -> list[bytes | None]:
    return [value for _, value in log.topics["t"][0]]


def v(value: bytes, key: bytes = b"k") -> NewRecord:
    return NewRecord("t", key, value)


def test_all_records_are_written_in_order_with_their_ids_and_the_time_they_were_accepted(log: ScriptedLog):
    own = NewRecord("t", b"k", b"3", timestamp_ms=5, headers=(("a", b"b"),))
    drained = run(log, a_message(1, v(b"1"), v(b"2")), a_message(2, own))
    assert drained == Drained([], 3, {}, {})
    assert written(log) == [b"1", b"2", b"3"]
    first, second, third = log.sent
    assert first.headers == (("keylane-id", b"%032x-0" % 1),)
    assert second.headers == (("keylane-id", b"%032x-1" % 1),)
    assert third.headers == (("a", b"b"), ("keylane-id", b"%032x-0" % 2))
    assert [record.timestamp_ms for record in log.sent] == [ACCEPTED_MS, ACCEPTED_MS, 5]


def test_an_id_that_a_record_has_already_stays(log: ScriptedLog):
    sent_before = NewRecord("t", b"k", b"v", headers=(("keylane-id", b"mine"),))
    run(log, a_message(1, sent_before))
    assert log.sent[0].headers == (("keylane-id", b"mine"),)


def test_with_kafka_away_all_come_again(log: ScriptedLog):
    log.away = True
    dead = FakeQueue()
    drained = run(log, a_message(1, v(b"1")), a_message(2, v(b"2"), group="h"), dead=dead)
    assert drained.failed == ["m1", "m2"]
    assert drained.retried == {"REQUEST_TIMED_OUT": 2}
    assert not dead.messages


def test_after_a_failure_the_rest_of_its_group_comes_again_and_other_groups_do_not(log: ScriptedLog):
    log.errors[b"2"] = LogUnavailable("away")
    messages = [
        a_message(1, v(b"1")),
        a_message(2, v(b"2")),
        a_message(3, v(b"3"), group="h"),
        a_message(4, v(b"4")),
    ]
    drained = run(log, *messages)
    assert drained.failed == ["m2", "m4"]
    assert drained.retried == {"REQUEST_TIMED_OUT": 1, "HELD_BACK": 1}


def test_without_order_each_message_stands_alone(log: ScriptedLog):
    log.errors[b"2"] = LogUnavailable("away")
    messages = [a_message(number, v(b"%d" % number), group=None) for number in (1, 2, 3)]
    assert run(log, *messages).failed == ["m2"]


def test_what_kafka_will_never_take_goes_to_the_dead_letters_alone_with_the_reason(log: ScriptedLog):
    log.errors[b"bad"] = ProduceFailed("INVALID_RECORD", "its timestamp is out of bounds", retriable=False)
    dead = FakeQueue()
    drained = run(log, a_message(1, v(b"1"), v(b"bad"), v(b"2")), a_message(2, v(b"3")), dead=dead)
    assert drained == Drained([], 3, {"INVALID_RECORD": 1}, {})
    assert written(log) == [b"1", b"2", b"3"]
    [letter] = dead.messages
    assert (letter.group, letter.id) == ("g", "m1")
    assert letter.attributes == {
        REASON: "INVALID_RECORD",
        DETAIL: "INVALID_RECORD: its timestamp is out of bounds",
        TOPIC: "t",
    }
    batch = message_codec.decode(message_codec.from_body(letter.body))
    assert batch.records == ((1, v(b"bad")),)
    assert batch.record_id(1) == f"{1:032x}-1"


def test_records_that_are_superseded_have_a_dead_letter_of_their_own(log: ScriptedLog):
    bad = ProduceFailed("INVALID_RECORD", "its timestamp is out of bounds", retriable=False)
    log.errors |= {b"bad": bad, b"older": Superseded(bad)}
    dead = FakeQueue()
    drained = run(log, a_message(1, v(b"older"), v(b"bad", b"b"), v(b"newer")), dead=dead)
    assert drained == Drained([], 1, {"INVALID_RECORD": 2}, {})
    assert [(values_in(letter.body), SUPERSEDED in letter.attributes) for letter in dead.messages] == [
        ([b"bad"], False),
        ([b"older"], True),
    ]
    assert {letter.attributes[REASON] for letter in dead.messages} == {"INVALID_RECORD"}
    assert len({letter.id for letter in dead.messages}) == 2, "a queue would drop the second"
    assert "INVALID_RECORD" in dead.messages[1].attributes[DETAIL]


def test_a_superseded_record_comes_again_only_where_the_newer_one_does(log: ScriptedLog):
    log.errors[b"older"] = Superseded(LogUnavailable("away"))
    ordered = run(log, a_message(1, v(b"older")), a_message(2, v(b"newer")))
    assert ordered.failed == ["m1", "m2"], "the newest is written last again"
    dead = FakeQueue()
    unordered = [a_message(1, v(b"older"), group=None), a_message(2, v(b"newer"), group=None)]
    assert run(log, *unordered, dead=dead) == Drained([], 1, {"REQUEST_TIMED_OUT": 1}, {})
    assert [values_in(letter.body) for letter in dead.messages] == [[b"older"]]


def values_in(body: str) -> list[bytes | None]:
    return [record.value for _, record in message_codec.decode(message_codec.from_body(body)).records]


def test_the_traces_of_records_that_were_not_written_are_reported_once(log: ScriptedLog):
    log.errors[b"bad"] = ProduceFailed("INVALID_RECORD", "no", retriable=False)
    log.errors[b"later"] = ProduceFailed("NOT_ENOUGH_REPLICAS", "no", retriable=True)
    records = [
        NewRecord("t", b"k", value, headers=(("traceparent", trace),))
        for value, trace in ((b"1", b"t1"), (b"bad", b"t2"), (b"bad", b"t2"), (b"later", b"t3"))
    ]
    assert run(log, a_message(1, *records)).traces == ("t2", "t3")


def test_a_replayed_part_of_a_message_keeps_its_records_ids(log: ScriptedLog):
    log.errors[b"bad"] = TooLarge("value", 2, 1)
    dead = FakeQueue()
    run(log, a_message(1, v(b"1"), v(b"bad")), dead=dead)
    log.errors.clear()
    log.sent.clear()
    run(log, QueuedMessage("m9", dead.messages[0].body, "g"))
    assert log.sent[0].headers == (("keylane-id", b"%032x-1" % 1),)


@pytest.mark.parametrize("body", ["", "nonsense!", "AAAA", "Ã"])
def test_a_message_that_cannot_be_read_goes_to_the_dead_letters_as_it_is(log: ScriptedLog, body: str):
    dead = FakeQueue()
    drained = run(log, QueuedMessage("m1", body, "g"), a_message(2, v(b"2")), dead=dead)
    assert drained.failed == []
    assert written(log) == [b"2"]
    assert [(letter.body, letter.attributes[REASON]) for letter in dead.messages] == [
        (body, "MALFORMED_MESSAGE")
    ]


def test_a_message_with_a_retriable_failure_comes_again_whole_before_anything_of_it_is_dead(log: ScriptedLog):
    log.errors |= {b"bad": TooLarge("value", 2, 1), b"later": LogUnavailable("away")}
    dead = FakeQueue()
    drained = run(log, a_message(1, v(b"bad"), v(b"later")), dead=dead)
    assert drained.failed == ["m1"]
    assert not dead.messages


def test_an_unknown_topic_or_partition_is_an_error_at_its_eighth_delivery(log: ScriptedLog):
    log.errors[b"p"] = UnknownPartition("t", 9)
    for deliveries in range(1, DELIVERIES_OF_UNKNOWN + 1):
        dead = FakeQueue()
        messages = [
            a_message(1, NewRecord("unknown", b"k", b"v"), deliveries=deliveries),
            a_message(2, v(b"p"), group="h", deliveries=deliveries),
        ]
        drained = run(log, *messages, dead=dead)
        assert drained.failed == ([] if deliveries == DELIVERIES_OF_UNKNOWN else ["m1", "m2"])
    reasons = [letter.attributes[REASON] for letter in dead.messages]
    assert reasons == ["UNKNOWN_TOPIC_OR_PARTITION"] * 2


def test_a_permission_that_is_missing_may_be_given(log: ScriptedLog):
    log.errors[b"1"] = ProduceFailed("TOPIC_AUTHORIZATION_FAILED", "no", retriable=False)
    assert run(log, a_message(1, v(b"1"), deliveries=50)).failed == ["m1"]


def test_with_the_dead_letters_away_the_message_and_its_group_come_again(log: ScriptedLog):
    log.errors[b"bad"] = TooLarge("value", 2, 1)
    drained = run(log, a_message(1, v(b"bad")), a_message(2, v(b"2")), dead=FakeQueue(away=True))
    assert drained.failed == ["m1", "m2"]
    assert drained.dead == {}


def test_records_of_the_bucket_are_written(log: ScriptedLog):
    inside = MessageBatch(b"i" * 16, ACCEPTED_MS, "t", ((0, v(b"large")),))
    bucket = FakeBucket({"t/name": message_codec.encode(inside)})
    outside = MessageBatch(b"i" * 16, ACCEPTED_MS, "t", object_name="t/name")
    message = QueuedMessage("m1", message_codec.to_body(message_codec.encode(outside)), "g")
    assert run(log, message, bucket=bucket).failed == []
    assert written(log) == [b"large"]


@pytest.mark.parametrize("bucket", [None, FakeBucket()])
def test_records_that_the_bucket_lost_are_a_dead_letter(log: ScriptedLog, bucket: FakeBucket | None):
    outside = MessageBatch(b"i" * 16, ACCEPTED_MS, "t", object_name="t/name")
    message = QueuedMessage("m1", message_codec.to_body(message_codec.encode(outside)), "g")
    dead = FakeQueue()
    assert run(log, message, dead=dead, bucket=bucket).failed == []
    assert dead.messages[0].attributes[REASON] == "OBJECT_NOT_FOUND"


def test_with_the_bucket_away_nothing_of_the_group_is_written(log: ScriptedLog):
    outside = MessageBatch(b"i" * 16, ACCEPTED_MS, "t", object_name="t/name")
    message = QueuedMessage("m1", message_codec.to_body(message_codec.encode(outside)), "g")
    assert run(log, message, a_message(2, v(b"2")), bucket=FakeBucket(away=True)).failed == ["m1", "m2"]
    assert written(log) == []


@given(
    st.lists(st.tuples(st.sampled_from("gh"), st.booleans(), st.booleans()), max_size=12),
    st.integers(0, 2**32),
)
def test_whatever_fails_when_each_key_ends_with_its_last_record_and_nothing_is_lost(
    script: list[tuple[str, bool, bool]], seed: int
):
    """Messages come again, as a FIFO queue brings them, until none is left; some fail once, some always."""
    log, dead = ScriptedLog(), FakeQueue()
    log.create("t", 1)
    waiting = []
    for number, (group, fails, is_bad) in enumerate(script):
        value = b"%d" % number
        waiting.append(a_message(number, v(value, group.encode()), group=group))
        if is_bad:
            log.errors[value] = TooLarge("value", 2, 1)
        elif fails:
            log.errors[value] = LogUnavailable("away")
    while waiting:
        drained = run(log, *waiting[:10], dead=dead)
        waiting = [m for m in waiting[:10] if m.id in drained.failed] + waiting[10:]
        log.errors = {value: e for value, e in log.errors.items() if isinstance(e, TooLarge)}
    for group in "gh":
        sent = [b"%d" % n for n, (g, _, bad) in enumerate(script) if g == group and not bad]
        found = [value for key, value in log.topics["t"][0] if key == group.encode()]
        assert set(found) == set(sent)
        assert found[-1:] == sent[-1:]
    assert len(dead.messages) == sum(bad for _, _, bad in script)


def test_an_event_of_lambda_is_read_and_answered():
    record = {
        "messageId": "m1",
        "receiptHandle": "r",
        "body": "b",
        "attributes": {"ApproximateReceiveCount": "4", "MessageGroupId": "g"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
    }
    assert sqs_event.parse_messages({"Records": [record]}) == [QueuedMessage("m1", "b", "g", 4, "r")]
    answer = sqs_event.render_failures(Drained(["m1"], 0, {}, {}))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m1"}]}


@pytest.mark.parametrize("event", [{}, {"Records": None}, {"Records": [{}]}, {"Records": [3]}])
def test_an_event_of_another_source_fails_as_a_whole(event: dict):
    with pytest.raises(ValueError, match="not an event"):
        sqs_event.parse_messages(event)


def test_pause_before_a_message_is_delivered_again_doubles_up_to_six_minutes():
    deliveries = [1, 2, 3, 8, 9, 110]
    received = [QueuedMessage(f"m{each}", "", None, each, f"r{each}") for each in deliveries]
    pauses = pauses_s(received, [each.id for each in received])
    assert list(pauses.values()) == [2, 4, 8, 256, 360, 360]
    assert list(pauses) == [f"r{each}" for each in deliveries]


def test_messages_of_a_group_wait_as_long_as_its_first_one():
    received = [
        QueuedMessage("m1", "", "g", 1, "r1"),
        QueuedMessage("m2", "", "g", 5, "r2"),
        QueuedMessage("m3", "", "g", 1, "r3"),
        QueuedMessage("m4", "", "h", 2, "r4"),
        QueuedMessage("m5", "", "h", 1),
    ]
    assert pauses_s(received, ["m2", "m3", "m4", "m5"]) == {"r2": 32, "r3": 32, "r4": 4}


def test_ten_hours_without_kafka_are_within_the_deliveries_of_the_template():
    policy = template()["Resources"]["LogQueue"]["Properties"]["RedrivePolicy"]
    received = [QueuedMessage("m", "", "g", each, "r") for each in range(1, policy["maxReceiveCount"] + 1)]
    assert sum(pauses_s([each], ["m"])["r"] for each in received) > 10 * 3600
