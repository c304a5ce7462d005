"""Until when a lane is known to be complete: what the broker's end offsets, seen over time, prove.

Whoever saw at time t that a partition ends at offset e knows, once all below e is in the state, that the
state holds everything that was there at t. So t is taken before the broker is asked.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = tuple[str, int]
"""Topic and partition."""


class Freshness:
    """Observations of end offsets, until the state has reached them. May be shared between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Place, deque[tuple[int, int]]] = {}
        self._proven: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}

    def observe(self, at_ms: int, ends: Mapping[Place, int]) -> None:
        """Note that partitions ended there, asked for at `at_ms` or later."""
        with self._lock:
            for place, end in ends.items():
                self._ends[place] = end
                waiting = self._open.setdefault(place, deque())
                # The earliest and the latest sight of one end offset are all that is ever of use.
                if len(waiting) > 1 and waiting[-1][1] == end == waiting[-2][1]:
                    waiting.pop()
                waiting.append((at_ms, end))

    def complete_as_of_ms(self, place: Place, next_offset: int) -> int:
        """The latest time as of which a state that holds all below `next_offset` is whole; 0: never."""
        with self._lock:
            waiting = self._open.get(place)
            while waiting and waiting[0][1] <= next_offset:
                self._proven[place] = waiting.popleft()[0]
            return self._proven.get(place, 0)

    def lag(self, positions: Mapping[Place, int]) -> int:
        """Records (or gaps) between the positions and the ends last seen."""
        with self._lock:
            return sum(max(0, end - positions.get(place, end)) for place, end in self._ends.items())
