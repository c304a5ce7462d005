"""Faults of the job: killed, stopped, replaced, without its checkpoint, with a clock that jumps."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import Producer
from tests.torture.faults.world import is_alive, kill_all, produce_to_topics, stopped
from tests.torture.outside import set_clock
from tests.torture.stack import wait_until

from keylane_local.process.processes import wait_until as waited

if TYPE_CHECKING:
    from tests.torture.faults.world import World
    from tests.torture.schedule import Event

CLOCK_JUMPS_MS = (3_600_000, -3_600_000, 7_000, -7_000)
SWITCHED_WITHIN_S = 180
ENDED_WITHIN_S = 120
"""For processes whose driver is gone, or has been replaced: seconds, if the machine has time for them."""
CUT_WITHIN_S, BURST_EVERY_S = 60, 5
BURST_RECORDS = 1_000


def kill_driver(world: World, event: Event) -> None:
    """Kill its process group (its workers then lose their JVM), or every process that it started."""
    job = world.stack.job
    family = job.family()
    assert family, "there is no job to kill"
    os.killpg(job.process.pid, signal.SIGKILL)
    if event.variant:
        kill_all(family)
        shutil.rmtree(job.checkpoint, ignore_errors=True)
    world.stack.job = world.stack.new_job()
    world.stack.job.wait_ready()
    left = waited(lambda: not any(map(is_alive, family)), ENDED_WITHIN_S)
    kill_all(family)
    assert left, "workers outlive their driver"


def kill_worker(world: World, _: Event) -> None:
    wait_until(lambda: bool(world.stack.job.workers()), 60, "Spark started no Python worker")
    kill_all([world.source.choice(world.stack.job.workers())])


def cut_rows(world: World, _: Event) -> None:
    """Let the rows of a task end early, without an error, as Spark ends the workers of a failed query.

    A job that keeps up has no tasks: all its batches are small. Then it gets many records at once.
    """
    cut = world.stack.cut_file
    cut.touch()
    try:
        for _ in range(CUT_WITHIN_S // BURST_EVERY_S):
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: not cut.exists(), BURST_EVERY_S, "")
                return
            _write_burst(world)
        raise TimeoutError(f"no task had more than one Arrow batch within {CUT_WITHIN_S} s")
    finally:
        cut.unlink(missing_ok=True)


def _write_burst(world: World) -> None:
    """Write more records to each topic than one small batch may have."""
    producer = Producer(
        {"bootstrap.servers": world.stack.kafka.bootstrap, "enable.idempotence": True, "log_level": 2}
    )
    produce_to_topics(world, producer, BURST_RECORDS, "burst")


def pause_driver(world: World, event: Event) -> None:
    with stopped(world.stack.job.family()):
        time.sleep(event.seconds * 4)


def lose_checkpoint(world: World, _: Event) -> None:
    assert world.stack.job.checkpoint.exists(), "there is no checkpoint to lose"
    shutil.rmtree(world.stack.job.checkpoint, ignore_errors=True)


def zombie(world: World, _: Event) -> None:
    """Let a second job take over while the first is stopped; then the first wakes up."""
    first = world.stack.job
    with stopped(first.family()):
        second = world.stack.new_job()
        second.wait_ready()
        world.stack.job = second
    try:
        code = first.process.wait(ENDED_WITHIN_S)
    except psutil.TimeoutExpired:
        first.end()
        raise AssertionError(f"the zombie still ran {ENDED_WITHIN_S} s after it woke up") from None
    assert code == 3, f"the zombie ended with {code}:\n{first.report()}"


def clock_jump(world: World, event: Event) -> None:
    """Let the clock of the job's processes go wrong, by an hour or by seconds, and right again."""
    set_clock(world.stack.clock_file, CLOCK_JUMPS_MS[event.choice])
    try:
        time.sleep(event.seconds * 4)
    finally:
        set_clock(world.stack.clock_file, 0)


def switch_layout(world: World, event: Event) -> None:
    """Start the job with another number of stripes, so that it builds a generation beside the present one."""
    before = {name: layout.stripes for name, layout in world.stack.layouts().items()}
    topic = world.stack.restripe()
    kill_driver(world, event)

    def has_switched() -> bool:
        layouts = world.stack.layouts()
        # Redis may have been emptied: then there was no layout before.
        return topic in layouts and layouts[topic].stripes != before.get(topic)

    wait_until(has_switched, SWITCHED_WITHIN_S, f"the new generation of {topic}")
