"""Writing a key through a fake log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.fakes import FakeLog, FakeTime

from keylane.errors import LogUnavailable, ProduceFailed, TooLarge, UnknownPartition, UnknownTopic
from keylane.model.records import NewRecord, Position
from keylane.produce.put import RecordWriter, put_all

if TYPE_CHECKING:
    from keylane.ports import RecordResult

LIMIT = 1000


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.create("t", 1)
    return log


def a_writer(log: FakeLog, timeout_ms: float = 1000) -> RecordWriter:
    return RecordWriter(log, FakeTime().clock, LIMIT, timeout_ms)


def put(
    log: FakeLog, key: bytes, value: bytes | None, topic: str = "t", timeout_ms: float = 1000
) -> RecordResult:
    record = NewRecord(topic, key, value)
    [result] = put_all(a_writer(log, timeout_ms), [record])
    return result


def test_each_write_returns_its_position(log: FakeLog):
    assert put(log, b"k", b"1") == Position(0, 0)
    assert put(log, b"k", b"2") == Position(0, 1)


def test_delete_writes_a_tombstone(log: FakeLog):
    assert put(log, b"k", None) == Position(0, 0)
    assert log.topics["t"] == [[(b"k", None)]]


def test_empty_value_is_a_value(log: FakeLog):
    put(log, b"k", b"")
    assert log.topics["t"] == [[(b"k", b"")]]


def test_key_may_have_64_kib_and_no_more(log: FakeLog):
    put(log, b"k" * 65_536, b"v")
    result = put(log, b"k" * 65_537, b"v")
    assert isinstance(result, TooLarge)
    assert (result.what, result.size_bytes, result.limit_bytes) == ("key", 65_537, 65_536)


def test_value_may_have_its_limit_and_no_more(log: FakeLog):
    put(log, b"k", b"v" * LIMIT)
    result = put(log, b"k", b"v" * (LIMIT + 1))
    assert isinstance(result, TooLarge)
    assert (result.what, result.limit_bytes) == ("value", LIMIT)
    assert len(log.topics["t"][0]) == 1


def test_errors_of_the_log_are_the_results_of_their_records(log: FakeLog):
    assert isinstance(put(log, b"k", b"v", topic="elsewhere"), UnknownTopic)
    assert isinstance(put(log, b"k", b"v", timeout_ms=0), LogUnavailable)


def test_invalid_records_do_not_hold_up_the_others(log: FakeLog):
    records = [
        NewRecord("t", b"a", b"1"),
        NewRecord("t", b"k" * 65_537, b"v"),
        NewRecord("t", b"k", b"v" * (LIMIT + 1)),
        NewRecord("no topic", b"k", b"v"),
        NewRecord("t", b"k", b"v", -2),
        NewRecord("elsewhere", b"k", b"v"),
        NewRecord("t", None, None),
    ]
    results = put_all(a_writer(log), records)
    assert (results[0], results[-1]) == (Position(0, 0), Position(0, 1))
    kinds = [TooLarge, TooLarge, ProduceFailed, UnknownPartition, UnknownTopic]
    assert [type(result) for result in results[1:-1]] == kinds
    assert log.sent == [records[0], records[5], records[6]]


def test_where_no_record_can_be_written_kafka_is_not_asked(log: FakeLog):
    log.away = True
    [result] = put_all(a_writer(log), [NewRecord("t", b"k", b"v" * 2_000)])
    assert isinstance(result, TooLarge)
