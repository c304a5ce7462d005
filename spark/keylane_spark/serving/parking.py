"""Watches the parked slots of an opening: says what is parked, and notices when it takes writes again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from keylane.errors import StateUnavailable, TopicChanged
from keylane.ports import Clock, Deadline
from keylane_spark.context import JobContext
from keylane_spark.lanes.cluster import Cluster, RedisSettings
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions
from keylane_spark.lanes.parked_slots import writable
from keylane_spark.lanes.record_copies import MAJORITY
from keylane_spark.lanes.record_copies import SLOTS as RECORD_SLOTS
from keylane_spark.stream.away_leaders import numbered
from keylane_spark.stream.openings import Openings

_PROBE = WriteOptions(retry_budget_s=0.2, attempt_timeout_s=1.0)
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 15.0


class ParkingWatch:
    """Probes the parked slots of one opening, with pauses that grow. `check` is called by one thread."""

    def __init__(self, context: JobContext, openings: Openings) -> None:
        self._context = context
        self._openings = openings
        self._named = -1
        self._pause_s = _FIRST_PAUSE_S
        self._next_s = context.clock.monotonic_s() + _FIRST_PAUSE_S

    def check(self) -> None:
        """Raise TopicChanged when a parked slot takes writes again: all lanes are to be opened then."""
        slots = self._openings.serving.parked
        if not slots:
            return
        if len(slots) != self._named:
            self._named = len(slots)
            self._say_parked()
        if self._context.clock.monotonic_s() < self._next_s:
            return
        own = self._openings.parked.reasons
        back = writable_slots(self._context.redis, self._context.clock, own)
        if back and self._has_records():
            raise TopicChanged(f"{len(back)} parked slots take writes again")
        self._pause_s = min(self._pause_s * 2, _LAST_PAUSE_S)
        self._next_s = self._context.clock.monotonic_s() + self._pause_s

    def _has_records(self) -> bool:
        """Whether the lanes could be opened: two copies of the topics' records suffice."""
        slots = RECORD_SLOTS.values()
        return len(writable_slots(self._context.redis, self._context.clock, slots)) >= MAJORITY

    def _say_parked(self) -> None:
        by_topic: dict[tuple[str, str], list[int]] = {}
        for (topic, partition), why in sorted(self._openings.parked_partitions.items()):
            by_topic.setdefault((topic, why), []).append(partition)
        for (topic, why), partitions in by_topic.items():
            self._context.say(f"parked: partitions {numbered(partitions)} of topic {topic!r}: {why}")


def writable_slots(redis: RedisSettings, clock: Clock, slots: Iterable[int]) -> set[int]:
    """Those of the slots that take writes now; none where no node answers."""
    with contextlib.closing(Cluster(redis)) as cluster, contextlib.suppress(StateUnavailable):
        cluster.refresh(Deadline.after_ms(_PROBE.attempt_timeout_s * 1000, clock))
        return writable(FunctionLibrary(cluster, clock, _PROBE), slots)
    return set()
