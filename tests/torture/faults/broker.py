"""Faults of Kafka: a broker that is killed or stopped, and transactions that nobody ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from tests.torture.faults.world import stopped

from keylane import routing

if TYPE_CHECKING:
    from tests.torture.faults.world import World
    from tests.torture.schedule import Event

_RECORDS = 20
_KEYS = 8
_EXPIRES_AFTER_MS = 1_000
_TIMEOUT_S = 60


def kill_broker(world: World, _: Event) -> None:
    world.stack.kafka.kill()
    world.stack.kafka.start()
    world.stack.kafka.wait_ready()


def pause_broker(world: World, event: Event) -> None:
    process = world.stack.kafka.program.process
    assert process
    with stopped([process]):
        time.sleep(event.seconds * 4)


def hang_transaction(world: World, event: Event) -> None:
    """Write records in a transaction that stays open beside the plain records behind them.

    In the end it is committed, aborted, or left to the broker, which aborts it.
    """
    expires = event.choice == 0
    options = {
        "bootstrap.servers": world.stack.kafka.bootstrap,
        "transactional.id": f"hanging-{world.seed}",
        "transaction.timeout.ms": _EXPIRES_AFTER_MS if expires else _TIMEOUT_S * 1000,
        "log_level": 2,
    }
    producer = Producer(options)
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    for topic, shape in world.stack.shapes.items():
        for number in range(_RECORDS):
            key = b"%d/%03d" % (world.seed, number % _KEYS)
            producer.produce(
                topic,
                key=key,
                value=b"hanging-%d-%d" % (world.seed, number),
                partition=routing.partition_for(key, shape.partitions, "murmur2"),
            )
    assert not producer.flush(_TIMEOUT_S), "the records did not reach the broker"
    time.sleep(event.seconds * 4)
    if expires:
        # The broker aborts it; until it has, the last stable offset stays before its records.
        return
    if event.variant:
        producer.commit_transaction(_TIMEOUT_S)
    else:
        # Another producer with its id: the broker aborts what the first one left open.
        Producer(options).init_transactions(_TIMEOUT_S)
