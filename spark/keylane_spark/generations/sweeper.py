"""Removes generations that are of no more use, in the background and at a bounded rate.

What is to be removed stands on the topic's record until it is gone: a start that finds it there goes on.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import KeylaneError, called
from keylane_spark.adapters.sweep import remove_generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from keylane.adapters.redis.cluster import RedisSettings
    from keylane.ports import Clock
    from keylane_spark.adapters.topic_record import TopicRecord
    from keylane_spark.generations.ownership import Ownership

_LOOK_PRICE = 0.1
"""Of a key that is only looked at, where one that is removed costs 1."""
_AGAIN_S = 5.0
_STILL_OURS_S = 1.0


class Sweeper:
    """A thread of its own, with connections of its own."""

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
        """Begin to wait for work."""
        self._thread.start()

    def look_at(self, topics: Iterable[str]) -> None:
        """Look, soon, for generations to remove on the records of these topics."""
        self._topics |= set(topics)
        self._wake.set()

    def stop(self) -> None:
        """Stop within a step."""
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
                except KeylaneError as error:
                    self._notify(f"removing an old generation of {called(topic)} is held up: {error}")
                    self._wake.set()
                    self._stop.wait(_AGAIN_S)

    def _sweep(self, topic: str) -> None:
        record = self._ownership.record(topic)
        for generation in record.remove if record else ():
            removed = 0
            look_s = self._clock.monotonic_s() + _STILL_OURS_S
            for looked, gone in remove_generation(self._cluster, self._clock, topic, generation):
                removed += gone
                # Not on the list any more: the state is a successor's, or a new one after a loss.
                if self._clock.monotonic_s() >= look_s:
                    if not self._is_still_ours(topic, generation):
                        return
                    look_s = self._clock.monotonic_s() + _STILL_OURS_S
                if self._stop.wait(max(gone, looked * _LOOK_PRICE) / self._keys_per_s):
                    return
            self._ownership.forget_strays(topic, generation)
            self._ownership.update(topic, functools.partial(_without, generation=generation))
            self._notify(f"{called(topic)}: generation {generation} is removed, {removed:,} keys")

    def _is_still_ours(self, topic: str, generation: int) -> bool:
        record = self._ownership.record(topic)
        return record is not None and generation in record.remove and self._ownership.holds(record)


def _without(record: TopicRecord, generation: int) -> TopicRecord:
    return record.removed(generation)
