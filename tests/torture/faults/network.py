"""Faults of the network: the job, or the readers, lose one node that everybody else still reaches."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tests.torture.links import Mode

from keylane.adapters.redis.replicas import UNHEALTHY_FOR_S

if TYPE_CHECKING:
    from tests.torture.faults.world import World
    from tests.torture.schedule import Event

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
