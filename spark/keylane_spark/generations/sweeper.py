"""Removes generations that are no longer used, in the background and at a bounded rate.

A generation stays listed on its topic's record until it is removed, so a restarted job continues.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import called
from keylane_spark.adapters.sweep import remove_generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from keylane.adapters.redis.cluster import RedisSettings
    from keylane.ports import Clock
    from keylane_spark.generations.ownership import Ownership

_SCAN_COST = 0.1
"""The cost of a key that is scanned and kept; a key that is removed costs 1."""
_RETRY_S = 5.0
_OWNER_CHECK_S = 1.0


class Sweeper:
    """Removes the unused generations of the topics passed to `look_at`, up to `keys_per_s` keys a second.

    It runs in its own thread, with its own connections. `notify` takes a line for the log after each removal
    and each failure; failures are retried.
    """

    def __init__(
        self,
        redis: RedisSettings,
        ownership: Ownership,
        clock: Clock,
        keys_per_s: int,
        notify: Callable[[str], None],
    ) -> None:
        self._ownership = ownership
        self._clock = clock
        self._keys_per_s = keys_per_s
        self._notify = notify
        self._cluster = Cluster(redis)
        self._topics: set[str] = set()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Start the thread, which waits for work."""
        self._thread.start()

    def look_at(self, topics: Iterable[str]) -> None:
        """Ask the thread to remove the generations that the records of these topics list for removal."""
        self._topics |= set(topics)
        self._wake.set()

    def stop(self) -> None:
        """Stop after the step in progress."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=30)
        self._cluster.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            for topic in sorted(self._topics):
                if self._stop.is_set():
                    return
                try:
                    self._sweep(topic)
                except Exception as error:  # noqa: BLE001 (the thread goes on: the next start would find the same)
                    self._notify(f"removing an old generation of {called(topic)} is delayed: {error}")
                    self._wake.set()
                    self._stop.wait(_RETRY_S)

    def _sweep(self, topic: str) -> None:
        record = self._ownership.record(topic)
        for generation in record.remove if record else ():
            removed = 0
            check_s = self._clock.monotonic_s() + _OWNER_CHECK_S
            for looked, gone in remove_generation(self._cluster, self._clock, topic, generation):
                removed += gone
                # No longer listed: a successor owns the state, or it was lost and begun again.
                if self._clock.monotonic_s() >= check_s:
                    if not self._is_still_owned(topic, generation):
                        return
                    check_s = self._clock.monotonic_s() + _OWNER_CHECK_S
                if self._stop.wait(max(gone, looked * _SCAN_COST) / self._keys_per_s):
                    return
            self._ownership.forget_strays(topic, generation)
            self._ownership.note_removed(topic, generation)
            self._notify(f"{called(topic)}: generation {generation} is removed, {removed:,} keys")

    def _is_still_owned(self, topic: str, generation: int) -> bool:
        record = self._ownership.record(topic)
        return record is not None and generation in record.remove and self._ownership.holds(record)
