"""Faults of a whole topic: recreated, grown, its log lost, or forgotten with the job there and away.

The logs of the other topics only grow, and their checks rely on it. Only these faults write side topics:
each writes records, changes the topic, writes others, and waits until reads agree with what Kafka then has,
or with the journal of what was written. The topic that Kafka compacts must in the end be as if nothing had
been forgotten. The topic that loses records to retention or DeleteRecords keeps what the state had read; what
it lacks, it says. In the end each event that forgets writes half of the keys: the others are as it left them.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition
from tests.torture.brokers import Brokers
from tests.torture.configurations import CLEANER_RESTS, COMPACTED, RETAINED, SIDE, SIDE_PARTITIONS
from tests.torture.faults.world import kill_all
from tests.torture.links import Mode
from tests.torture.sides import KEYS, TIMEOUT_S, Side, wait_agrees, wait_settled
from tests.torture.stack import wait_until

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.torture.faults.world import World
    from tests.torture.schedule import Event
    from tests.torture.written import Sent


_ROUNDS = 5
_MAX_PARTITIONS = 6


def recreate_topic(world: World, event: Event) -> None:
    """Delete the topic and create it again, twice; the second time at times with more partitions.

    What it had the first time and has the second lies at the same offsets, key by key: it differs by the
    topic's incarnation alone.
    """
    side = Side(world, SIDE)
    for partitions, rounds in (
        (SIDE_PARTITIONS, _ROUNDS),
        (SIDE_PARTITIONS + event.variant, _ROUNDS * 2 if event.choice % 2 else 1),
    ):
        side.create_again(partitions)
        side.write(rounds)
        wait_agrees(side)


def grow_topic(world: World, _: Event) -> None:
    """Add a partition: the records of old keys become strays, and a new generation is built."""
    side = Side(world, SIDE)
    side.write(_ROUNDS)
    if len(side.partitions()) < _MAX_PARTITIONS:
        side.grow()
    side.write(_ROUNDS)
    wait_agrees(side)


def lose_log(world: World, event: Event) -> None:
    """Lose the end of the log in an unclean election, or all of it with a single broker's disk.

    In the end the log is shorter than what the job has read before, or longer. Then the job can't reach the
    broker meanwhile, and never sees a log that has shrunk.
    """
    side = Side(world, SIDE)
    lost: list[Sent] = []
    kept: list[Sent] = []
    side.write(_ROUNDS)
    lost += side.write_through()
    wait_agrees(side)
    kafka = world.stack.kafka
    length = sum(end for _, end in side.bounds().values())
    rounds = length // KEYS + _ROUNDS * 4 if event.variant else 1

    def write_and_wait() -> None:
        side.write(_ROUNDS)
        lost.extend(side.write_through())
        wait_agrees(side)

    def write_again() -> None:
        side.write(rounds)
        kept.extend(side.write_through())

    with contextlib.ExitStack() as parted:
        if isinstance(kafka, Brokers):
            kafka.truncate(SIDE, side.partitions(), write_and_wait, write_again)
        else:
            if event.variant:
                parted.enter_context(kafka.link_to(0).set(Mode.CUT, 0.0))
            kafka.kill()
            for folder in (kafka.home / "data").glob(f"{SIDE}-*"):
                shutil.rmtree(folder)
            kafka.start()
            kafka.wait_ready()
            write_again()
    kept += side.write_through()
    _check_there(side, lost, kept)
    wait_agrees(side)


def _check_there(side: Side, lost: list[Sent], kept: list[Sent]) -> None:
    """What the product wrote is there as often as it said, and may be gone if it wrote it before the loss."""
    found = Counter(value for _, _, value in side.log())
    for least, all_sent in ((0, lost), (1, kept)):
        for sent in all_sent:
            count = found[sent.value]
            assert least <= count <= len(sent.results), f"{sent} is in the log {count} times"


_CLEANED_WITHIN_S = 60
_CLEANS = {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100"}
_FORGETS = {"delete.retention.ms": "100"}
"""How long tombstones last, once the cleaner has met them."""


def clean_log(world: World, _: Event) -> None:
    """Let Kafka compact the topic while the job reads it. Its tombstones stay."""
    began_s, side = time.monotonic(), _compacted(world)
    side.write(_ROUNDS)
    keys = set(side.keys)

    def is_cleaned() -> bool:
        return sum(key in keys for _, key, _ in side.log()) <= len(keys)

    with side.configured(_CLEANS):
        _roll_until(side, is_cleaned, "the log is compacted")
    side.write(1, side.keys[::2])
    wait_settled(side, began_s)


def miss_deletions(world: World, _: Event) -> None:
    """Keep the job away until keys are gone from the log, and their tombstones too.

    When it is back, the state has values that the log no longer mentions: it must say so, and be rebuilt.
    """
    side = _compacted(world)
    side.write(_ROUNDS)
    wait_settled(side, time.monotonic())
    kill_all(world.stack.job.family())
    began_s = time.monotonic()
    deleted = side.keys[::2]
    side.delete(deleted)
    with _forgetting(side):
        _roll_until(side, lambda: not _has(side, deleted), "keys and tombstones are gone")
        # What is written from now on must stay until it was read.
        side.configure(CLEANER_RESTS | _FORGETS)
        world.stack.job = world.stack.new_job()
        world.stack.job.wait_ready()
        side.write(1, side.keys[1::2])
        wait_settled(side, began_s)


def grow_compacted(world: World, _: Event) -> None:
    """Delete keys in the partition that they came to by growth, until only their old records are left.

    Then the topic grows once more: it is built again from a log in which the keys are not deleted.
    """
    began_s, side = time.monotonic(), _compacted(world)
    side.write(_ROUNDS)
    wait_settled(side, began_s)
    before = {key: routing.partition_for(key, SIDE_PARTITIONS) for key in side.keys}
    new = side.grow()
    moved = [key for key in side.keys if routing.partition_for(key, new + 1) != before[key]]
    side.write(_ROUNDS)
    wait_settled(side, began_s, judged=False)
    side.delete(moved)
    wait_settled(side, began_s)
    side.journal.deleted_in_state_alone |= set(moved)
    with _forgetting(side):
        _roll_until(side, lambda: not _has_tombstones(side, moved), "the tombstones are gone")
    side.grow()
    side.write(1, [key for key in side.keys if key not in moved])
    wait_settled(side, began_s, judged=False)


def delete_records(world: World, event: Event) -> None:
    """Let DeleteRecords remove what the job has read, or, while it is cut off, what it has not."""
    began_s, side = time.monotonic(), _retained(world)
    with _cut_off(world) if event.variant else contextlib.nullcontext():
        if event.variant:
            side.write(_ROUNDS, strays=True)
        partitions = side.partitions()
        _delete(side, partitions if event.choice else partitions[:1])
    side.write(1, side.keys[::2], strays=True)
    wait_settled(side, began_s, complete=not event.variant)


def grow_and_forget(world: World, event: Event) -> None:
    """Add a partition whose first records are gone before the job, which is cut off, has read any."""
    began_s, side = time.monotonic(), _retained(world)
    with _cut_off(world):
        new = side.grow()
        side.write(_ROUNDS)
        if event.variant:
            _retain_nothing(side)
        else:
            _delete(side, [new])
    side.write(1, side.keys[::2])
    wait_settled(side, began_s, complete=False)


def _compacted(world: World) -> Side:
    """The compacted topic; created again if it has grown: what other partitions have may come back."""
    side = Side(world, COMPACTED)
    if len(side.partitions()) > SIDE_PARTITIONS:
        side.create_again()
        side.write(1)
        wait_settled(side, time.monotonic(), judged=False)
    return side


def _retained(world: World) -> Side:
    """The topic that forgets, created again: with strays, all of which the job has read."""
    side = Side(world, RETAINED)
    side.create_again()
    side.write(_ROUNDS, strays=True)
    wait_settled(side, time.monotonic(), judged=False)
    return side


@contextlib.contextmanager
def _forgetting(side: Side) -> Iterator[None]:
    """Let the cleaner remove tombstones soon after it has met them."""
    side.journal.forgets_since_s = time.monotonic()
    with side.configured(_CLEANS | _FORGETS):
        yield


@contextlib.contextmanager
def _cut_off(world: World) -> Iterator[None]:
    """Part the job from all brokers."""
    with contextlib.ExitStack() as parted:
        for listener in world.stack.kafka.job_listeners():
            parted.enter_context(listener.set(Mode.CUT, 0.0))
        yield


def _delete(side: Side, partitions: list[int]) -> None:
    """Remove all records of partitions."""
    ends = side.bounds()
    wanted = [TopicPartition(side.name, partition, ends[partition][1]) for partition in partitions]
    admin = side.admin()
    for future in admin.delete_records(wanted).values():
        future.result(TIMEOUT_S)


def _retain_nothing(side: Side) -> None:
    """Let retention remove all records."""
    with side.configured({"retention.ms": "1"}):
        wait_until(
            lambda: all(begin == end for begin, end in side.bounds().values()),
            _CLEANED_WITHIN_S,
            "retention has removed all records",
        )


def _roll_until(side: Side, is_cleaned: Callable[[], bool], what: str) -> None:
    """Write a key into each partition again and again: what is written to a segment is not compacted."""
    count = len(side.partitions())
    rolls = {}
    for number in range(1000):
        key = b"%d-roll-%d" % (side.world.seed, number)
        rolls.setdefault(routing.partition_for(key, count), key)
        if len(rolls) == count:
            break

    def rolled() -> bool:
        side.send([(key, b"roll-%d" % next(side.world.stack.side_numbers), False) for key in rolls.values()])
        return is_cleaned()

    wait_until(rolled, _CLEANED_WITHIN_S, what)


def _has(side: Side, keys: list[bytes]) -> bool:
    return any(key in keys for _, key, _ in side.log())


def _has_tombstones(side: Side, keys: list[bytes]) -> bool:
    return any(key in keys and value is None for _, key, value in side.log())
