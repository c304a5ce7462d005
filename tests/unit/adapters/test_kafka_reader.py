"""What the reader makes of a consumer's messages and errors, in cases that only a failing broker shows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException
from tests.support.fakes import FakeTime

from keylane.adapters.kafka import reader
from keylane.adapters.kafka.clients import RejectionListener
from keylane.adapters.kafka.errors import translate_kafka_errors
from keylane.adapters.kafka.options import Security
from keylane.errors import LogRefused, LogUnavailable, OffsetOutOfRange, UnknownTopic
from keylane.model.kafka import LogRange, LogRecord
from keylane.ports import Deadline

WANTED = LogRange("t", 0, 5, 100, limit=10)
OTHER = LogRange("t", 1, 3, 100, limit=10)
MAX_BYTES = 1000


@dataclass
class Message:
    number: int = -1
    code: int | None = None
    about: str | None = "t"
    at_ms: int = 7
    of: int = 0
    content: bytes | None = b"v"

    def partition(self) -> int:
        return self.of

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def topic(self) -> str | None:
        return self.about

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes | None:
        return self.content and b"k"

    def value(self) -> bytes | None:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, self.at_ms

    def headers(self) -> None:
        return None


class Consumer:
    """Returns these messages, then none, for as long as it is polled."""

    def __init__(self, time: FakeTime, *messages: Message) -> None:
        self.time = time
        self.messages = list(messages)

    def poll(self, timeout_s: float) -> Message | None:
        if self.messages:
            return self.messages.pop(0)
        self.time.move(timeout_s)
        return None


def collect_all(wanted: list[LogRange], *messages: Message, max_bytes: int = MAX_BYTES):
    with translate_kafka_errors("t"):
        time = FakeTime()
        limit, listener = Deadline.after_ms(60_000, time.clock), RejectionListener(Security())
        return reader._collect(Consumer(time, *messages), wanted, max_bytes, limit, listener)


def collect(*messages: Message):
    found = collect_all([WANTED], *messages)
    return found and found[0]


def record(offset: int) -> LogRecord:
    return LogRecord(offset, b"k", b"v", 7, "CreateTime")


@pytest.mark.parametrize("at_ms", [-1, 0, -6_795_364_578_871_345_152])
def test_a_record_may_have_no_timestamp(at_ms: int):
    found = reader._record(Message(at_ms=at_ms))
    assert (found.timestamp_ms, found.timestamp_type) == (None, None)


def test_when_the_time_is_up_the_records_read_so_far_are_returned():
    batch = collect(Message(5), Message(8))
    assert batch
    assert (batch.records, batch.next_offset) == ((record(5), record(8)), 9)
    assert collect() is None


def test_the_next_offset_is_the_end_of_the_partition():
    batch = collect(Message(5), Message(60, KafkaError._PARTITION_EOF))
    assert batch
    assert (batch.records, batch.next_offset) == ((record(5),), 60)
    batch = collect(Message(60, KafkaError._PARTITION_EOF))
    assert batch
    assert (batch.records, batch.next_offset) == ((), 60)


def test_records_beyond_the_requested_end_are_left_out():
    batch = collect(Message(99), Message(101), Message(102))
    assert batch
    assert (batch.records, batch.next_offset) == ((record(99),), 100)
    batch = collect(Message(5), Message(101))
    assert batch
    assert (batch.records, batch.next_offset) == ((record(5),), 100)


def test_several_partitions_are_read_at_once_each_to_its_own_end():
    found = collect_all(
        [WANTED, OTHER],
        *(Message(3, of=1), Message(5), Message(9, KafkaError._PARTITION_EOF, of=1), Message(9, of=1)),
        *(Message(100), Message(101), Message(7, of=2)),
    )
    assert [(each.records, each.next_offset) for each in found] == [((record(5),), 100), ((record(3),), 9)]


def test_a_partition_of_which_nothing_comes_holds_up_the_others_for_a_second():
    time = FakeTime()
    limit, listener = Deadline.after_ms(60_000, time.clock), RejectionListener(Security())
    consumer = Consumer(time, Message(5), Message(60, KafkaError._PARTITION_EOF))
    found = reader._collect(consumer, [WANTED, OTHER], MAX_BYTES, limit, listener)
    assert [(each.records, each.next_offset) for each in found or ()] == [((record(5),), 60), ((), 3)]
    assert limit.remaining_s == pytest.approx(59)


@pytest.mark.parametrize(("max_bytes", "taken"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_all_partitions_together_have_so_many_bytes_and_one_record_at_least(max_bytes: int, taken: int):
    messages = Message(5), Message(3, of=1), Message(6)
    found = collect_all([WANTED, OTHER], *messages, max_bytes=max_bytes)
    expected = [(6, 3), (6, 4), (7, 4)][taken - 1]
    assert tuple(each.next_offset for each in found) == expected
    assert sum(len(each.records) for each in found) == taken


def test_a_record_without_bytes_is_the_one_that_is_given_in_any_case():
    found = collect_all([WANTED, OTHER], Message(5, content=None), Message(3, of=1), max_bytes=1)
    assert [each.next_offset for each in found] == [6, 3]


def test_what_is_more_than_the_limit_of_one_partition_is_left_out():
    found = collect_all([LogRange("t", 0, 5, 100, limit=1), OTHER], Message(5), Message(6), Message(3, of=1))
    assert [each.next_offset for each in found] == [6, 4]


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._ALL_BROKERS_DOWN])
def test_errors_of_the_group_or_of_a_connection_are_ignored(code: int):
    batch = collect(Message(code=code, about=None), Message(5), Message(6, KafkaError._PARTITION_EOF))
    assert batch
    assert batch.records == (record(5),)


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_an_offset_that_is_gone_by_now_is_out_of_range(code: int):
    with pytest.raises(OffsetOutOfRange) as caught:
        collect_all([WANTED, OTHER], Message(5), Message(3, code, of=1))
    assert caught.value.partition == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, LogRefused),
        (KafkaError._TRANSPORT, LogUnavailable),
        (KafkaError._AUTHENTICATION, LogUnavailable),
    ],
)
def test_errors_of_the_partition_are_raised(code: int, error: type[Exception]):
    with pytest.raises(error):
        collect(Message(5), Message(-1, code))


def test_refusals_have_kafkas_names_and_say_whether_they_are_retriable():
    def refused(code: int) -> tuple[str, bool]:
        with pytest.raises(LogRefused) as caught, translate_kafka_errors("t"):
            raise KafkaException(KafkaError(code))
        return caught.value.code, caught.value.retriable

    assert refused(KafkaError.NOT_LEADER_FOR_PARTITION) == ("NOT_LEADER_OR_FOLLOWER", True)
    assert refused(KafkaError.FENCED_LEADER_EPOCH) == ("FENCED_LEADER_EPOCH", True)
    assert refused(KafkaError.UNSUPPORTED_VERSION) == ("UNSUPPORTED_VERSION", False)


def test_without_a_record_it_returns_at_the_deadline_or_as_soon_as_a_broker_rejects_it():
    time, listener = FakeTime(), RejectionListener(Security())
    begun_s = time.clock.monotonic_s()
    limit = Deadline.after_ms(60_000, time.clock)
    assert reader._collect(Consumer(time), [WANTED], MAX_BYTES, limit, listener) is None
    assert time.clock.monotonic_s() - begun_s >= 60
    listener(KafkaError(KafkaError._AUTHENTICATION))
    limit = Deadline.after_ms(60_000, time.clock)
    assert reader._collect(Consumer(time), [WANTED], MAX_BYTES, limit, listener) is None
    assert limit.remaining_s > 50


class Meeting:
    """A consumer that is asked for topics' leaders; `is_away`: no broker answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.is_away = False

    def list_topics(self, topic: str, timeout_s: float) -> None:
        self.asked.append((topic, timeout_s))
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_a_consumer_asks_for_the_leaders_of_each_topic_that_it_meets_and_again_after_a_while():
    time, consumer = FakeTime(), Meeting()
    kept = reader._Kept(consumer, RejectionListener(Security()), {})

    def meet(*topics: str) -> list[str]:
        consumer.asked.clear()
        for topic in topics:
            kept.meet(topic, Deadline.after_ms(60_000, time.clock))
        return [topic for topic, _ in consumer.asked]

    assert meet("a", "b", "a", "b") == ["a", "b"]
    time.move(reader.MET_S + 1)
    consumer.is_away = True
    assert meet("a", "a") == ["a", "a"]
    consumer.is_away = False
    names = [f"t{number}" for number in range(reader.MET_LIMIT + 2)]
    assert meet("a", "a", *names) == ["a", *names]
    assert len(kept.met) <= reader.MET_LIMIT
    kept.meet("late", Deadline.after_ms(0, time.clock))
    assert consumer.asked[-1] == ("late", 0.0)
