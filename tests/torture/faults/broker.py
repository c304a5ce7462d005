"""Faults of Kafka: a broker that is killed or stopped, and transactions that nobody ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.torture.faults.world import produce_to_topics, stopped
from tests.torture.stack import wait_until

if TYPE_CHECKING:
    from tests.torture.faults.world import World
    from tests.torture.schedule import Event

    from keylane.model.kafka import TopicPartition as Source

_RECORDS = 20
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
    offsets: dict[Source, int] = {}
    producer = Producer(options)
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    produce_to_topics(
        world,
        producer,
        _RECORDS,
        f"hanging-{world.seed}",
        on_delivery=lambda _, sent: offsets.update({(sent.topic(), sent.partition()): sent.offset()}),
    )
    time.sleep(event.seconds * 4)
    if not expires and event.variant:
        producer.commit_transaction(_TIMEOUT_S)
    elif not expires:
        # Another producer with its id: the broker aborts what the first one left open.
        Producer(options).init_transactions(_TIMEOUT_S)
    # Until its markers are in every partition, their last stable offsets stay before its records.
    wait_until(lambda: _is_over(world, offsets), _TIMEOUT_S, "the transaction has not ended")


def _is_over(world: World, offsets: dict[Source, int]) -> bool:
    """Whether every partition's last stable offset is above what the transaction wrote."""
    admin = AdminClient({"bootstrap.servers": world.stack.kafka.bootstrap, "log_level": 2})
    asked = {TopicPartition(*source): OffsetSpec.latest() for source in offsets}
    futures = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=10)
    return all(
        future.result(15).offset > offsets[each.topic, each.partition] for each, future in futures.items()
    )
