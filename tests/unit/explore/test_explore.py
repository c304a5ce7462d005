"""Looking into Kafka through fakes of it and of Redis."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.builders import a_layout, layout_entry
from tests.support.fakes import FakeKafka, FakePartition, FakeState, FakeTime

from keylane import routing
from keylane.errors import LogUnavailable, OffsetOutOfRange, UnknownPartition, UnknownTopic
from keylane.explore import topics
from keylane.explore.health import check_health
from keylane.explore.log import RecordPage, find_offset, read_records
from keylane.model.kafka import (
    EARLIEST,
    LATEST,
    MAX,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    LogRange,
    LogRecord,
    OffsetQuery,
)
from keylane.model.served_topics import ALL_TOPICS
from keylane.ports import Deadline
from keylane.query.layouts import Layouts
from keylane.query.store import Store

WANTED = LogRange("t", 0, 0, 0, limit=100)


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka()


@pytest.fixture
def log(kafka: FakeKafka) -> FakePartition:
    """Offsets 3, 4, 7, 8: 5 and 6 were compacted away, 0 to 2 removed; 9 is a transaction's marker."""
    (partition,) = kafka.create("t", 1)
    partition.add(*(LogRecord(n, b"k", b"v%d" % n, n * 1000, "CreateTime") for n in (3, 4, 7, 8)))
    partition.low, partition.high = 3, 10
    return partition


def read(kafka: FakeKafka, wanted: LogRange, begin: str | None = None, timeout_ms: float = 1000):
    return read_records(kafka, kafka, wanted, 1000, begin, Deadline.after_ms(timeout_ms, FakeTime().clock))


def offsets_of(page: RecordPage) -> list[int]:
    return [record.offset for record in page.batch.records]


def test_records_come_in_order_over_gaps_with_the_next_offset(kafka: FakeKafka, log: FakePartition):
    page = read(kafka, replace(WANTED, offset=4))
    assert offsets_of(page) == [4, 7, 8]
    assert (page.batch.next_offset, page.low, page.high) == (10, 3, 10)
    page = read(kafka, replace(WANTED, offset=3, limit=2))
    assert (offsets_of(page), page.batch.next_offset) == ([3, 4], 5)
    page = read(kafka, replace(WANTED, offset=page.batch.next_offset, limit=2))
    assert (offsets_of(page), page.batch.next_offset) == ([7, 8], 9)
    page = read(kafka, replace(WANTED, offset=page.batch.next_offset))
    assert (offsets_of(page), page.batch.next_offset) == ([], 10)


def test_records_may_begin_where_the_partition_does_and_where_it_ends(kafka: FakeKafka, log: FakePartition):
    assert offsets_of(read(kafka, WANTED, EARLIEST)) == [3, 4, 7, 8]
    page = read(kafka, WANTED, LATEST)
    assert (offsets_of(page), page.batch.next_offset) == ([], 10)
    assert len(kafka.reads) == 1, "at the end of the log, no records are read"


@pytest.mark.parametrize("offset", [0, 2, 11, 10**17])
def test_offsets_outside_are_refused_with_the_range(kafka: FakeKafka, log: FakePartition, offset: int):
    with pytest.raises(OffsetOutOfRange, match=f"begins at offset 3, .* 10: {offset} is outside") as caught:
        read(kafka, replace(WANTED, offset=offset))
    assert (caught.value.low, caught.value.high) == (3, 10)


def test_records_that_retention_removes_meanwhile_are_out_of_range(kafka: FakeKafka, log: FakePartition):
    def retain() -> None:
        log.low = 8

    kafka.before_read = retain
    with pytest.raises(OffsetOutOfRange) as caught:
        read(kafka, replace(WANTED, offset=4))
    assert (caught.value.low, caught.value.high) == (8, 10)


def test_open_and_aborted_transactions_are_read_only_as_read_uncommitted(
    kafka: FakeKafka, log: FakePartition
):
    log.stable, log.aborted = 8, {4}
    page = read(kafka, replace(WANTED, offset=3))
    assert (offsets_of(page), page.batch.next_offset, page.high) == ([3, 7], 8, 8)
    page = read(kafka, replace(WANTED, offset=3, isolation=READ_UNCOMMITTED))
    assert (offsets_of(page), page.batch.next_offset, page.high) == ([3, 4, 7, 8], 10, 10)


def test_an_offset_within_an_open_transaction_is_not_out_of_range(kafka: FakeKafka, log: FakePartition):
    log.stable = 8
    page = read(kafka, replace(WANTED, offset=9))
    assert (offsets_of(page), page.batch.next_offset, page.high) == ([], 9, 8)
    with pytest.raises(OffsetOutOfRange):
        read(kafka, replace(WANTED, offset=11))


