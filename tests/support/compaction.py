"""Topics that the broker has really compacted."""

from __future__ import annotations

import itertools

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.servers.own import eventually

from keylane import routing

HOT = b"hot"


def compact(kafka: str, topic: str, partition_count: int) -> None:
    """Write the key "hot" many times, and wait until the broker has left out the most of it.

    Whatever else its partition holds is compacted too. The key's last value is "cold".
    """
    admin = AdminClient({"bootstrap.servers": kafka})
    _configure(admin, ConfigResource.Type.BROKER, "1", {"log.cleaner.backoff.ms": "200"})
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    _configure(admin, ConfigResource.Type.TOPIC, topic, settings)
    partition = routing.partition_for(HOT, partition_count)
    producer = Producer({"bootstrap.servers": kafka})
    numbers = itertools.count()

    def write(value: bytes) -> None:
        producer.produce(topic, value, HOT, partition)
        assert producer.flush(60) == 0

    def is_compacted() -> bool:
        # Each write ends the segment before it: the one that is written to is never compacted.
        write(b"%d" % next(numbers))
        return keys_of(kafka, topic, partition).count(HOT) < next(numbers) / 4

    eventually(is_compacted)
    write(b"cold")


def keep_tombstones(kafka: str, topic: str) -> None:
    """From now on compaction leaves tombstones for a day."""
    admin = AdminClient({"bootstrap.servers": kafka})
    _configure(admin, ConfigResource.Type.TOPIC, topic, {"delete.retention.ms": "86400000"})


def _configure(admin: AdminClient, kind: ConfigResource.Type, name: str, settings: dict[str, str]) -> None:
    entries = [
        ConfigEntry(field, value, incremental_operation=AlterConfigOpType.SET)
        for field, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def keys_of(kafka: str, topic: str, partition: int) -> list[bytes]:
    """The keys of all records that are still there."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "tests", "enable.auto.commit": False})
    begin = TopicPartition(topic, partition, 0)
    end = consumer.get_watermark_offsets(begin, timeout=10)[1]
    consumer.assign([begin])
    found = []
    while (message := consumer.poll(10)) is not None:
        assert not message.error()
        found.append(message.key())
        if message.offset() + 1 >= end:
            break
    consumer.close()
    return found
