"""What tasks write that read their ranges from a real broker themselves, without Spark."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark import cloudpickle
from tests.servers.own import create_topic
from tests.support import lanes as t

from keylane import routing
from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane.model.records import Layout, Options
from keylane_spark.lanes.function_library import DEFAULTS
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.log.log_reader import LeaderAway, LogRangeReader
from keylane_spark.stream import log_ranges
from keylane_spark.stream.driver_share import PlannedBatch
from keylane_spark.stream.log_ranges import DirectReader, RangeWriter
from keylane_spark.stream.openings import WriterSpec

NUMBERS = itertools.count()
PARTITIONS = 3


class SparkDouble:
    """A session that runs a task for each number, one after the other; `lost` of them end without a row."""

    sparkContext = SimpleNamespace(master="local[2]")  # noqa: N815 (Spark's name)

    def __init__(self, lost: int | None = None) -> None:
        self._lost = lost

    def range(self, start: int, end: int, step: int, tasks: int) -> SparkDouble:
        assert (start, step, end) == (0, 1, tasks)
        self._numbers = range(end)
        return self

    def mapInArrow(self, write: RangeWriter, _: str) -> SparkDouble:  # noqa: N802 (Spark's name)
        write = cloudpickle.loads(cloudpickle.dumps(write))
        self._rows = []
        for number in self._numbers:
            ids = pa.RecordBatch.from_pydict({"id": pa.array([number], pa.int64())})
            given = iter(() if number == self._lost else (ids,))
            self._rows += [row for batch in write(given) for row in batch.to_pylist()]
        return self

    def collect(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(**row) for row in self._rows]


@dataclass
class Topic:
    """A topic with opened lanes; the last partition has nothing but an aborted transaction."""

    kafka: str
    nodes: str
    layout: Layout
    sent: list[tuple[int, bytes, bytes | None]]
    ends: dict[int, int]

    def write(self, spark: SparkDouble, ends: dict[int, int]):
        name = self.layout.topic
        spec = WriterSpec(t.settings(self.nodes), {name: self.layout}, 1, DEFAULTS)
        ranges = {(name, partition): OffsetRange(0, end, 1, end) for partition, end in ends.items()}
        reader = DirectReader(spec, Connection(self.kafka), {}, {}, committed=True, headers_here=False)
        return reader.write_in_tasks(PlannedBatch(SimpleNamespace(sparkSession=spark), ranges), {})

    def watermark(self, partition: int) -> tuple[int, int]:
        _, found = t.held(self.nodes, LaneTarget.of(self.layout, partition, 0), [])
        assert found
        return found.next_offset, found.complete_as_of_ms


@pytest.fixture
def topic(kafka, redis_cluster) -> Topic:
    layout = Layout(f"range-{next(NUMBERS)}", PARTITIONS, options=Options(headers=True))
    create_topic(kafka, layout.topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka, "compression.type": "lz4"})
    sent = []
    for number in range(400):
        key, value = b"key-%d" % (number % 70), None if number % 9 == 0 else b"%d" % number
        partition = routing.partition_for(key, PARTITIONS)
        if partition == PARTITIONS - 1:
            continue
        producer.produce(layout.topic, value, key, partition, headers=[("h", b"1")])
        sent.append((partition, key, value))
    producer.flush(60)
    aborting = Producer({"bootstrap.servers": kafka, "transactional.id": layout.topic})
    aborting.init_transactions(30)
    aborting.begin_transaction()
    aborting.produce(layout.topic, b"v", b"k", PARTITIONS - 1)
    aborting.flush(60)
    aborting.abort_transaction(30)
    lanes = [lane for partition in range(PARTITIONS) for lane in LaneTarget.of_partition(layout, partition)]
    t.writer(redis_cluster, 1).open((lane, 0) for lane in lanes)
    ends = {partition: sum(each[0] == partition for each in sent) for partition in range(PARTITIONS - 1)}
    return Topic(kafka, redis_cluster, layout, sent, ends | {PARTITIONS - 1: 2})


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Readers of each test are new, and give up early."""
    readers: list[LogRangeReader] = []

    def reader(connection: Connection) -> LogRangeReader:
        readers.append(LogRangeReader(connection, retry_budget_s=1, timeout_s=30))
        return readers[-1]

    monkeypatch.setattr(log_ranges, "_reader", reader)
    yield
    for each in readers:
        each.close()


def test_lanes_hold_the_fold_of_the_ranges_and_tasks_claim_all_of_them(topic):
    rows = topic.write(SparkDouble(), topic.ends)
    assert {row.partition: row.reached for row in rows} == topic.ends
    assert sum(row.records for row in rows) == len(topic.sent)
    for partition, end in topic.ends.items():
        expected = {key: value for source, key, value in topic.sent if source == partition}
        found, _ = t.held(topic.nodes, LaneTarget.of(topic.layout, partition, 0), list(expected))
        values = {key: record.value for key, record in found.items() if record.value is not None}
        assert {record.headers for record in found.values()} <= {(("h", b"1"),)}
        assert values == {key: value for key, value in expected.items() if value is not None}
        assert topic.watermark(partition) == (end, 0)


def test_a_batch_of_which_a_task_ended_early_is_not_taken_for_written(topic):
    with pytest.raises(LogUnavailable, match="ended before it had read the batch's range"):
        topic.write(SparkDouble(lost=1), topic.ends)


def test_a_range_whose_leader_goes_away_is_left_where_it_was_and_the_others_are_claimed(topic, monkeypatch):
    """Once before its first record, and once behind some of them."""

    class WithoutLeaders(LogRangeReader):
        def read(self, wanted, **arguments):
            if wanted.partition == 0:
                raise LeaderAway("its broker is gone", 2)
            some = wanted if wanted.partition != 1 else replace(wanted, end=20)
            yield from super().read(some, **arguments)
            if some is not wanted:
                raise LeaderAway("its broker is gone", 2)

        def fetch_begins(self, *_, **__):
            return {}

    readers = []

    def reader(connection: Connection) -> LogRangeReader:
        readers.append(WithoutLeaders(connection, timeout_s=30))
        return readers[-1]

    monkeypatch.setattr(log_ranges, "_reader", reader)
    rows = topic.write(SparkDouble(), topic.ends)
    for each in readers:
        each.close()
    assert {row.partition: row.reached for row in rows} == topic.ends | {0: 0, 1: 20}
    assert {row.partition: row.left for row in rows} == {
        0: "its broker is gone",
        1: "its broker is gone",
        2: "",
    }
    assert [topic.watermark(each)[0] for each in range(3)] == [0, 20, topic.ends[2]]


def test_a_log_that_ends_before_its_range_is_claimed_by_no_task(topic):
    with pytest.raises(LogUnavailable, match="ends at offset"):
        topic.write(SparkDouble(), {0: topic.ends[0] + 5})
    assert topic.watermark(0)[0] <= topic.ends[0]


def test_an_open_chunk_of_a_failed_task_is_not_sent(topic):
    """All of its rows are in one chunk, which waits for the end of the range."""
    with pytest.raises(LogUnavailable):
        topic.write(SparkDouble(), {1: topic.ends[1] + 1})
    assert topic.watermark(1) == (0, 0)
