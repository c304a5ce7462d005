"""Ranges that tasks read from a real broker themselves, beside what Spark's own reader makes of them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.servers.own import eventually, produce, remove_records
from tests.support.compaction import compact
from tests.support.stopwatch import Stopwatch

from keylane import routing
from keylane.adapters.kafka.options import COMPRESSIONS, Connection
from keylane.errors import LogUnavailable, TopicChanged
from keylane.model.keys import LARGEST_KEY
from keylane_spark.config.job import JobConfig
from keylane_spark.engine import kafka_source
from keylane_spark.log.fetches import PlannedRange
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.log.log_reader import LogRangeReader
from keylane_spark.stream.spark_reader import split_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from keylane_spark.rows.records import Rows

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


@pytest.fixture
def reader(kafka):
    found = LogRangeReader(Connection(kafka), retry_budget_s=2, timeout_s=30)
    yield found
    found.close()


def ends_of(kafka: str, topic: str) -> tuple[int, int]:
    broker = JobKafka(Connection(kafka))
    counts = {topic: 1}
    return broker.oldest_offsets(counts)[topic, 0], broker.end_offsets(counts)[topic, 0]


def rows_of(reader: LogRangeReader, wanted: PlannedRange, *, committed: bool = True) -> list[tuple]:
    return tuples(reader.read(wanted, committed=committed, with_headers=True))


def tuples(found: Iterable[Rows]) -> list[tuple]:
    """Offset, time in ms, key, value and headers of each row."""
    seen: list[tuple] = []
    for rows in found:
        pairs = [
            each and [(header["key"], header["value"]) for header in each]
            for each in rows.headers.to_pylist()
        ]
        contents = rows.keys.to_pylist(), rows.values.to_pylist(), pairs
        seen += zip(rows.offsets.tolist(), rows.timestamps_ms.tolist(), *contents, strict=True)
    return seen


def spark_rows_of(spark, kafka: str, topic: str, begin: int, end: int, isolation: str) -> list[tuple]:
    """The same by Spark's reader."""
    options = kafka_source._options(Connection(kafka), JobConfig(isolation=isolation))
    table = (
        spark.read.format("kafka")
        .options(**options)
        .option("subscribe", topic)
        .option("startingOffsets", kafka_source._offsets({(topic, 0): begin}))
        .option("endingOffsets", kafka_source._offsets({(topic, 0): end}))
        .option("includeHeaders", "true")
        .load()
        .select(*COLUMNS)
        .toArrow()
        .sort_by("offset")
    )
    spec = SimpleNamespace(layouts={topic: None})
    return tuples(rows for _, rows in split_rows(table.to_batches(), spec))


def write_randomly(kafka: str, topic: str, seed: int) -> None:
    """A few producers one after the other, with and without transactions, each with its own compression."""
    drawn = random.Random(seed)
    for part in range(drawn.randint(3, 6)):
        transactional = drawn.random() < 0.6
        settings = {
            "bootstrap.servers": kafka,
            "compression.type": drawn.choice(COMPRESSIONS),
            "linger.ms": 20,
            "batch.num.messages": drawn.choice([1, 7, 500]),
        }
        if transactional:
            settings["transactional.id"] = f"{topic}-{part}"
        producer = Producer(settings)
        if transactional:
            producer.init_transactions(30)
        for _ in range(drawn.randint(1, 2)):
            if transactional:
                producer.begin_transaction()
            for _ in range(drawn.choice([1, 40, 400])):
                size = drawn.choice([0, 1, 100, 5_000])
                producer.produce(
                    topic,
                    drawn.choice([None, drawn.randbytes(size), b"x" * size]),
                    drawn.choice([None, b"", b"key-%d" % drawn.randrange(50)]),
                    0,
                    timestamp=drawn.choice([0, 1_700_000_000_123 + drawn.randrange(10**6)]),
                    headers=drawn.choice([None, [("h", b"1")], [("ä", None), ("h", b""), ("h", b"x" * 300)]]),
                )
            producer.flush(60)
            if transactional and drawn.random() < 0.5:
                producer.abort_transaction(30)
            elif transactional:
                producer.commit_transaction(30)


def test_a_key_that_is_too_large_is_none_whoever_reads_and_whatever_the_rows_pass_through(
    spark, kafka, topic, reader
):
    """With Spark's reader a view of keys, and SQL in tasks, had a record more than the topic's lanes."""
    producer = Producer(
        {"bootstrap.servers": kafka, "compression.type": "zstd", "message.max.bytes": 8_000_000}
    )
    keys = [b"k" * LARGEST_KEY, b"k" * (LARGEST_KEY + 1), b""]
    for key in keys:
        producer.produce(topic, b"{}", key, 0)
    assert producer.flush(60) == 0
    begins, ends = {(topic, 0): 0}, {(topic, 0): 3}
    table = kafka_source.read_range(spark, Connection(kafka), begins, ends, JobConfig()).toArrow()
    assert table.sort_by("offset").column("key").to_pylist() == [keys[0], None, b""]
    assert [row[2] for row in rows_of(reader, PlannedRange(topic, 0, 0, 3))] == [keys[0], None, b""]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_random_logs_are_read_as_by_spark(spark, kafka, topic, reader, seed, isolation):
    if seed == 0:
        set_topic(kafka, topic, "message.timestamp.type", "LogAppendTime")
    write_randomly(kafka, topic, seed)
    _, end = ends_of(kafka, topic)
    begin = end // 10
    wanted = PlannedRange(topic, 0, begin, end)
    small = LogRangeReader(Connection(kafka), fetch_bytes=20_000)
    expected = spark_rows_of(spark, kafka, topic, begin, end, isolation)
    assert expected
    for each in (reader, small):
        assert rows_of(each, wanted, committed=isolation == "read_committed") == expected
    small.close()


