"""The indexes of several lanes as one, in key order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import isqrt
from typing import TYPE_CHECKING

from keylane.ports import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.ports import Deadline, State
    from keylane.query.freshness import Watermarks
    from keylane.state.lanes import Lane

    IndexKey = Callable[[bytes, str, int, int, int], bytes]


@dataclass(slots=True)
class _Lane:
    home: Lane
    index_key: bytes
    low: bytes
    batch: int
    keys: deque[bytes] = field(default_factory=deque)
    is_over: bool = False


class Indexes:
    """Keys of lanes, merged: each lane's index is read a batch at a time, so memory is bounded.

    `index_key`: which index, as `codec.index_key`; `bounds`: as ZRANGEBYLEX takes them.

    A batch is what a lane's share of a page comes to, and three deviations more: most pages take one round.
    A lane that gives more than its share, as where a part of the keys decides on it, is read in larger ones.
    """

    def __init__(
        self,
        state: State,
        marks: Watermarks,
        homes: Sequence[Lane],
        index_key: IndexKey,
        bounds: tuple[bytes, bytes],
        *,
        limit: int,
        deadline: Deadline,
    ) -> None:
        layout = marks.layout
        low, self._high = bounds
        self._state = state
        self._marks = marks
        self._deadline = deadline
        share = -(-limit // len(homes))
        batch = min(limit, share + 3 * isqrt(share)) + 1
        self._largest_batch = limit + 1
        self._few = batch // 2
        self._lanes = [
            _Lane(
                home,
                index_key(home.tag, layout.topic, layout.generation, home.partition, home.stripe),
                low,
                batch,
            )
            for home in homes
        ]
        self._heap: list[tuple[bytes, int]] = []
        self._dry = list(range(len(self._lanes)))
        self.last: bytes | None = None

    def take(self, count: int) -> list[tuple[bytes, Lane]]:
        """The next keys in order, fewer than `count` only at the end."""
        taken: list[tuple[bytes, Lane]] = []
        while len(taken) < count and self.has_more():
            key, number = heappop(self._heap)
            taken.append((key, self._lanes[number].home))
            self._push(number)
        if taken:
            self.last = taken[-1][0]
        return taken

    def has_more(self) -> bool:
        """Whether there is a next key; lanes of which none is in hand are read on."""
        while self._dry:
            dry, self._dry = self._dry, []
            # Those that will be dry soon are read on with them: fewer rounds.
            soon = [number for number, lane in enumerate(self._lanes) if self._is_low(lane)]
            self._refill(soon)
            for number in dry:
                self._push(number)
        return bool(self._heap)

    def _is_low(self, lane: _Lane) -> bool:
        return not lane.is_over and len(lane.keys) <= self._few

    def _push(self, number: int) -> None:
        lane = self._lanes[number]
        if lane.keys:
            heappush(self._heap, (lane.keys.popleft(), number))
        elif not lane.is_over:
            self._dry.append(number)

    def _refill(self, numbers: list[int]) -> None:
        calls = []
        for number in numbers:
            lane = self._lanes[number]
            words = (b"ZRANGEBYLEX", lane.index_key, lane.low, self._high)
            calls.append(Call(lane.home.slot, (b"GET", lane.home.watermark_key)))
            calls.append(Call(lane.home.slot, (*words, b"LIMIT", b"0", b"%d" % lane.batch)))
        replies = self._state.run(calls, self._deadline)
        for number, mark, keys in zip(numbers, replies[::2], replies[1::2], strict=True):
            lane = self._lanes[number]
            self._marks.note(lane.home, mark)
            lane.keys.extend(keys)
            lane.is_over = len(keys) < lane.batch
            lane.batch = min(2 * lane.batch, self._largest_batch)
            if keys:
                lane.low = b"(" + keys[-1]
