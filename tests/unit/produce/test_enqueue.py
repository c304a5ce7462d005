"""Records into the write-ahead log, over a fake queue and bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fakes import FakeBucket, FakeLog, FakeQueue, FakeTime

from keylane.errors import (
    LogUnavailable,
    ProduceFailed,
    QueueUnavailable,
    TooLarge,
    Unacknowledged,
    Unconfirmed,
)
from keylane.model.records import NewRecord, Position, Queued
from keylane.ports import Deadline
from keylane.produce import message_codec
from keylane.produce.enqueue import ID_HEADER, Batching, WriteAheadLog, enqueue
from keylane.produce.put import RecordWriter, put_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.errors import KeylaneError
    from keylane.ports import RecordResult
    from keylane.produce.message_codec import MessageBatch

LIMIT = 4096


def a_wal(queue: FakeQueue, *, groups: int = 4, bucket: FakeBucket | None = None, **takes) -> WriteAheadLog:
    return WriteAheadLog(queue, bucket, Batching(groups, LIMIT), **takes)


def put(wal: WriteAheadLog, records: Sequence[NewRecord]) -> list[RecordResult]:
    clock = FakeTime().clock
    return enqueue(wal, clock, records, Deadline.after_ms(1_000, clock))


def batches(queue: FakeQueue) -> list[MessageBatch]:
    return [message_codec.decode(message_codec.from_body(message.body)) for message in queue.messages]


@given(
    st.lists(
        st.builds(
            NewRecord,
            st.sampled_from(["a", "b"]),
            st.none() | st.binary(max_size=1),
            st.binary(max_size=1500),
            st.none() | st.integers(0, 3),
        ),
        max_size=30,
    ),
    st.sampled_from([0, 1, 4]),
)
def test_every_record_is_in_one_message_and_in_order_within_its_group(records: list[NewRecord], groups: int):
    queue = FakeQueue()
    results = put(a_wal(queue, groups=groups), records)
    found = {batch.record_id(number): record for batch in batches(queue) for number, record in batch.records}
    assert [found.pop(result.id) for result in results] == records
    assert not found
    by_group: dict[tuple[str, str | None], list[NewRecord]] = {}
    for message, batch in zip(queue.messages, batches(queue), strict=True):
        assert len(message.body) <= LIMIT - 1024
        assert message.id == batch.id.hex()
        by_group.setdefault((batch.topic, message.group), []).extend(each for _, each in batch.records)
    for (topic, _), held in by_group.items():
        assert held == [record for record in records if record.topic == topic and record in held]
    for topic in "ab":
        for key in {record.key for record in records if record.key is not None}:
            groups_of_key = {
                message.group
                for message, batch in zip(queue.messages, batches(queue), strict=True)
                if any((each.topic, each.key) == (topic, key) for _, each in batch.records)
            }
            assert len(groups_of_key) <= 1


def test_records_of_a_request_share_a_message_for_each_group():
    queue = FakeQueue()
    put(a_wal(queue, groups=1), [NewRecord("t", b"%d" % number, b"v") for number in range(50)])
    assert [len(batch.records) for batch in batches(queue)] == [50]


def test_a_partition_without_keys_has_a_group_of_its_own():
    queue = FakeQueue()
    put(a_wal(queue), [NewRecord("t", None, b"v", 7), NewRecord("t", None, b"v", 8)])
    assert [message.group for message in queue.messages] == ["t:p7", "t:p8"]


def test_a_group_has_a_name_that_sqs_takes_whatever_the_topics():
    queue = FakeQueue()
    put(
        a_wal(queue, groups=10_000),
        [NewRecord("t" * 249, b"k", b"v"), NewRecord("t" * 249, None, b"", 2**31 - 1)],
    )
    assert all(len(message.group or "") <= 128 for message in queue.messages)


def test_an_unordered_queue_gets_no_groups():
    queue = FakeQueue()
    put(a_wal(queue, groups=0), [NewRecord("t", b"%d" % number, b"v") for number in range(5)])
    assert [message.group for message in queue.messages] == [None]


def test_what_fits_into_no_message_goes_into_the_bucket():
    queue, bucket = FakeQueue(), FakeBucket()
    large = NewRecord("t", b"k", b"v" * 100_000)
    [result] = put(a_wal(queue, bucket=bucket), [large])
    [batch] = batches(queue)
    assert batch.records == ()
    assert batch.object_name is not None
    left = message_codec.decode(bucket.objects[batch.object_name])
    assert left.records == ((0, large),)
    assert result == Queued(left.record_id(0))


def test_without_a_bucket_what_fits_into_no_message_is_refused_and_hides_nothing():
    queue = FakeQueue()
    records = [NewRecord("t", b"a", b"1"), NewRecord("t", b"b", b"v" * 4_000), NewRecord("t", b"b", b"2")]
    first, second, third = put(a_wal(queue, groups=1), records)
    assert isinstance(first, Queued)
    assert isinstance(second, TooLarge)
    assert second.limit_bytes == (LIMIT - 1024) // 4 * 3
    assert str(second).startswith("the record to be queued has ")
    assert isinstance(third, Queued)


def test_with_the_bucket_away_nothing_overtakes_the_record_that_should_be_there():
    queue = FakeQueue()
    records = [NewRecord("t", b"k", b"1"), NewRecord("t", b"k", b"v" * 4_000), NewRecord("t", b"k", b"2")]
    results = put(a_wal(queue, groups=1, bucket=FakeBucket(away=True)), records)
    assert [type(result) for result in results] == [Queued, QueueUnavailable, QueueUnavailable]
    assert [record.value for batch in batches(queue) for _, record in batch.records] == [b"1"]


def test_failures_of_a_message_are_those_of_its_records():
    queue = FakeQueue(refusals={"t:p1": QueueUnavailable("no")})
    records = [NewRecord("t", None, b"a", 1), NewRecord("t", None, b"b", 2), NewRecord("t", None, b"c", 1)]
    results = put(a_wal(queue), records)
    assert [type(result) for result in results] == [QueueUnavailable, Queued, QueueUnavailable]


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.create("t", 1)
    return log


def write(
    log: FakeLog, wal: WriteAheadLog, records: Sequence[NewRecord], *, is_async: bool = False
) -> list[RecordResult]:
    writer = RecordWriter(log, FakeTime().clock, value_limit_bytes=1_000, timeout_ms=1_000, wal=wal)
    return put_all(writer, records, is_async=is_async)


def test_asynchronous_writes_are_queued_and_others_delivered(log: FakeLog):
    queue = FakeQueue()
    record = NewRecord("t", b"k", b"v")
    assert write(log, a_wal(queue), [record]) == [Position(0, 0)]
    assert not queue.messages
    [result] = write(log, a_wal(queue), [record], is_async=True)
    assert isinstance(result, Queued)
    assert len(log.topics["t"][0]) == 1


def test_a_log_for_failures_only_delivers_asynchronous_writes(log: FakeLog):
    queue = FakeQueue()
    wal = a_wal(queue, takes_async=False, takes_failed=True)
    assert write(log, wal, [NewRecord("t", b"k", b"v")], is_async=True) == [Position(0, 0)]


def test_invalid_records_fail_before_queueing(log: FakeLog):
    queue = FakeQueue()
    records = [
        NewRecord("no/topic", b"k", b"v"),
        NewRecord("t", b"k", b"v" * 1_001),
        NewRecord("t", b"k", b"v"),
    ]
    results = write(log, a_wal(queue), records, is_async=True)
    assert [type(result) for result in results] == [ProduceFailed, TooLarge, Queued]


def test_what_kafka_does_not_take_now_is_queued_under_the_id_that_it_was_sent_with(log: FakeLog):
    log.away = True
    queue = FakeQueue()
    [result] = write(log, a_wal(queue, takes_failed=True), [NewRecord("t", b"k", b"v")])
    assert isinstance(result, Queued)
    [sent] = log.sent
    [(_, queued)] = batches(queue)[0].records
    assert queued.headers == sent.headers == ((ID_HEADER, result.id.encode()),)


@pytest.mark.parametrize(
    ("of_kafka", "of_the_queue", "result"),
    [
        (Unacknowledged(), QueueUnavailable("away"), Unacknowledged),
        (LogUnavailable("away"), Unconfirmed(), Unconfirmed),
        (LogUnavailable("away"), QueueUnavailable("away"), QueueUnavailable),
    ],
)
def test_what_kafka_may_have_stays_uncertain_where_the_queue_does_not_take_it(
    log: FakeLog, of_kafka: KeylaneError, of_the_queue: KeylaneError, result: type
):
    """Its idempotency key would be free again, and the same request would be written twice."""
    log.refusals["t"] = of_kafka
    wal = a_wal(FakeQueue(refusals={None: of_the_queue}), groups=0, takes_failed=True)
    [found] = write(log, wal, [NewRecord("t", b"k", b"v")])
    assert type(found) is result


def test_by_default_a_failure_is_reported_and_nothing_queued(log: FakeLog):
    log.away = True
    queue = FakeQueue()
    [result] = write(log, a_wal(queue), [NewRecord("t", b"k", b"v")])
    assert isinstance(result, LogUnavailable)
    assert not queue.messages


def test_permanent_failures_are_reported_and_not_queued(log: FakeLog):
    queue = FakeQueue()
    [result] = write(log, a_wal(queue, takes_failed=True), [NewRecord("unknown", b"k", b"v")])
    assert not isinstance(result, Queued)
    assert not queue.messages


def test_an_older_record_is_not_queued_where_a_newer_one_of_its_key_was_written(log: FakeLog):
    class Forgetful(FakeLog):
        def _result(self, record, deadline):
            return Unacknowledged() if record.value == b"old" else super()._result(record, deadline)

    forgetful = Forgetful()
    forgetful.create("t", 1)
    queue = FakeQueue()
    records = [
        NewRecord("t", b"k", b"old"),
        NewRecord("t", b"other", b"old"),
        NewRecord("t", b"k", b"new"),
    ]
    results = write(forgetful, a_wal(queue, takes_failed=True), records)
    assert [type(result) for result in results] == [Unacknowledged, Queued, Position]