def set_topic(kafka: str, topic: str, name: str, value: str) -> None:
    from tests.support import compaction  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": kafka})
    compaction._configure(admin, compaction.ConfigResource.Type.TOPIC, topic, {name: value})


def test_a_range_with_gaps_of_compaction_is_read_to_its_end(spark, kafka, topic, reader):
    assert routing.partition_for(b"hot", 1) == 0
    compact(kafka, topic, 1)
    begin, end = ends_of(kafka, topic)
    wanted = PlannedRange(topic, 0, begin, end)
    assert len(rows_of(reader, wanted)) < end - begin

    def are_equal() -> bool:
        # The broker may compact the log once more between the two.
        return rows_of(reader, wanted) == spark_rows_of(spark, kafka, topic, begin, end, "read_committed")

    eventually(are_equal)


def write(kafka: str, topic: str, *values: bytes) -> None:
    produce(kafka, topic, ((b"k", value, 0) for value in values), message_max_bytes=2_000_000)


def test_a_record_larger_than_a_fetch_is_read(kafka, topic):
    write(kafka, topic, b"a", b"x" * 1_000_000, b"b")
    reader = LogRangeReader(Connection(kafka), fetch_bytes=1_000)
    sizes = [len(row[3]) for row in rows_of(reader, PlannedRange(topic, 0, 0, 3))]
    reader.close()
    assert sizes == [1, 1_000_000, 1]


def test_records_that_retention_removes_during_a_task_fail_it(kafka, topic, reader):
    write(kafka, topic, b"x" * 600_000)
    write(kafka, topic, *[b"x" * 600_000] * 20)
    rows = reader.read(PlannedRange(topic, 0, 0, 21), committed=True, with_headers=False)
    next(rows)
    remove_before(kafka, topic, 20)
    with pytest.raises(LogUnavailable, match="no longer has offset"):
        list(rows)


def test_a_range_that_retention_has_removed_fails_at_once(kafka, topic, reader):
    write(kafka, topic, b"a", b"b", b"c")
    remove_before(kafka, topic, 2)
    with pytest.raises(LogUnavailable, match="no longer has offset 0"):
        rows_of(reader, PlannedRange(topic, 0, 0, 3))
    assert [row[3] for row in rows_of(reader, PlannedRange(topic, 0, 2, 3))] == [b"c"]


def remove_before(kafka: str, topic: str, offset: int) -> None:
    remove_records(kafka, topic, {0: offset})
    eventually(lambda: ends_of(kafka, topic)[0] == offset)


def test_a_log_that_ends_before_the_range_fails_the_task_in_bounded_time(kafka, topic, reader):
    write(kafka, topic, b"a", b"b")
    with Stopwatch() as watch:
        with pytest.raises(LogUnavailable, match="ends at offset 2: nothing came from 2 on"):
            rows_of(reader, PlannedRange(topic, 0, 0, 3))
        with pytest.raises(LogUnavailable, match="or not yet"):
            rows_of(reader, PlannedRange(topic, 0, 7, 9))
    assert watch.seconds < 60


def test_a_leader_or_a_topic_that_the_lanes_were_not_compared_with_is_not_read(kafka, topic, reader):
    write(kafka, topic, b"a")
    (shape,) = JobKafka(Connection(kafka)).describe([topic]).values()
    assert rows_of(reader, PlannedRange(topic, 0, 0, 1, 0, shape.topic_id))
    with pytest.raises(TopicChanged, match="created again"):
        rows_of(reader, PlannedRange(topic, 0, 0, 1, 0, "AAAAAAAAAAAAAAAAAAAAAQ"))
    with pytest.raises(TopicChanged, match="new leader, of epoch 0 after -1"):
        rows_of(reader, PlannedRange(topic, 0, 0, 1, -1))
    with pytest.raises(LogUnavailable, match="before 5"):
        rows_of(reader, PlannedRange(topic, 0, 0, 1, 5))


def test_a_topic_that_is_missing_is_not_created(kafka, reader):
    with pytest.raises(LogUnavailable, match="UnknownTopicOrPartition"):
        rows_of(reader, PlannedRange("read-missing", 0, 0, 1))
    assert "read-missing" not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics


def test_a_range_that_was_left_in_the_middle_does_not_answer_for_the_next(kafka, topic, reader):
    write(kafka, topic, *[b"%d" % number * 600_000 for number in range(9)])
    rows = reader.read(PlannedRange(topic, 0, 0, 9), committed=True, with_headers=False)
    next(rows)
    rows.close()
    assert [row[0] for row in rows_of(reader, PlannedRange(topic, 0, 5, 7))] == [5, 6]
