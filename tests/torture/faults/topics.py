"""Faults of a whole topic: recreated, grown, its log lost. They have a topic of their own, beside the others.

The logs of the other topics only grow, and their checks rely on it. Only its faults write this topic: each
writes records, changes the topic, writes others, and waits until reads agree with what Kafka then has.
"""

from __future__ import annotations

import contextlib
import shutil
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.servers.own import CLOCK
from tests.torture.brokers import Brokers, create_replicated
from tests.torture.links import Mode
from tests.torture.stack import SIDE, SIDE_PARTITIONS, wait_until

from keylane import routing
from keylane.adapters.redis.state import RedisState
from keylane.errors import KeylaneError
from keylane.query.latest import read_latest
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.faults.world import World
    from tests.torture.schedule import Event

_KEYS = 12
_RECORDS = 60
_TIMEOUT_S = 60
_AGREES_WITHIN_S = 120
_LAYOUT_TTL_S = 0.3
_MAX_PARTITIONS = 6

Fold = dict[bytes, bytes]


def recreate_topic(world: World, event: Event) -> None:
    """Delete the topic and create it again, at times with another number of partitions."""
    _write(world, _RECORDS)
    admin = _admin(world)
    admin.delete_topics([SIDE])[SIDE].result(_TIMEOUT_S)
    wait_until(lambda: SIDE not in admin.list_topics(timeout=10).topics, _TIMEOUT_S, "the topic is deleted")
    create_replicated(world.stack.kafka, SIDE, SIDE_PARTITIONS + event.variant, unclean=True)
    _write(world, _RECORDS * 2 if event.choice % 2 else _RECORDS // 4)
    _wait_agrees(world)


def grow_topic(world: World, _: Event) -> None:
    """Add a partition: the records of old keys become strays, and a new generation is built."""
    _write(world, _RECORDS)
    count = len(_partitions(world))
    if count < _MAX_PARTITIONS:
        admin = _admin(world)  # it must live until it has the result
        admin.create_partitions([NewPartitions(SIDE, count + 1)])[SIDE].result(_TIMEOUT_S)
        wait_until(lambda: len(_partitions(world)) > count, _TIMEOUT_S, "the topic has grown")
    _write(world, _RECORDS)
    _wait_agrees(world)


def lose_log(world: World, event: Event) -> None:
    """Lose the end of the log in an unclean election, or all of it with a single broker's disk.

    In the end the log is shorter than what the job has read before, or longer. Then the job can't reach the
    broker meanwhile, and never sees a log that has shrunk.
    """
    _write(world, _RECORDS)
    _wait_agrees(world)
    kafka = world.stack.kafka
    count = (_length(world) + _RECORDS * 4) if event.variant else _RECORDS // 4
    write_again = partial(_write, world, count)
    with contextlib.ExitStack() as parted:
        if isinstance(kafka, Brokers):
            kafka.truncate(SIDE, _partitions(world), partial(_write_and_wait, world), write_again)
        else:
            if event.variant:
                parted.enter_context(kafka.link_to(0).set(Mode.CUT, 0.0))
            kafka.kill()
            for folder in (kafka.home / "data").glob(f"{SIDE}-*"):
                shutil.rmtree(folder)
            kafka.start()
            kafka.wait_ready()
            write_again()
    _wait_agrees(world)


def _length(world: World) -> int:
    """How many offsets the topic's log has, in all partitions."""
    with _consumer(world) as consumer:
        partitions = [TopicPartition(SIDE, partition) for partition in _partitions(world)]
        return sum(consumer.get_watermark_offsets(each, timeout=_TIMEOUT_S)[1] for each in partitions)


def _write_and_wait(world: World) -> None:
    _write(world, _RECORDS)
    _wait_agrees(world)


def _write(world: World, count: int) -> None:
    """Write sets, and a tombstone here and there, to keys of this schedule."""
    failures: list[object] = []
    partitions = len(_partitions(world))
    producer = Producer({"bootstrap.servers": world.stack.kafka.bootstrap, "acks": "all", "log_level": 2})
    for _ in range(count):
        number = next(world.stack.side_numbers)
        key = b"%d/%03d" % (world.seed, number % _KEYS)
        producer.produce(
            SIDE,
            key=key,
            value=None if number % 7 == 3 else b"side-%d" % number,
            partition=routing.partition_for(key, partitions),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert not producer.flush(_TIMEOUT_S), "the records did not reach the broker"
    assert not failures, failures
    world.stack.side_keys |= {(SIDE, b"%d/%03d" % (world.seed, number)) for number in range(_KEYS)}


def _wait_agrees(world: World) -> None:
    """Wait until a read of each key that ever was returns what the log has, and nothing else."""
    state = RedisState(world.stack.reader_cluster())
    store = Store(state, Layouts(state, CLOCK, _LAYOUT_TTL_S), CLOCK)
    wanted = _fold(world)

    def agrees() -> bool:
        with contextlib.suppress(KeylaneError):
            return _read(store, world.stack.side_keys) == wanted
        return False

    try:
        wait_until(agrees, _AGREES_WITHIN_S, f"reads of {SIDE!r} return what the log has")
    except TimeoutError as error:
        try:
            found = _read(store, world.stack.side_keys)
        except KeylaneError as failure:
            raise AssertionError(f"{error}: {failure}") from None
        differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        shown = [(key, found.get(key), wanted.get(key)) for key in differing[:4]]
        raise AssertionError(f"{error}: (key, read, log) {shown}") from None
    finally:
        state.close()


def _read(store: Store, keys: set[tuple[str, bytes]]) -> Fold:
    found = {}
    for _, key in keys:
        record = read_latest(store, SIDE, key, ReadTerms(timeout_ms=3_000)).record
        if record is not None:
            assert record.value is not None
            found[key] = record.value
    return found


def _fold(world: World) -> Fold:
    """What the topic's log has, read from its beginning: by time, since a key may have changed partitions."""
    newest: dict[bytes, tuple[tuple[int, int, int], bytes | None]] = {}
    with _consumer(world) as consumer:
        for partition in _partitions(world):
            begin, end = consumer.get_watermark_offsets(TopicPartition(SIDE, partition), timeout=_TIMEOUT_S)
            consumer.assign([TopicPartition(SIDE, partition, begin)])
            for _ in range(begin, end):
                message = consumer.poll(_TIMEOUT_S)
                assert message is not None  # an empty value makes it false
                assert not message.error(), message.error()
                rank = message.timestamp()[1], partition, message.offset()
                if message.key() not in newest or newest[message.key()][0] < rank:
                    newest[message.key()] = rank, message.value()
    return {key: value for key, (_, value) in newest.items() if value is not None}


@contextlib.contextmanager
def _consumer(world: World) -> Iterator[Consumer]:
    options = {"bootstrap.servers": world.stack.kafka.bootstrap, "group.id": "side", "log_level": 2}
    consumer = Consumer({**options, "enable.auto.commit": False})
    try:
        yield consumer
    finally:
        consumer.close()


def _partitions(world: World) -> list[int]:
    for _ in range(_TIMEOUT_S):
        with contextlib.suppress(KafkaException):
            found = _admin(world).list_topics(SIDE, timeout=10).topics[SIDE].partitions
            if found and all(partition.leader >= 0 for partition in found.values()):
                return sorted(found)
        CLOCK.pause_s(0.2)
    raise AssertionError(f"{SIDE!r} has no leaders")


def _admin(world: World) -> AdminClient:
    return AdminClient({"bootstrap.servers": world.stack.kafka.bootstrap, "log_level": 2})
