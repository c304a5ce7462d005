"""The job over records in other partitions than their keys', where Redis loses what it had acknowledged."""

from __future__ import annotations

import itertools

from confluent_kafka import Producer
from tests.integration.job.test_job import RunningJob
from tests.servers.own import create_topic, eventually
from tests.support import lanes as t

from keylane import routing
from keylane.model.records import Layout
from keylane_local.tools import tools_dir
from keylane_spark.adapters.lane import LaneTarget

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
        "KEYLANE_JARS": str(tools_dir() / "jars"),
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
