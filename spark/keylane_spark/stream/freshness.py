"""Until when a lane is known to be complete: what the broker's end offsets, seen over time, prove.

Whoever saw at time t that a partition ends at offset e knows, once all below e is in the state, that the
state holds everything that was there at t. So t is taken before the broker is asked.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from keylane.model.topic_partition import TopicPartition

_MOST_SIGHTS = 1000


class Freshness:
    """Sights of end offsets, as long as they are of use. May be shared between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sights: dict[TopicPartition, deque[tuple[int, int]]] = {}
        self._ends: dict[TopicPartition, int] = {}

    def observe(self, at_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """Note that partitions ended there, asked for at `at_ms` or later."""
        with self._lock:
            for place, end in ends.items():
                self._ends[place] = end
                sights = self._sights.setdefault(place, deque())
                # The earliest and the latest sight of one end offset are all that is ever of use.
                if len(sights) > 1 and sights[-1][1] == end == sights[-2][1]:
                    sights.pop()
                sights.append((at_ms, end))
                if len(sights) > _MOST_SIGHTS:
                    # Far behind: half as many moments will do. The earliest and the latest stay.
                    self._sights[place] = deque([*list(sights)[:-1:2], sights[-1]])

    def reached(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note that the state holds all below: what proves less than that is forgotten."""
        with self._lock:
            for place, position in positions.items():
                sights = self._sights.get(place)
                while sights and len(sights) > 1 and sights[1][1] <= position:
                    sights.popleft()

    def complete_as_of_ms(self, place: TopicPartition, next_offset: int) -> int:
        """The latest time as of which a state that holds all below `next_offset` is whole; 0: never."""
        with self._lock:
            proven_ms = 0
            for at_ms, end in self._sights.get(place, ()):
                if end > next_offset:
                    break
                proven_ms = at_ms
            return proven_ms

    def end(self, place: TopicPartition) -> int:
        """Where the partition ended when last seen; 0: never seen."""
        with self._lock:
            return self._ends.get(place, 0)

    def lag(self, positions: Mapping[TopicPartition, int], topic: str | None = None) -> int:
        """Records (or gaps) between the positions and the ends last seen, of all topics or one."""
        with self._lock:
            return sum(
                max(0, end - positions.get(place, end))
                for place, end in self._ends.items()
                if topic is None or place[0] == topic
            )


def topic_complete_as_of_ms(
    freshness: Freshness, positions: Mapping[TopicPartition, int], topics: Collection[str]
) -> dict[str, int]:
    """For each of the topics the time as of which all of its partitions are whole; 0: never.

    It bounds every lane of a topic with strays: one may still lie unread in any partition.
    """
    bounds: dict[str, int] = {}
    for (topic, partition), position in positions.items():
        if topic in topics:
            complete_ms = freshness.complete_as_of_ms((topic, partition), position)
            bounds[topic] = min(bounds.get(topic, complete_ms), complete_ms)
    return bounds
