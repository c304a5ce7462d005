"""A topic gets more partitions under readers: its state is built again beside the old one."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

import redis
from confluent_kafka import Producer
from tests.fire.figures import Expectation, none_failed
from tests.fire.outages import count_loads
from tests.fire.stage import GROWING_TOPIC, PARTITIONS
from tests.fire.trial import DURING, HEALS, open_trial
from tests.servers.own import eventually, grow_topic
from tests.support.jobs import State

if TYPE_CHECKING:
    from tests.fire.figures import Found
    from tests.fire.stage import FireStage

KEYS, VALUE_BYTES = 20_000, 170
READERS, READS_PER_S, MOST_S = 16, 100, 30


def key_of(number: int) -> bytes:
    return b"key-%06d" % number


def topic_grows(stage: FireStage) -> Found:
    """A topic of 20,000 keys grows from 6 to 12 partitions, while 100 reads/s look up one of its keys."""
    with open_trial(stage) as trial, contextlib.closing(State(stage.redis.addresses, GROWING_TOPIC)) as state:
        facts = trial.found.facts
        fill(stage.kafka.bootstrap)
        path = f"/topics/{GROWING_TOPIC}/keys/{key_of(KEYS - 1).decode()}"
        eventually(lambda: trial.server.ask("GET", path)[0] == 200)
        old, before_mib = state.layout, memory_mib(stage)
        assert old
        trial.phase(DURING)
        trial.start_load(connections=READERS, per_s=READS_PER_S, seconds=MOST_S, path=path)
        grown_s = time.monotonic()
        grow_topic(stage.kafka.bootstrap, GROWING_TOPIC, 2 * PARTITIONS)
        eventually(lambda: state.layout not in (None, old))
        switched_s, most_mib = time.monotonic(), memory_mib(stage)
        eventually(lambda: bool(state.record) and state.record.remove == ())
        facts["from growth until the new generation serves, s"] = round(switched_s - grown_s, 1)
        facts["from there until the old one is gone, s"] = round(time.monotonic() - switched_s, 1)
        facts["memory of the primaries, MiB"] = (before_mib, most_mib, memory_mib(stage))
        count_loads(trial)
        return trial.rest_and_finish()


def fill(bootstrap: str) -> None:
    """Write a record of each key."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 20})
    for number in range(KEYS):
        value = json.dumps({"number": number, "filler": "x" * VALUE_BYTES}).encode()
        producer.produce(GROWING_TOPIC, value, key_of(number))
        producer.poll(0)
    assert producer.flush(60) == 0


def memory_mib(stage: FireStage) -> float:
    used = 0
    for node in stage.redis.primaries():
        with redis.Redis(port=node.port) as client:
            used += client.info("memory")["used_memory"]
    return round(used / 2**20, 1)


TOPIC_GROWS = (
    none_failed("read", DURING),
    none_failed("write", DURING),
    Expectation(
        "reads of the topic that grows: nothing but 200",
        lambda found: set(found.load) == {"200"},
        lambda found: found.load,
    ),
    *HEALS,
)
