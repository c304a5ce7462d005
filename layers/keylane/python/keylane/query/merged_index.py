"""Merges the indexes of several lanes, or the parts of one, in key order."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from math import isqrt

from keylane.ports import Call
from keylane.query.store import Reading
from keylane.state import redis_keys
from keylane.state.lanes import Lane

IndexKey = Callable[[bytes, str, int, int, int], bytes]


@dataclass(slots=True)
class _Source:
    """A part of a lane's index: keys that were read and not taken yet, and where the next batch begins."""

    lane: Lane
    index_key: bytes
    low: bytes
    batch: int
    keys: deque[bytes] = field(default_factory=deque)
    is_exhausted: bool = False

    def add(self, keys: Sequence[bytes], largest_batch: int) -> None:
        """Take the batch that was read: if it is full, the next one is larger."""
        self.keys.extend(keys)
        self.is_exhausted = len(keys) < self.batch
        self.batch = min(2 * self.batch, largest_batch)
        if keys:
            self.low = b"(" + keys[-1]


class MergedIndex:
    """The keys of several lanes in order; each part of an index is read in batches, so memory is bounded.

    `index_key`: names a lane's index, as `redis_keys.index_key`; `bounds`: as ZRANGEBYLEX takes them.
    `prefix`: what its members have before the keys, the same in all of them.

    A batch is a part's share of a page and three standard deviations more: most pages take one round. One
    that has more than its share, as where keys share partition keys, is read in larger batches.
    """

    def __init__(
        self,
        reading: Reading,
        lanes: Sequence[Lane],
        index_key: IndexKey,
        bounds: tuple[bytes, bytes],
        limit: int,
        prefix: bytes = b"",
    ) -> None:
        low, self._high = bounds
        self._cut = len(prefix)
        self._reading = reading
        parts = max(1, reading.layout.options.index)
        share = -(-limit // (len(lanes) * parts))
        batch = min(limit, share + 3 * isqrt(share)) + 1
        self._largest_batch = limit + 1
        self._few = batch // 2
        topic, generation = reading.layout.topic, reading.layout.generation
        self._sources = [
            _Source(lane, key, low, batch)
            for lane in lanes
            for key in redis_keys.parts_of(
                index_key(lane.tag, topic, generation, lane.partition, lane.stripe), parts
            )
        ]
        self._heap: list[tuple[bytes, int]] = []
        self._empty = list(range(len(self._sources)))
        self.last: bytes | None = None

    def take(self, count: int) -> list[tuple[bytes, Lane]]:
        """Return the next keys in order with their lanes; fewer than `count` only at the end."""
        taken: list[tuple[bytes, Lane]] = []
        while len(taken) < count and self.has_more():
            member, number = heappop(self._heap)
            taken.append((member[self._cut :], self._sources[number].lane))
            self._push(number)
        if taken:
            self.last = taken[-1][0]
        return taken

    def has_more(self) -> bool:
        """Return whether there is a next key. Reads on in the lanes that have no key left."""
        while self._empty:
            empty, self._empty = self._empty, []
            # Lanes that will be empty soon are read with them: fewer rounds.
            self._refill([source for source in self._sources if self._is_low(source)])
            for number in empty:
                self._push(number)
        return bool(self._heap)

    def _is_low(self, source: _Source) -> bool:
        return not source.is_exhausted and len(source.keys) <= self._few

    def _push(self, number: int) -> None:
        source = self._sources[number]
        if source.keys:
            heappush(self._heap, (source.keys.popleft(), number))
        elif not source.is_exhausted:
            self._empty.append(number)

    def _refill(self, sources: Sequence[_Source]) -> None:
        by_lane = [(lane, list(parts)) for lane, parts in groupby(sources, lambda source: source.lane)]
        calls = []
        for lane, parts in by_lane:
            calls.append(Call(lane.slot, (b"GET", lane.watermark_key)))
            for source in parts:
                words = (b"ZRANGEBYLEX", source.index_key, source.low, self._high)
                calls.append(Call(lane.slot, (*words, b"LIMIT", b"0", b"%d" % source.batch)))
        replies = iter(self._reading.run(calls))
        for lane, parts in by_lane:
            self._reading.watermarks.note(lane, next(replies))
            for source in parts:
                source.add(next(replies), self._largest_batch)
