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

WANTED = LogRange("t", 0, 5, 100, limit=10, max_bytes=1000)


@dataclass
class Message:
    number: int = -1
    code: int | None = None
    about: str | None = "t"
    at_ms: int = 7

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def topic(self) -> str | None:
        return self.about

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

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


def collect(*messages: Message):
    with translate_kafka_errors("t"):
        time = FakeTime()
        limit = Deadline.after_ms(1000, time.clock)
        return reader._collect(Consumer(time, *messages), WANTED, limit, RejectionListener(Security()))


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


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._ALL_BROKERS_DOWN])
def test_errors_of_the_group_or_of_a_connection_are_ignored(code: int):
    batch = collect(Message(code=code, about=None), Message(5), Message(6, KafkaError._PARTITION_EOF))
    assert batch
    assert batch.records == (record(5),)


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_an_offset_that_is_gone_by_now_is_out_of_range(code: int):
    with pytest.raises(OffsetOutOfRange):
        collect(Message(5, code))


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
    assert reader._collect(Consumer(time), WANTED, limit, listener) is None
    assert time.clock.monotonic_s() - begun_s >= 60
    listener(KafkaError(KafkaError._AUTHENTICATION))
    limit = Deadline.after_ms(60_000, time.clock)
    assert reader._collect(Consumer(time), WANTED, limit, listener) is None
    assert limit.remaining_s > 50