def test_unknown_topics_and_partitions_are_errors(kafka: FakeKafka, log: FakePartition):
    with pytest.raises(UnknownTopic):
        read(kafka, replace(WANTED, topic="elsewhere"))
    with pytest.raises(UnknownPartition, match="has no partition 1"):
        read(kafka, replace(WANTED, partition=1))


def test_a_read_that_takes_too_long_is_unavailable(kafka: FakeKafka, log: FakePartition):
    with pytest.raises(LogUnavailable):
        read(kafka, WANTED, timeout_ms=0)


def test_offsets_are_found_by_place_and_time(kafka: FakeKafka, log: FakePartition):
    log.records[1] = replace(log.records[1], timestamp_ms=9_999)

    def at(place: str | int, isolation: str = READ_COMMITTED, partition: int = 0):
        deadline = Deadline.after_ms(100, FakeTime().clock)
        found = find_offset(kafka, kafka, OffsetQuery("t", partition, place), isolation, deadline)
        return found and (found.offset, found.timestamp_ms)

    assert at(EARLIEST) == (3, None)
    assert at(LATEST) == (10, None)
    assert at(MAX) == (4, 9_999)
    assert at(3_001) == (4, 9_999)
    assert at(10_000) is None
    log.stable = 7
    assert (at(LATEST), at(LATEST, READ_UNCOMMITTED)) == ((7, None), (10, None))
    with pytest.raises(UnknownPartition):
        at(LATEST, partition=1)


def test_topics_are_listed_page_by_page(kafka: FakeKafka):
    for name in ("b", "ab", "a", "ac", "B"):
        kafka.create(name, 2)

    def names(**asked):
        wanted = {"prefix": "", "after": "", "limit": 10} | asked
        deadline = Deadline.after_ms(100, FakeTime().clock)
        page, next_after = topics.list_topics(kafka, ALL_TOPICS, topics.TopicsRequest(**wanted), deadline)
        assert all(count == 2 for _, count in page)
        return [name for name, _ in page], next_after

    assert names() == (["B", "a", "ab", "ac", "b"], None)
    assert names(limit=2) == (["B", "a"], "a")
    assert names(limit=2, after="a") == (["ab", "ac"], "ac")
    assert names(limit=2, prefix="a", after="a") == (["ab", "ac"], None)
    assert names(prefix="x") == ([], None)


def placed(kafka: FakeKafka, state: FakeState | None, topic: str) -> topics.TopicPlacement:
    clock = FakeTime().clock
    store = Store(state, Layouts(state, clock, 0), clock) if state else None
    return topics.locate_topic(kafka, store, topic, Deadline.after_ms(100, clock), 100)


def test_partitions_are_placed_by_the_topics_layout(kafka: FakeKafka):
    layout = a_layout(partition_count=6, stripes=2)
    kafka.create(layout.topic, 7)
    placement = placed(kafka, FakeState(layout_entry(layout)), layout.topic)
    assert placement.state == topics.KEPT
    # The seventh is beyond the layout: its watermark lies with the first's.
    assert placement.slots == [routing.slot_for(n % 6, 0, 6, 2) for n in range(7)]
    assert placement.shards[0] == "redis-0:7000"
    assert [partition.leader for partition in placement.topic.partitions] == [1] * 7


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (None, topics.NOT_CONFIGURED),
        (FakeState(), topics.NOT_KEPT),
        (FakeState(away=True), topics.UNAVAILABLE),
    ],
)
def test_placement_without_redis_has_kafkas_part(kafka: FakeKafka, state: FakeState | None, name: str):
    kafka.create("t", 4)
    placement = placed(kafka, state, "t")
    assert (placement.state, placement.slots, placement.shards) == (
        name,
        [2048, 6144, 10240, 14336],
        [None] * 4,
    )
    with pytest.raises(UnknownTopic):
        placed(kafka, state, "elsewhere")


def test_health_checks_all_shards_and_says_what_does_not_answer(kafka: FakeKafka):
    state = FakeState()
    clock = FakeTime().clock

    def asked() -> dict[str, bool]:
        parts = check_health({"default": kafka}, state, clock, 100, 100)
        assert all(part.took_ms == 0 for part in parts.values())
        return {name: part.why is None for name, part in parts.items()}

    assert asked() == {"kafka": True, "redis": True}
    slots = {routing.key_slot(words[1]) for words in state.runs[0]}
    assert {host for slot in slots for host in state.hosts([slot], Deadline.after_ms(100, clock))} == {
        "redis-0:7000",
        "redis-1:7000",
        "redis-2:7000",
    }
    kafka.away = True
    assert asked() == {"kafka": False, "redis": True}
    state.away = True
    assert asked() == {"kafka": False, "redis": False}
    alone = check_health({"default": kafka}, None, clock, 100, 100)
    assert alone["kafka"].why == "Kafka did not answer in time"
    assert list(alone) == ["kafka"]
