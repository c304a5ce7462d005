"""Removing a generation's keys from a real cluster: all of them, the watermarks last, and nothing else."""

from __future__ import annotations

import itertools

from tests.support import lanes as t

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.model.records import Layout, Watermark
from keylane.state import codec, redis_keys
from keylane_spark.adapters.sweep import remove_generation

NUMBERS = itertools.count()


def keys_of(layout: Layout, record_keys: list[bytes]) -> dict[bytes, bytes]:
    """A value, a history and an index entry for each record key, and the lanes' watermarks."""
    entries = {}
    for partition in range(layout.partition_count):
        tag = routing.hash_tag(routing.slot_for(partition, 0, layout.partition_count, 1))
        watermark_key = redis_keys.watermark_key(tag, layout.topic, layout.generation, partition, 0)
        entries[watermark_key] = codec.encode_watermark(Watermark(1, 1))
        for key in record_keys:
            entries[redis_keys.value_key(tag, layout.topic, layout.generation, key)] = b"v"
            entries[redis_keys.history_key(tag, layout.topic, layout.generation, key)] = b"h"
        entries[redis_keys.index_key(tag, layout.topic, layout.generation, partition, 0)] = b"i"
    return entries


def test_all_keys_of_a_generation_go_and_those_that_only_look_like_them_stay(redis_cluster):
    topic = f"sweep.{next(NUMBERS)}"
    old = keys_of(Layout(topic, 9, generation=2), [b"%d" % number for number in range(20)])
    lookalike = b"x}:%b:2:v:1" % topic.encode()
    others = [
        keys_of(Layout(topic, 3, generation=20), [b"a"]),
        keys_of(Layout(topic, 3, generation=3), [b"a"]),
        keys_of(Layout(f"{topic}.2", 3, generation=2), [b"a"]),
        keys_of(Layout(topic.replace(".", "-"), 3, generation=2), [b"a"]),
        keys_of(Layout(f"other-{topic}", 3), [lookalike]),
    ]
    stay = {key: value for entries in others for key, value in entries.items()}
    cluster = Cluster(t.settings(redis_cluster))
    with t.client(redis_cluster) as client:
        for key, value in (old | stay).items():
            client.set(key, value)
        left = set(old)
        for looked, removed in remove_generation(cluster, t.CLOCK, topic, 2):
            before, left = left, {key for key in left if client.exists(key)} if removed else left
            assert len(before) - len(left) == removed <= looked
            records = [key for key in left if b":w:" not in key]
            watermarks = [key for key in old if b":w:" in key]
            assert not records or len(left) == len(records) + len(watermarks)
        assert left == set()
        assert all(client.exists(key) for key in stay)
    cluster.close()


def test_an_interrupted_removal_is_continued(redis_cluster):
    topic = f"sweep.{next(NUMBERS)}"
    old = keys_of(Layout(topic, 3), [b"%d" % number for number in range(600)])
    cluster = Cluster(t.settings(redis_cluster))
    with t.client(redis_cluster) as client:
        for key, value in old.items():
            client.set(key, value)
        next(removed for _, removed in remove_generation(cluster, t.CLOCK, topic, 1) if removed)
        assert sum(removed for _, removed in remove_generation(cluster, t.CLOCK, topic, 1)) < len(old)
        assert not any(client.exists(key) for key in old)
    cluster.close()
