"""Carries out a schedule's events, each in its own thread, and repairs what they broke.

An event that can't be carried out or repaired is a fault of the schedule; it is never skipped.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from tests.torture.faults import job, outages, redis, tables, topics
from tests.torture.faults.world import Trouble, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.schedule import Event
    from tests.torture.stack import TortureStack
    from tests.torture.writing import Writers

FAULTS: dict[str, tuple[str, Callable[[World, Event], None]]] = {
    "kill-driver": ("job", job.kill_driver),
    "kill-worker": ("job", job.kill_worker),
    "cut-rows": ("job", job.cut_rows),
    "pause-driver": ("job", job.pause_driver),
    "lose-checkpoint": ("job", job.lose_checkpoint),
    "zombie": ("job", job.zombie),
    "clock-jump": ("job", job.clock_jump),
    "switch-layout": ("job", job.switch_layout),
    "kill-broker": ("broker", outages.kill_broker),
    "pause-broker": ("broker", outages.pause_broker),
    "hang-transaction": ("broker", outages.hang_transaction),
    "recreate-topic": ("broker", topics.recreate_topic),
    "grow-topic": ("broker", topics.grow_topic),
    "lose-log": ("broker", topics.lose_log),
    "grow-table": ("broker job", tables.grow_table),
    "large-values": ("broker job redis", tables.write_large_values),
    "clean-log": ("broker", topics.clean_log),
    "miss-deletions": ("broker job", topics.miss_deletions),
    # A failover takes back what was read, and the log no longer has it: tombstones last too shortly here.
    "grow-compacted": ("broker redis", topics.grow_compacted),
    "delete-records": ("broker", topics.delete_records),
    "grow-and-forget": ("broker", topics.grow_and_forget),
    "kill-primary": ("redis", redis.kill_primary),
    "pause-primary": ("redis", redis.pause_primary),
    "lose-writes": ("redis", redis.lose_writes),
    "stale-replica": ("redis", redis.stale_replica),
    "empty-redis": ("redis", redis.empty_redis),
    "empty-shard": ("redis", redis.empty_shard),
    "empty-keylane-shard": ("redis", redis.empty_keylane_shard),
    "lose-shard": ("redis", redis.lose_shard),
    "kill-two-primaries": ("redis", redis.kill_two_primaries),
    "fail-over": ("redis", redis.fail_over),
    "flush-functions": ("redis", redis.flush_functions),
    "out-of-memory": ("redis", redis.run_out_of_memory),
    "reshard": ("redis", redis.reshard),
    "part-job": ("redis", outages.part_job),
    "part-readers": ("redis", outages.part_readers),
    "slow-links": ("redis", outages.slow_links),
    "part-kafka": ("broker", outages.part_kafka),
    "lose-acks": ("broker writers", outages.lose_acks),
    "rotate-password": ("broker writers", outages.rotate_password),
    "refuse-record": ("writers", outages.refuse_record),
    "kill-drain": ("writers", outages.kill_drain),
    "freeze-function": ("writers", outages.freeze_function),
}
"""The parts that each kind of event breaks, in the order of their names, and what carries it out."""


class Nemesis:
    """The events of one schedule: one at a time for each of job, broker, Redis Cluster and writers."""

    def __init__(self, stack: TortureStack, writers: Writers, seed: int) -> None:
        self._world = World(stack, writers, random.Random(seed), seed)
        self._locks = {part: threading.Lock() for parts, _ in FAULTS.values() for part in parts.split()}
        self._threads: list[threading.Thread] = []
        self.faults: list[str] = []
        self.notes: list[dict[str, Any]] = []
        """When each event began and ended, in the order in which they began (monotonic seconds)."""
        self.troubles: list[Trouble] = self._world.troubles

    def begin(self, event: Event) -> None:
        """Start the event; returns once it has begun, or waits for an earlier event of the same part."""
        parts, run = FAULTS[event.kind]
        began = threading.Event()

        note: dict[str, Any] = {}
        self.notes.append(note)

        def carry_out() -> None:
            try:
                with contextlib.ExitStack() as held:
                    for part in parts.split():
                        held.enter_context(self._locks[part])
                    began.set()
                    note["began_s"] = time.monotonic()
                    run(self._world, event)
                    note["ended_s"] = time.monotonic()
            except Exception as error:  # noqa: BLE001 - every error is reported
                where = traceback.extract_tb(error.__traceback__)[-1]
                self.faults.append(f"{event.kind} could not be carried out: {error!r} ({where.name})")

        thread = threading.Thread(target=carry_out, name=event.kind, daemon=True)
        self._threads.append(thread)
        thread.start()
        began.wait(0.05)

    def finish(self, within_s: float = 600) -> None:
        """Wait until all events are over and repaired."""
        until = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                self.faults.append(f"{thread.name} is not over after {within_s:.0f} s")
