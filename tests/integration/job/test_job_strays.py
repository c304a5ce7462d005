"""The job over records in other partitions than their keys', where Redis loses what it had acknowledged."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.servers.own import create_topic, eventually, remove_records
from tests.support import jobs
from tests.support import lanes as t

from keylane import routing
from keylane.model.records import Layout
from keylane_spark.lanes.lane import LaneTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.jobs import RunningJob

    from keylane.model.records import Watermark

PARTITIONS = 3
TABLES = {"failed-over": "", "compacted": "", "removed": "", "deleted": 'tombstone_marker = "1s"', "long": ""}
"""Of the topics of one job, by what happens to their records: each test has one of them."""


class MixedTopic:
    """A topic whose three partitions have a shard each, and its job. Keys of lane 1 may lie in another."""

    def __init__(self, kafka: str, nodes: str, kind: str) -> None:
        self.name = f"job-strays-{kind}"
        create_topic(kafka, self.name, PARTITIONS)
        self._nodes = nodes
        self._time_ms = t.CLOCK.now_ms()
        self._producer = Producer({"bootstrap.servers": kafka})
        self.lanes = [LaneTarget.of(Layout(self.name, PARTITIONS), number, 0) for number in range(PARTITIONS)]
        self.key = self.keys_of(1, 1)[0]
        self.job: RunningJob

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
        records, watermark = t.held(self._nodes, self.lanes[partition], [self.key])
        return (records[self.key].value if self.key in records else None), watermark

    def is_complete(self, partition: int, end: int) -> bool:
        _, watermark = self.held(partition)
        return bool(watermark and watermark.next_offset == end and watermark.complete_as_of_ms)

    def leaves_nothing(self) -> bool:
        with t.client(self._nodes) as client:
            return not client.exists(self.lanes[1].key_prefix + self.key)

    def empty(self, *partitions: int) -> None:
        """The shards of these partitions come back empty."""
        with t.client(self._nodes) as client:
            for partition in partitions:
                node = client.get_node_from_key(self.lanes[partition].watermark_key)
                client.flushall(target_nodes=[node])


@pytest.fixture(scope="module")
def topics(kafka, redis_cluster, tmp_path_factory) -> Iterator[dict[str, MixedTopic]]:
    made = {kind: MixedTopic(kafka, redis_cluster, kind) for kind in TABLES}
    config = "[job]\nheartbeat_ms = 100\nmax_batch_records = 500\n"
    config += "".join(f"[topics.{made[kind].name}]\n{table}\n" for kind, table in TABLES.items())
    with jobs.running(kafka, redis_cluster, tmp_path_factory.mktemp("strays"), config) as job:
        for each in made.values():
            each.job = job
        yield made


def test_strays_that_a_failover_of_their_shard_took_back_are_read_again(topics, redis_cluster):
    topic = topics["failed-over"]
    lane = topic.lanes[1]
    names = [lane.key_prefix + topic.key, lane.key_prefix[:-2] + b"s:1.0"]
    with t.client(redis_cluster) as client:
        topic.put(2, (topic.key, b"first"))
        eventually(lambda: topic.held()[0] == b"first")
        before = [client.dump(name) for name in names]
        topic.put(2, (topic.key, b"second"))
        eventually(lambda: topic.held()[0] == b"second")
        for name, data in zip(names, before, strict=True):
            client.restore(name, 0, data, replace=True)
        assert topic.held()[0] == b"first"
    t.fail_over(redis_cluster, lane)
    topic.job.wait_for(f"lane {lane} has lost strays: partition 2 is read again from 1")
    eventually(lambda: topic.held()[0] == b"second")


@pytest.mark.parametrize("kind", ["compacted", "removed"])
def test_a_lane_has_lost_no_strays_any_more_once_what_is_left_of_them_was_read_again(
    topics, kafka, redis_cluster, kind
):
    """The last of them was a deletion, say, which the log has no more; else readers would wait for it."""
    topic = topics[kind]
    lane, source = topic.lanes[1], topic.lanes[2]
    topic.put(2, (topic.key, b"a stray"), (topic.keys_of(2, 1)[0], b"its own"))
    eventually(lambda: topic.held()[0] == b"a stray" and topic.is_complete(2, 2))
    with t.client(redis_cluster) as client:
        taken = lane.key_prefix[:-2] + b"s:1.0"
        assert client.hgetall(taken) == {b"2": b"1"}
        client.hset(source.key_prefix[:-2] + b"o:2.0", "1.0", 2)
        if kind == "removed":
            remove_records(kafka, topic.name, {2: 2})
        t.fail_over(redis_cluster, lane)
        topic.job.wait_for(f"lane {lane} has lost strays: partition 2 is read again from 1")
        eventually(lambda: client.hgetall(taken) == {b"2": b"2"})


def test_a_partition_whose_shard_was_emptied_brings_back_no_deleted_key(topics):
    topic = topics["deleted"]
    topic.put(0, (topic.key, b"x"))
    eventually(lambda: topic.held()[0] == b"x")
    topic.put(1, (topic.key, None))
    eventually(lambda: topic.held()[0] is None and topic.leaves_nothing())
    topic.empty(0)
    eventually(lambda: topic.is_complete(0, 1))
    assert topic.leaves_nothing()


def test_a_lane_that_was_emptied_is_complete_only_once_its_strays_are_there_again(topics):
    """Its own record is read again at once. The stray, which is newer, is the last of a long partition."""
    topic = topics["long"]
    topic.put(1, (topic.key, b"old"))
    topic.put(0, *((key, b"x") for key in topic.keys_of(0, 7_500)))
    topic.put(0, (topic.key, b"new"))
    eventually(lambda: topic.held()[0] == b"new" and topic.is_complete(1, 1))
    for emptied in ((1,), (0, 1)):
        topic.empty(*emptied)
        assert topic.held() == (None, None)

        def is_back() -> bool:
            value, watermark = topic.held()
            is_complete = watermark is not None and watermark.complete_as_of_ms > 0
            assert value == b"new" or not is_complete, f"{value!r} in a lane that is complete: {watermark}"
            return is_complete

        eventually(is_back)
