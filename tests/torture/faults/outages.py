"""Faults of brokers, connections and what writes: one that others still reach is gone, or its answers are."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.torture.brokers import new_password
from tests.torture.faults.world import produce_to_topics, stopped
from tests.torture.hosts import TIMEOUT_MS
from tests.torture.links import Mode
from tests.torture.stack import wait_until

from keylane.adapters.redis.replicas import UNHEALTHY_FOR_S

if TYPE_CHECKING:
    from tests.torture.faults.world import World
    from tests.torture.hosts import FunctionHost
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


_BROKEN = (Mode.CUT, Mode.HOLD, Mode.HOLD_REPLIES, Mode.HOLD)
_BROKEN_KAFKA = ((Mode.CUT, 0.0), (Mode.HOLD, 0.0), (Mode.HOLD_REPLIES, 0.0), (Mode.SLOW, 0.1))
_SLOW_S = (0.02, 0.08, 0.3)


def part_job(world: World, event: Event) -> None:
    """Part the job from a primary. Reads go on: they need no excuse."""
    node = world.stack.shard(event.shard)[0]
    with world.stack.job_links.set(node.port, _BROKEN[event.choice]):
        time.sleep(event.seconds * 5)


def part_kafka(world: World, event: Event) -> None:
    """Part the job from a broker. Ages grow: nothing else that a reader sees may change."""
    with world.stack.kafka.link_to(event.shard).set(*_BROKEN_KAFKA[event.choice]):
        time.sleep(event.seconds * 5)


def part_readers(world: World, event: Event) -> None:
    """Part the readers from a primary, whose replica then answers them, or from a replica."""
    primary, replica = world.stack.shard(event.shard)
    mode = _BROKEN[event.choice]
    if event.variant:
        with world.stack.reader_links.set(replica.port, mode):
            time.sleep(event.seconds * 5)
        return
    with world.trouble(event.kind, event.shard):
        with world.stack.reader_links.set(primary.port, mode):
            time.sleep(event.seconds * 5)
        time.sleep(UNHEALTHY_FOR_S)


def slow_links(world: World, event: Event) -> None:
    """Slow down everyone's way to a primary, by a delay or by passing a few bytes at a time."""
    primary = world.stack.shard(event.shard)[0]
    how = (Mode.DRIP, 0.0) if event.choice == len(_SLOW_S) else (Mode.SLOW, _SLOW_S[event.choice])
    with world.trouble(event.kind, event.shard), contextlib.ExitStack() as links:
        for each in (world.stack.job_links, world.stack.reader_links):
            links.enter_context(each.set(primary.port, *how))
        time.sleep(event.seconds * 5)
        links.close()
        time.sleep(UNHEALTHY_FOR_S)


_BUSY_WITHIN_S = 60
_CUT_S = 0.1


def lose_acks(world: World, event: Event) -> None:
    """Keep the brokers' answers from functions and server, then cut them off; at times kill a broker."""
    listeners = world.stack.kafka.writers_listeners()
    with contextlib.ExitStack() as held:
        for listener in listeners:
            held.enter_context(listener.set(Mode.HOLD_REPLIES))
        time.sleep(event.seconds * 5)
        for listener in listeners:
            held.enter_context(listener.set(Mode.CUT))
        if event.variant:
            kill_broker(world, event)
        time.sleep(_CUT_S)


def rotate_password(world: World, event: Event) -> None:
    """Change the writers' password, in the brokers or in the secret store first, and end all connections.

    At times the brokers' last answers are kept from the writers: what those say was written then.
    """
    password, listeners = world.stack.hosts.password, world.stack.kafka.writers_listeners()
    changes = [password.change_in_kafka, password.change_in_store]
    first, second = reversed(changes) if event.variant else changes
    new = new_password()
    with contextlib.ExitStack() as held:
        for listener in listeners if event.choice % 2 else ():
            held.enter_context(listener.set(Mode.HOLD_REPLIES))
        time.sleep(event.seconds)
        first(new)
        for listener in listeners:
            held.enter_context(listener.set(Mode.CUT))
        time.sleep(_CUT_S)
    time.sleep(event.seconds)
    second(new)
    # Whoever connected between the two changes has the former password still.
    with contextlib.ExitStack() as held:
        for listener in listeners:
            held.enter_context(listener.set(Mode.CUT))
        time.sleep(_CUT_S)


def refuse_record(world: World, event: Event) -> None:
    """Let each client send a record among others that Kafka refuses: too far ahead in time, or too large."""
    for number, client in enumerate(world.writers.clients):
        client.spoil(is_large=(event.choice + number) % 2 == 0)
    wait_until(
        lambda: not any(client.is_spoiling for client in world.writers.clients),
        _BUSY_WITHIN_S,
        "every client has sent a record that Kafka refuses",
    )


def kill_drain(world: World, event: Event) -> None:
    """End the drain while it writes a batch, or once it has answered, before its messages are deleted."""
    drain = world.writers.drain
    if event.variant:
        drain.is_forgetting.set()
        wait_until(lambda: not drain.is_forgetting.is_set(), _BUSY_WITHIN_S, "the drain has a batch")
        return
    process = _busy(world.stack.hosts.drain)
    time.sleep(event.seconds / 20)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def freeze_function(world: World, event: Event) -> None:
    """Stop the produce function, or the drain, while it writes, until its time is over."""
    hosts = world.stack.hosts
    process = _busy(hosts.drain if event.variant else hosts.produce)
    with stopped([process]):
        time.sleep(TIMEOUT_MS / 1000 + event.seconds)


def _busy(host: FunctionHost) -> psutil.Process:
    """The process of a function, once it has a request."""
    assert host.is_busy.wait(_BUSY_WITHIN_S), f"{host.process.function.name} has no request"
    pid = host.process.pid
    assert pid is not None, f"{host.process.function.name} has ended"
    return psutil.Process(pid)
