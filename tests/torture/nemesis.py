"""Carries out a schedule's events, each in its own thread, and repairs what they broke.

An event that can't be carried out or repaired is a fault of the schedule; it is never skipped.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import redis
from tests.torture.stack import TOPICS, is_primary, settle, wait_until

from keylane.state import codec
from keylane_local.process.processes import wait_until as waited
from keylane_spark.adapters.lane import LaneTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.torture.schedule import Event
    from tests.torture.stack import TortureStack

    from keylane_local.servers.redis_node import RedisNode


@dataclass(slots=True)
class Trouble:
    """A period (monotonic seconds) in which a shard's reads may come from a replica that is behind."""

    kind: str
    shard: int
    began_s: float
    ended_s: float = float("inf")

    def touches(self, shard: int, began_s: float, ended_s: float) -> bool:
        return self.shard == shard and self.began_s <= ended_s and began_s <= self.ended_s


class Nemesis:
    """The events of one schedule: one at a time for each of the job, the broker and the Redis Cluster."""

    def __init__(self, stack: TortureStack, seed: int) -> None:
        self._stack = stack
        self._source = random.Random(seed)
        self._locks = {part: threading.Lock() for part in ("job", "broker", "redis")}
        self._threads: list[threading.Thread] = []
        self.faults: list[str] = []
        self.troubles: list[Trouble] = []

    def begin(self, event: Event) -> None:
        """Start the event; returns once it has begun, or waits for an earlier event of the same part."""
        part, run = self._events[event.kind]
        began = threading.Event()

        def carry_out() -> None:
            try:
                with self._locks[part]:
                    began.set()
                    run(self, event)
            except Exception as error:  # noqa: BLE001 - every error is reported
                where = traceback.extract_tb(error.__traceback__)[-1]
                self.faults.append(f"{event.kind} could not be carried out: {error!r} ({where.name})")

        thread = threading.Thread(target=carry_out, name=event.kind, daemon=True)
        self._threads.append(thread)
        thread.start()
        began.wait(0.05)

    def finish(self, within_s: float = 240) -> None:
        """Wait until all events are over and repaired."""
        until = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                self.faults.append(f"{thread.name} is not over after {within_s:.0f} s")

    def _kill_driver(self, event: Event) -> None:
        """Kill its process group (its workers then lose their JVM), or every process that it started."""
        job = self._stack.job
        family = job.family()
        assert family, "there is no job to kill"
        os.killpg(job.process.pid, signal.SIGKILL)
        if event.variant:
            _kill(family)
            shutil.rmtree(job.checkpoint, ignore_errors=True)
        self._stack.job = self._stack.new_job()
        self._stack.job.wait_ready()
        left = waited(lambda: not any(map(_is_alive, family)), 20)
        _kill(family)
        assert left, "workers outlive their driver"

    def _kill_worker(self, _: Event) -> None:
        wait_until(lambda: bool(self._stack.job.workers()), 60, "Spark started no Python worker")
        _kill([self._source.choice(self._stack.job.workers())])

    def _pause_driver(self, event: Event) -> None:
        with _stopped(self._stack.job.family()):
            time.sleep(event.seconds * 4)

    def _lose_checkpoint(self, _: Event) -> None:
        assert self._stack.job.checkpoint.exists(), "there is no checkpoint to lose"
        shutil.rmtree(self._stack.job.checkpoint, ignore_errors=True)

    def _zombie(self, _: Event) -> None:
        first = self._stack.job
        with _stopped(first.family()):
            second = self._stack.new_job()
            second.wait_ready()
            self._stack.job = second
        try:
            code = first.process.wait(60)
        except psutil.TimeoutExpired:
            first.end()
            raise AssertionError("the zombie still ran 60 s after it woke up") from None
        assert code == 3, f"the zombie ended with {code}:\n{first.tail()}"

    def _kill_broker(self, _: Event) -> None:
        self._stack.kafka.kill()
        self._stack.kafka.start()
        self._stack.kafka.wait_ready()

    def _pause_broker(self, event: Event) -> None:
        process = self._stack.kafka.program.process
        assert process
        with _stopped([process]):
            time.sleep(event.seconds * 4)

    def _kill_primary(self, event: Event) -> None:
        with self._trouble(event):
            primary, replica = self._stack.shard(event.shard)
            primary.kill()
            self._take_over(primary, replica)

    def _pause_primary(self, event: Event) -> None:
        """For a moment, or until its replica has taken over: it wakes up as a primary that is none."""
        with self._trouble(event):
            primary, replica = self._stack.shard(event.shard)
            process = primary.program.process
            assert process
            with _stopped([process]):
                if event.variant:
                    time.sleep(event.seconds)
                else:
                    self._wait_promoted(replica)
            self._stack.cluster.wait_ready(60)

    def _lose_writes(self, event: Event) -> None:
        """Cut off the replica, wait until it lacks records, then kill the primary."""
        with self._trouble(event):
            primary, replica = self._stack.shard(event.shard)
            replica.command("CONFIG", "SET", "masterauth", "wrong")
            replica.command("CONFIG", "SET", "masteruser", "nobody")
            primary.command("CLIENT", "KILL", "TYPE", "replica")
            wait_until(
                lambda: self._misses_records(event.shard, primary, replica), 90, "the replica lacks no record"
            )
            primary.kill()
            self._wait_promoted(replica)
            replica.command("CONFIG", "SET", "masteruser", "")
            replica.command("CONFIG", "SET", "masterauth", "")
            self._take_over(primary, replica)

    def _misses_records(self, shard: int, primary: RedisNode, replica: RedisNode) -> bool:
        """Whether a lane of the primary has records that the replica will never get."""
        if replica.facts()["master_link_status"] == "up":
            return False
        keys = [
            lane.watermark_key
            for layout in self._stack.layouts().values()
            for partition in range(TOPICS[layout.topic])
            for stripe in range(layout.stripes)
            if self._stack.shard_of((lane := LaneTarget.of(layout, partition, stripe)).slot) == shard
        ]
        return any(
            before is not None
            and now is not None
            and codec.decode_watermark(before).next_offset < codec.decode_watermark(now).next_offset
            for before, now in zip(_read(replica, keys), _read(primary, keys), strict=True)
        )

    def _empty_redis(self, event: Event) -> None:
        with contextlib.ExitStack() as stack:
            for shard in range(self._stack.cluster.shards):
                stack.enter_context(self._trouble(event, shard))
            for shard in range(self._stack.cluster.shards):
                self._stack.shard(shard)[0].command("FLUSHALL")
            # The state is complete again at the end of the run.

    def _take_over(self, primary: RedisNode, replica: RedisNode) -> None:
        self._wait_promoted(replica)
        primary.start()
        wait_until(primary.answers, 30, "a killed node did not restart")
        settle(primary)
        self._stack.cluster.wait_ready(60)

    def _wait_promoted(self, replica: RedisNode) -> None:
        wait_until(lambda: is_primary(replica), 30, "the replica was not promoted")

    @contextlib.contextmanager
    def _trouble(self, event: Event, shard: int | None = None) -> Iterator[None]:
        trouble = Trouble(event.kind, event.shard if shard is None else shard, time.monotonic())
        self.troubles.append(trouble)
        yield
        trouble.ended_s = time.monotonic()

    _events: dict[str, tuple[str, Callable[[Nemesis, Event], None]]] = {  # noqa: RUF012 - a table
        "kill-driver": ("job", _kill_driver),
        "kill-worker": ("job", _kill_worker),
        "pause-driver": ("job", _pause_driver),
        "lose-checkpoint": ("job", _lose_checkpoint),
        "zombie": ("job", _zombie),
        "kill-broker": ("broker", _kill_broker),
        "pause-broker": ("broker", _pause_broker),
        "kill-primary": ("redis", _kill_primary),
        "pause-primary": ("redis", _pause_primary),
        "lose-writes": ("redis", _lose_writes),
        "empty-redis": ("redis", _empty_redis),
    }


def _read(node: RedisNode, keys: list[bytes]) -> list[bytes | None]:
    """The values of keys on one node, which may be a replica."""
    with redis.Redis(port=node.port, socket_timeout=5) as client:
        pipeline = client.pipeline(transaction=False)
        pipeline.execute_command("READONLY")
        for key in keys:
            pipeline.get(key)
        return pipeline.execute()[1:]


@contextlib.contextmanager
def _stopped(processes: Iterable[psutil.Process]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end."""
    family = list(processes)
    try:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        yield
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
