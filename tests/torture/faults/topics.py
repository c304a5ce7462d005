"""Faults of a whole topic: recreated, grown, its log lost. They have a topic of their own, beside the others.

The logs of the other topics only grow, and their checks rely on it. Only its faults write this topic: each
writes records, changes the topic, writes others, and waits until reads agree with what Kafka then has.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from typing import TYPE_CHECKING

from tests.torture.brokers import Brokers
from tests.torture.configurations import SIDE, SIDE_PARTITIONS
from tests.torture.links import Mode
from tests.torture.settling import wait_agrees
from tests.torture.sides import KEYS, Side

if TYPE_CHECKING:
    from tests.torture.faults.world import World
    from tests.torture.results import Sent
    from tests.torture.schedule import Event

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
