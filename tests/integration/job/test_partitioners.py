"""Routing against what really places keys: librdkafka on a real broker, and the slots of a real cluster."""

from __future__ import annotations

import random

import pytest
from redis import Redis
from tests.servers.own import create_topic, produce

from keylane import routing

PARTITION_COUNT = 9
SOURCE = random.Random(9)
KEYS = [SOURCE.randbytes(length) for length in [*range(1, 301), *[20] * 300]]


@pytest.fixture(scope="module")
def topic(kafka: str) -> str:
    create_topic(kafka, "partitioners", PARTITION_COUNT)
    return "partitioners"


def delivered(kafka: str, topic: str, partitioner: str, keys: list[bytes]) -> dict[bytes, int]:
    """Partition of each key, from the delivery reports of a producer with that partitioner."""
    written = produce(kafka, topic, ((key, b"") for key in keys), partitioner=partitioner)
    return {message.key() or b"": message.partition() for message in written}


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
    # The others put an empty key, as none, where they like.
    keys = KEYS if librdkafka_name.endswith("_random") else [*KEYS, b""]
    expected = {key: routing.partition_for(key, PARTITION_COUNT, partitioner) for key in keys}
    assert set(expected.values()) == set(range(PARTITION_COUNT))
    assert delivered(kafka, topic, librdkafka_name, keys) == expected


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
