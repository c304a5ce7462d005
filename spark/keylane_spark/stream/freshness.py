"""The time as of which a lane is complete: what the broker's end offsets, observed over time, prove.

If a partition's end offset was e at time t, a state that holds all offsets below e is complete as of t. So t
is read from the clock before the request to the broker. The end offset is the high watermark: while a
transaction is open, readers of committed records do not reach it, and the state's age grows.

A log's end does not fall. Where it does, the topic is another one, its log was truncated, or the broker does
not know yet that it leads the partition no more. Such an end proves nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from types import MappingProxyType

from keylane.model.kafka import TopicPartition

_MAX_SIGHTS = 1000


class ObservedEnds:
    """The observed end offsets, kept while they can still prove that a lane is complete. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sights: dict[TopicPartition, deque[tuple[int, int]]] = {}
        self._ends: dict[TopicPartition, int] = {}

    def observe(
        self,
        at_ms: int,
        ends: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> list[TopicPartition]:
        """Note the end offsets that a request sent at `at_ms` returned.

        `positions`: what the state had before the request. Returns the partitions whose end is below that,
        or below an earlier end: these ends are not noted.
        """
        fallen = []
        with self._lock:
            for partition, end in ends.items():
                if end < max(self._ends.get(partition, 0), positions.get(partition, 0)):
                    fallen.append(partition)
                    continue
                self._ends[partition] = end
                sights = self._sights.setdefault(partition, deque())
                # Of sights of the same end only the earliest and the latest can prove anything.
                if len(sights) > 1 and sights[-1][1] == end == sights[-2][1]:
                    sights.pop()
                sights.append((at_ms, end))
                if len(sights) > _MAX_SIGHTS:
                    # The state is far behind: half as many will do. The earliest and the latest stay.
                    self._sights[partition] = deque([*list(sights)[:-1:2], sights[-1]])
        return fallen

    def reached(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note the offsets below which the state holds everything; sights that prove less are forgotten."""
        with self._lock:
            for partition, position in positions.items():
                sights = self._sights.get(partition)
                while sights and len(sights) > 1 and sights[1][1] <= position:
                    sights.popleft()

    def complete_as_of_ms(self, partition: TopicPartition, next_offset: int) -> int:
        """The latest time as of which a state with everything below `next_offset` is complete; 0: never."""
        with self._lock:
            return self._proven_ms(partition, next_offset)

    def complete_as_of(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """For each partition that time, and the last observed end offset; 0: never observed."""
        with self._lock:
            return {
                partition: (self._proven_ms(partition, position), self._ends.get(partition, 0))
                for partition, position in positions.items()
            }

    def _proven_ms(self, partition: TopicPartition, next_offset: int) -> int:
        proven_ms = 0
        for at_ms, end in self._sights.get(partition, ()):
            if end > next_offset:
                break
            proven_ms = at_ms
        return proven_ms

    def lag(self, positions: Mapping[TopicPartition, int], topic: str | None = None) -> int:
        """Records (and gaps) between the positions and the last observed ends, of all topics or one."""
        with self._lock:
            return sum(
                max(0, end - positions.get(partition, end))
                for partition, end in self._ends.items()
                if topic is None or partition[0] == topic
            )


def topic_complete_as_of_ms(
    freshness: ObservedEnds, positions: Mapping[TopicPartition, int], topics: Collection[str]
) -> dict[str, int]:
    """For each of these topics the time as of which all its partitions are complete; 0: never.

    It bounds every lane of a topic with strays: a stray may still be unread in any partition.
    """
    bounds: dict[str, int] = {}
    for (topic, partition), position in positions.items():
        if topic in topics:
            complete_ms = freshness.complete_as_of_ms((topic, partition), position)
            bounds[topic] = min(bounds.get(topic, complete_ms), complete_ms)
    return bounds
