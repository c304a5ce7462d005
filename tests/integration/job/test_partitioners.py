"""Routing against what really places keys: librdkafka on a real broker, and the slots of a real cluster."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from redis import Redis

from keylane import routing

PARTITION_COUNT = 9
SOURCE = random.Random(9)
KEYS = [SOURCE.randbytes(length) for length in [*range(1, 301), *[20] * 300]]


@pytest.fixture(scope="module")
def topic(kafka: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic("partitioners", PARTITION_COUNT, 1)])["partitioners"].result(30)
    return "partitioners"


def delivered(kafka: str, topic: str, partitioner: str, keys: list[bytes]) -> dict[bytes, int]:
    """Partition of each key, from the delivery reports of a producer with that partitioner."""
    partitions = {}
    faults = []

    def report(error, message):
        if error:
            faults.append(str(error))
        partitions[message.key() or b""] = message.partition()

    producer = Producer({"bootstrap.servers": kafka, "partitioner": partitioner, "linger.ms": 5})
    for key in keys:
        producer.produce(topic, key=key, value=b"", on_delivery=report)
    assert producer.flush(60) == 0
    assert not faults
    return partitions


@pytest.mark.parametrize(
    ("librdkafka_name", "partitioner"),
    [
        ("murmur2_random", "murmur2"),
        ("murmur2", "murmur2"),
        ("consistent_random", "crc32"),
        ("consistent", "crc32"),
        ("fnv1a_random", "fnv1a"),
        ("fnv1a", "fnv1a"),
    ],
)
def test_librdkafka_puts_keys_where_routing_says(kafka, topic, librdkafka_name, partitioner):
    expected = {key: routing.partition_for(key, PARTITION_COUNT, partitioner) for key in KEYS}
    assert set(expected.values()) == set(range(PARTITION_COUNT))
    assert delivered(kafka, topic, librdkafka_name, KEYS) == expected


@pytest.mark.parametrize(
    ("librdkafka_name", "partitioner"), [("murmur2", "murmur2"), ("consistent", "crc32"), ("fnv1a", "fnv1a")]
)
def test_an_empty_key_goes_where_routing_says(kafka, topic, librdkafka_name, partitioner):
    assert delivered(kafka, topic, librdkafka_name, [b""]) == {
        b"": routing.partition_for(b"", PARTITION_COUNT, partitioner)
    }


def test_redis_puts_tagged_keys_into_the_slots_of_their_tags(redis_cluster):
    host, _, port = redis_cluster.split(",")[0].rpartition(":")
    slots = range(0, routing.SLOTS, 7)
    with Redis(host, int(port)) as client, client.pipeline(transaction=False) as pipe:
        for slot in slots:
            pipe.execute_command("CLUSTER KEYSLOT", b"{%b}:flights:1:v:{}\x00" % routing.hash_tag(slot))
        assert pipe.execute() == list(slots)


def test_redis_reads_hash_tags_as_key_slot_does(redis_cluster):
    host, _, port = redis_cluster.split(",")[0].rpartition(":")
    keys = [b"plain", b"{}a", b"{}{a}", b"a{b", b"a}b{c}", b"{{a}}", b"{keylane}:layout:flights", *KEYS[:50]]
    with Redis(host, int(port)) as client:
        found = [client.execute_command("CLUSTER KEYSLOT", key) for key in keys]
    assert found == [routing.key_slot(key) for key in keys]
