"""The time from a record's acknowledgement by Kafka until a read returns it: alone, and at 1,000 records/s.

Alternating with it, a plain Kafka consumer waits for the same kind of record, which is Kafka's share of the
time. The reads are those of the query function's use case and wait for the written position. The same is
measured of a topic whose records are found by two fields, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from harness import ResultRow, add_settings, configured, latency, parse, report
from stage import whole_stack

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.ports import Clock
from keylane.query.latest import Wait, read_latest
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane_local.stack.stack import Stack

TOPIC = "freshness"
PARTITIONS = 9
FOUND = "freshness-found"
CONFIG = (
    f"[topics.{TOPIC}]\npartitions = {PARTITIONS}\n[topics.{FOUND}]\npartitions = {PARTITIONS}\n"
    'fields = { status = "text", amount = "number" }\n'
)
ALONE = "one record at a time"
BUSY = "among 1,000 records/s"
OF_FOUND = "a topic with two fields"
ROUNDS = 4
CONSUMER = "a plain consumer, one record at a time"
WARM_UP = 60
LOAD = """
import sys, time
from confluent_kafka import Producer
bootstrap, topic, rate = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 5})
began, sent = time.monotonic(), 0
while True:
    while sent < (time.monotonic() - began) * int(rate):
        value = b'{"status":"%d","amount":%d,"text":"%b"}' % (sent % 7, sent, b"x" * 130)
        producer.produce(topic, key=b"load-%d" % (sent % 5000), value=value)
        sent += 1
    producer.poll(0.005)
"""


class KafkaWriter:
    """Writes one record at a time; returns its position and the time of its acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 0}
        )

    def write(self, topic: str, key: bytes, value: bytes) -> tuple[float, int]:
        acknowledged = []

        def report_to(error: object, message: object) -> None:
            acknowledged.append((time.perf_counter(), error, message.offset()))

        self._producer.produce(topic, key=key, value=value, on_delivery=report_to)
        self._producer.flush(10)
        ((at, error, offset),) = acknowledged
        if error:
            raise SystemExit(f"Kafka refused a record: {error}")
        return at, offset


class PositionReader:
    """Reads in the same way as the query function."""

    def __init__(self, stack: Stack, topic: str = TOPIC) -> None:
        clock = Clock()
        self.topic = topic
        self._state = RedisState(Cluster(redis_settings(stack.environment())))
        self._store = Store(self._state, Layouts(self._state, clock, 300), clock)

    def wait_for(self, key: bytes, offset: int, value: bytes) -> float:
        answer = read_latest(self._store, self.topic, key, ReadTerms(1000), wait=Wait(offset, 30_000))
        at = time.perf_counter()
        if answer.record is None or answer.record.value != value:
            raise SystemExit(f"the read of {key!r} has not what was written")
        return at


@contextlib.contextmanager
def writing(bootstrap: str, topic: str, records_per_s: int) -> Iterator[None]:
    """Write other records meanwhile, from a process of its own."""
    command = [sys.executable, "-c", LOAD, bootstrap, topic, str(records_per_s)]
    load = subprocess.Popen(command)
    try:
        yield
    finally:
        load.kill()
        load.wait()


def through_keylane(writer: KafkaWriter, reader: PositionReader, samples: int, name: str) -> list[float]:
    taken = []
    for number in range(samples):
        key, value = b"%b-%d" % (name.encode(), number), b'{"status":"new","amount":%d}' % number
        at, offset = writer.write(reader.topic, key, value)
        taken.append((reader.wait_for(key, offset, value) - at) * 1000)
        time.sleep(0.02 + 0.001 * (number * 37 % 83))
    return taken


def in_turns(
    writer: KafkaWriter, readers: Sequence[PositionReader], samples: int, name: str
) -> list[list[float]]:
    """The times of each reader, some of each in turn."""
    taken: list[list[float]] = [[] for _ in readers]
    for turn in range(ROUNDS):
        for own, reader in zip(taken, readers, strict=True):
            own.extend(through_keylane(writer, reader, samples // ROUNDS, f"{name}-{turn}"))
    return taken


def through_consumer(stack: Stack, writer: KafkaWriter, samples: int) -> list[float]:
    consumer = Consumer(
        {"bootstrap.servers": stack.kafka_bootstrap, "group.id": "bench", "fetch.wait.max.ms": 5}
    )
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    for place in places:
        _, place.offset = consumer.get_watermark_offsets(place, timeout=10)
    consumer.assign(places)
    taken = []
    for number in range(samples):
        key = b"plain-%d" % number
        at, _ = writer.write(TOPIC, key, b"")
        while True:
            message = consumer.poll(10)
            if message is None or message.error():
                raise SystemExit("the consumer got nothing")
            if message.key() == key:
                break
        taken.append((time.perf_counter() - at) * 1000)
        time.sleep(0.02 + 0.001 * (number * 37 % 83))
    consumer.close()
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--samples", type=int, default=400)
    add_settings(options)
    chosen = parse(options, arguments)
    with whole_stack(configured(CONFIG, chosen)) as stack:
        writer = KafkaWriter(stack.kafka_bootstrap)
        readers = [PositionReader(stack, topic) for topic in (TOPIC, FOUND)]
        for reader in readers:
            through_keylane(writer, reader, WARM_UP, "warm-up")
        alone = in_turns(writer, readers, chosen.samples, "alone")
        plain = through_consumer(stack, writer, chosen.samples)
        busy = []
        for reader in readers:
            with writing(stack.kafka_bootstrap, reader.topic, 1000):
                through_keylane(writer, reader, WARM_UP, "warm-up-busy")
                busy.append(through_keylane(writer, reader, chosen.samples, "busy"))
    report(
        "freshness",
        "ms",
        [
            ResultRow(ALONE, latency(alone[0])),
            ResultRow(f"{ALONE}, {OF_FOUND}", latency(alone[1])),
            ResultRow(BUSY, latency(busy[0])),
            ResultRow(f"{BUSY}, {OF_FOUND}", latency(busy[1])),
            ResultRow(CONSUMER, latency(plain)),
        ],
        reference=CONSUMER,
        settings=vars(chosen),
        aim="p50 40 and p99 80 ms alone, 55 and 110 ms under load, on 2 cores; 10 more with fields",
    )


if __name__ == "__main__":
    main()
