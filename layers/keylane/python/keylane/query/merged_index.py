"""Merges the indexes of several lanes, in key order."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import isqrt

from keylane.ports import Call
from keylane.query.store import Reading
from keylane.state.lanes import Lane

IndexKey = Callable[[bytes, str, int, int, int], bytes]


@dataclass(slots=True)
class _Source:
    """A lane's index: keys that were read and not taken yet, and where the next batch begins."""

    lane: Lane
    index_key: bytes
    low: bytes
    batch: int
    keys: deque[bytes] = field(default_factory=deque)
    is_exhausted: bool = False


class MergedIndex:
    """The keys of several lanes in order; each lane's index is read in batches, so memory is bounded.

    `index_key`: names a lane's index, as `redis_keys.index_key`; `bounds`: as ZRANGEBYLEX takes them.

    A batch is a lane's share of a page and three standard deviations more: most pages take one round. A lane
    that has more than its share, as where keys share partition keys, is read in larger batches.
    """

    def __init__(
        self,
        reading: Reading,
        lanes: Sequence[Lane],
        index_key: IndexKey,
        bounds: tuple[bytes, bytes],
        limit: int,
    ) -> None:
        low, self._high = bounds
        self._reading = reading
        share = -(-limit // len(lanes))
        batch = min(limit, share + 3 * isqrt(share)) + 1
        self._largest_batch = limit + 1
        self._few = batch // 2
        topic, generation = reading.layout.topic, reading.layout.generation
        self._sources = [
            _Source(lane, index_key(lane.tag, topic, generation, lane.partition, lane.stripe), low, batch)
            for lane in lanes
        ]
        self._heap: list[tuple[bytes, int]] = []
        self._empty = list(range(len(self._sources)))
        self.last: bytes | None = None

    def take(self, count: int) -> list[tuple[bytes, Lane]]:
        """Return the next keys in order with their lanes; fewer than `count` only at the end."""
        taken: list[tuple[bytes, Lane]] = []
        while len(taken) < count and self.has_more():
            key, number = heappop(self._heap)
            taken.append((key, self._sources[number].lane))
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
        calls = []
        for source in sources:
            words = (b"ZRANGEBYLEX", source.index_key, source.low, self._high)
            calls.append(Call(source.lane.slot, (b"GET", source.lane.watermark_key)))
            calls.append(Call(source.lane.slot, (*words, b"LIMIT", b"0", b"%d" % source.batch)))
        replies = self._reading.run(calls)
        for source, watermark, keys in zip(sources, replies[::2], replies[1::2], strict=True):
            self._reading.watermarks.note(source.lane, watermark)
            source.keys.extend(keys)
            source.is_exhausted = len(keys) < source.batch
            source.batch = min(2 * source.batch, self._largest_batch)
            if keys:
                source.low = b"(" + keys[-1]
