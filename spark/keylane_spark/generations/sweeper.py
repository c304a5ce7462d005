"""Removes generations and topics that are no longer used, in the background and at the rate that Redis bears.

A generation stays listed on its topic's record until it is removed, so a restarted job continues. After a
start one search over all keys finds what no record lists: generations whose topic's records were lost, and
topics that are not in the config. The former are removed. The latter are named in the log, and removed only
if the config says so. A failover may bring back what was removed shortly before it. So where lanes are opened
again soon after a removal, there is another search.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator

from keylane.errors import called
from keylane.ports import Clock
from keylane_spark.config.topics import Config
from keylane_spark.generations.ownership import Ownership
from keylane_spark.lanes.cluster import Cluster, RedisSettings
from keylane_spark.lanes.function_library import FunctionLibrary
from keylane_spark.lanes.sweep import FoundGenerations, remove_generation

_PAUSE = 4.0
"""After each step a pause of so many times what it took: who is busy with others is asked less often."""
_SCAN_COST = 0.1
"""The cost of a key that is scanned and kept; a key that is removed costs 1."""
_RETRY_S = 5.0
_LOST_WITHIN_S = 600.0
"""So long after a removal a failover may take it back: more than any replica that is promoted lags."""


class Sweeper:
    """Removes unused generations of the topics passed to `look_at`, and topics that the config forgets.

    It runs in its own thread, with its own connections. `notify` takes a line for the log after each removal
    and each failure; failures are retried.
    """

    def __init__(
        self,
        redis: RedisSettings,
        ownership: Ownership,
        clock: Clock,
        config: Config,
        notify: Callable[[str], None],
    ) -> None:
        self._ownership = ownership
        self._clock = clock
        self._config = config
        self._notify = notify
        self._functions = FunctionLibrary(Cluster(redis), clock)
        self._topics: set[str] = set()
        self._unlisted: dict[str, set[int]] = {}
        self._reported: set[str] = set()
        self._is_searched = self._has_forgotten = False
        self._removed_at_s = -math.inf
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Start the thread, which waits for work."""
        self._thread.start()

    def look_at(self, topics: Iterable[str]) -> None:
        """Ask the thread to remove the generations that the records of these topics list for removal."""
        self._topics |= set(topics)
        if self._clock.monotonic_s() - self._removed_at_s < _LOST_WITHIN_S:
            self._is_searched = False
        self._wake.set()

    def stop(self) -> None:
        """Stop after the step in progress."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=30)
        self._functions.cluster.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            for topic in sorted(self._topics):
                self._attempt(f"removing an old generation of {called(topic)}", self._sweep, topic)
            if not self._is_searched:
                self._attempt("looking for state that is not in use", self._search)

    def _attempt(self, title: str, action: Callable[..., object], *arguments: str) -> None:
        """Do it now or, after a failure, in the next round."""
        if self._stop.is_set():
            return
        try:
            action(*arguments)
        except Exception as error:  # noqa: BLE001 (the thread goes on: the next start would find the same)
            self._notify(f"{title} is delayed: {error}")
            self._wake.set()
            self._stop.wait(_RETRY_S)

    def _sweep(self, topic: str) -> int:
        """Remove the generations that are listed; returns how many keys."""
        record = self._ownership.record(topic)
        if record is None or not self._ownership.holds(record):
            return 0
        if topic in self._unlisted:
            record = self._ownership.note_leftovers(topic, self._unlisted.pop(topic)) or record
        removed = 0
        for generation in record.remove:
            gone = self._paced(
                remove_generation(self._functions, topic, generation, self._ownership.epoch(topic))
            )
            if self._stop.is_set():
                break
            self._ownership.forget_generation(topic, generation)
            self._ownership.note_removed(topic, generation)
            self._removed_at_s = self._clock.monotonic_s()
            self._notify(f"{called(topic)}: generation {generation} is removed, {gone:,} keys")
            removed += gone
        return removed

    def _search(self) -> None:
        """Look for generations that no record lists, and for topics that are not in the config."""
        self._is_searched = True  # at once: the lanes may be opened again meanwhile
        try:
            found = FoundGenerations()
            self._paced(found.search(self._functions.cluster, self._clock))
            if self._stop.is_set():
                return
            for topic in self._config.forgotten:
                if topic in found.by_topic or not self._has_forgotten:
                    self._forget(topic, found.by_topic.pop(topic, set()))
            self._has_forgotten = True
        except BaseException:
            self._is_searched = False
            raise
        for topic, generations in sorted(found.by_topic.items()):
            if topic in self._config.state_names:
                self._unlisted[topic] = generations
            elif topic not in self._reported:
                self._report(topic, len(generations))
        self._wake.set()

    def _forget(self, topic: str, generations: set[int]) -> None:
        if not self._ownership.begin_forgetting(topic, generations):
            self._notify(f"{called(topic)} has no state: it need not be listed in {_setting(topic)}")
            return
        removed = self._sweep(topic)
        if not self._stop.is_set():
            self._ownership.end_forgetting(topic)
            self._notify(f"{called(topic)} is forgotten: {removed:,} keys are removed")

    def _report(self, topic: str, generations: int) -> None:
        name = topic.removeprefix("~")
        self._reported.add(topic)
        self._notify(
            f"{called(topic)} is not in this job's config but has state in Redis, {generations} generations: "
            f'if no other job serves it, [job] {_setting(topic)} = ["{name}"] removes it'
        )

    def _paced(self, steps: Iterator[tuple[int, int]]) -> int:
        """Take the steps, with pauses, until they or the sweeper end; returns what went."""
        removed, pace = 0, SweepPace(self._clock, self._config.job.sweep_keys_per_s)
        for looked, gone in steps:
            removed += gone
            if self._stop.wait(pace.pause_s(looked, gone)):
                break
            pace.begin()
        return removed


class SweepPace:
    """How long to pause between steps, so that Redis serves others meanwhile."""

    def __init__(self, clock: Clock, most_per_s: int | None) -> None:
        """`most_per_s`: see `sweep_keys_per_s`."""
        self._clock = clock
        self._most_per_s = most_per_s
        self.begin()

    def begin(self) -> None:
        """Note that a step begins."""
        self._began_s = self._clock.monotonic_s()

    def pause_s(self, looked: int, gone: int) -> float:
        """The pause after a step that has looked at so many keys, and removed so many, in seconds."""
        pause_s = (self._clock.monotonic_s() - self._began_s) * _PAUSE
        if self._most_per_s is None:
            return pause_s
        return max(pause_s, max(gone, looked * _SCAN_COST) / self._most_per_s)


def _setting(topic: str) -> str:
    return "forget_views" if topic.startswith("~") else "forget_topics"
