"""What the faults of a schedule change: the stack, and the list of troubles that excuse what readers see."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
from tests.servers.own import suspend

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from confluent_kafka import Producer
    from tests.torture.stack import TortureStack
    from tests.torture.writing import Writers

_KEYS = 8
_ACKNOWLEDGED_WITHIN_S = 60


@dataclass(slots=True)
class Trouble:
    """A period (monotonic seconds) in which a shard's reads may come from a replica that is behind.

    `lost_data`: the shard was emptied, so it is rebuilt afterwards. `unreachable`: no node of it was up.
    """

    kind: str
    shard: int
    began_s: float
    ended_s: float = float("inf")
    lost_data: bool = False
    unreachable: bool = False

    def touches(self, shard: int, began_s: float, ended_s: float) -> bool:
        return self.shard == shard and self.began_s <= ended_s and began_s <= self.ended_s


@dataclass(slots=True)
class World:
    """The servers of one schedule and its clients, its random source, and the troubles so far."""

    stack: TortureStack
    writers: Writers
    source: random.Random
    seed: int
    troubles: list[Trouble] = field(default_factory=list)

    def has_trouble(self, since_s: float, *, lost_data: bool = False) -> bool:
        """Whether Redis has been in trouble since then (monotonic seconds), or has lost data."""
        return any(each.ended_s >= since_s and each.lost_data >= lost_data for each in list(self.troubles))

    @contextlib.contextmanager
    def trouble(
        self, kind: str, *shards: int, lost_data: bool = False, unreachable: bool = False
    ) -> Iterator[None]:
        """Declare trouble of these shards while the block runs."""
        now_s = time.monotonic()
        begun = [
            Trouble(kind, shard, now_s, lost_data=lost_data, unreachable=unreachable) for shard in shards
        ]
        self.troubles += begun
        if lost_data:
            for journal in self.stack.journals.values():
                journal.lose_state()
        yield
        for trouble in begun:
            trouble.ended_s = time.monotonic()


def produce_to_topics(world: World, producer: Producer, records: int, name: str, **options: Any) -> None:
    """Produce records of the schedule's keys to each of its topics, and wait until Kafka has them.

    `name`: the beginning of the values. `options`: of `produce`.
    """
    for topic, shape in world.stack.shapes.items():
        for number in range(records):
            key = b"%d-%03d" % (world.seed, number % _KEYS)
            value = f"{name}-{number}".encode()
            producer.produce(topic, key=key, value=value, partition=shape.partition_of(key), **options)
    assert not producer.flush(_ACKNOWLEDGED_WITHIN_S), "the records did not reach the broker"


@contextlib.contextmanager
def stopped(processes: Iterable[psutil.Process]) -> Iterator[None]:
    """Have processes stand still during the block, without those that have ended."""
    family = list(processes)
    try:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                suspend(process.pid)
        yield
    finally:
        for process in reversed(family):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def kill_all(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
