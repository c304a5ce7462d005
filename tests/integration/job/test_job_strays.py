"""The job over records in other partitions than their keys', where Redis loses what it had acknowledged."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.servers.own import create_topic, eventually
from tests.support import lanes as t
from tests.support.jobs import JARS, RunningJob, start

from keylane import routing
from keylane.model.records import Layout
from keylane_spark.adapters.lane import LaneTarget

if TYPE_CHECKING:
    from pathlib import Path

    from keylane.model.records import Watermark

NUMBERS = itertools.count()
PARTITIONS = 3


def test_strays_that_a_failover_of_their_shard_took_back_are_read_again(kafka, redis_cluster, tmp_path):
    topic = f"job-strays-{next(NUMBERS)}"
    create_topic(kafka, topic, PARTITIONS)
    layout = Layout(topic, PARTITIONS)
    key = next(key for n in itertools.count() if routing.partition_for(key := b"%d" % n, PARTITIONS) == 1)
    home = LaneTarget.of(layout, 1, 0)
    producer = Producer({"bootstrap.servers": kafka})

    def put(value: bytes) -> None:
        producer.produce(topic, value, key, partition=2)
        assert producer.flush(20) == 0

    def value() -> bytes | None:
        records, _ = t.held(redis_cluster, home, [key])
        return records[key].value if key in records else None

    (tmp_path / "keylane.toml").write_text(f"[job]\nheartbeat_ms = 100\n[topics.{topic}]\n")
    environment = {
        "KEYLANE_KAFKA_BOOTSTRAP": kafka,
        "KEYLANE_REDIS_NODES": redis_cluster,
        "KEYLANE_JARS": str(JARS),
        "KEYLANE_CHECKPOINT": str(tmp_path / "checkpoint"),
    }
    names = [home.key_prefix + key, home.key_prefix[:-2] + b"s:1.0"]
    job = RunningJob(tmp_path, environment)
    try:
        with t.client(redis_cluster) as client:
            put(b"first")
            eventually(lambda: value() == b"first", 90)
            before = [client.dump(name) for name in names]
            put(b"second")
            eventually(lambda: value() == b"second")
            for name, data in zip(names, before, strict=True):
                client.restore(name, 0, data, replace=True)
            assert value() == b"first"
            client.set(home.key_prefix[:-2] + b"l:1.0", b"f" * 40)  # a promoted replica's history is another
        job.wait_for("has lost strays: partition 2 is read again from 1")
        eventually(lambda: value() == b"second", 60)
    finally:
        job.process.terminate()
        job.process.wait(60)


class MixedTopic:
    """A topic whose three partitions have a shard each, and its job. Keys of lane 1 may lie in another."""

    def __init__(self, kafka: str, nodes: str, folder: Path, fields: str = "") -> None:
        self.name = f"job-strays-{next(NUMBERS)}"
        create_topic(kafka, self.name, PARTITIONS)
        self._nodes = nodes
        self._time_ms = t.CLOCK.now_ms()
        self._producer = Producer({"bootstrap.servers": kafka})
        self._lanes = [
            LaneTarget.of(Layout(self.name, PARTITIONS), number, 0) for number in range(PARTITIONS)
        ]
        self.key = self.keys_of(1, 1)[0]
        job = "[job]\nheartbeat_ms = 100\nmax_batch_records = 2000\n"
        self.job = start(kafka, nodes, folder, f"{job}[topics.{self.name}]\n{fields}\n")

    def keys_of(self, partition: int, count: int) -> list[bytes]:
        keys = (b"%d" % number for number in itertools.count())
        own = (key for key in keys if routing.partition_for(key, PARTITIONS) == partition)
        return list(itertools.islice(own, count))

    def put(self, partition: int, *records: tuple[bytes, bytes | None]) -> None:
        self._time_ms += 1
        for key, value in records:
            self._producer.produce(self.name, value, key, partition=partition, timestamp=self._time_ms)
        assert self._producer.flush(60) == 0

    def held(self, partition: int = 1) -> tuple[bytes | None, Watermark | None]:
        """The key's value, and the watermark of a lane; of lane 1 by one command."""
        records, watermark = t.held(self._nodes, self._lanes[partition], [self.key])
        return (records[self.key].value if self.key in records else None), watermark

    def is_complete(self, partition: int, end: int) -> bool:
        _, watermark = self.held(partition)
        return bool(watermark and watermark.next_offset == end and watermark.complete_as_of_ms)

    def leaves_nothing(self) -> bool:
        with t.client(self._nodes) as client:
            return not client.exists(self._lanes[1].key_prefix + self.key)

    def empty(self, *partitions: int) -> None:
        """The shards of these partitions come back empty."""
        with t.client(self._nodes) as client:
            for partition in partitions:
                node = client.get_node_from_key(self._lanes[partition].watermark_key)
                client.flushall(target_nodes=[node])


@pytest.fixture(name="mixed")
def _mixed(kafka, redis_cluster, tmp_path):
    made: list[MixedTopic] = []

    def make(fields: str = "") -> MixedTopic:
        made.append(MixedTopic(kafka, redis_cluster, tmp_path, fields))
        return made[-1]

    yield make
    for topic in made:
        topic.job.end()


def test_a_partition_whose_shard_was_emptied_brings_back_no_deleted_key(mixed):
    topic = mixed('tombstone_marker = "1s"')
    topic.put(0, (topic.key, b"x"))
    eventually(lambda: topic.held()[0] == b"x", 90)
    topic.put(1, (topic.key, None))
    eventually(lambda: topic.held()[0] is None and topic.leaves_nothing(), 60)
    topic.empty(0)
    eventually(lambda: topic.is_complete(0, 1), 60)
    assert topic.leaves_nothing()


def test_a_lane_that_was_emptied_is_complete_only_once_its_strays_are_there_again(mixed):
    """Its own record is read again at once. The stray, which is newer, is the last of a long partition."""
    topic = mixed()
    topic.put(1, (topic.key, b"old"))
    topic.put(0, *((key, b"x") for key in topic.keys_of(0, 30_000)))
    topic.put(0, (topic.key, b"new"))
    eventually(lambda: topic.held()[0] == b"new" and topic.is_complete(1, 1), 120)
    for emptied in ((1,), (0, 1)):
        topic.empty(*emptied)
        assert topic.held() == (None, None)

        def is_back() -> bool:
            value, watermark = topic.held()
            is_complete = watermark is not None and watermark.complete_as_of_ms > 0
            assert value == b"new" or not is_complete, f"{value!r} in a lane that is complete: {watermark}"
            return is_complete

        eventually(is_back, 120)
