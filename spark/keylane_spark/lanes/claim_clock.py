"""The time that a claim of completeness may name: neither the driver's clock nor Redis' is trusted alone.

A lane that is "complete as of t" is so only as far as t is true. So t is never later than the driver's clock,
nor than the clocks of half of the primaries. Between two comparisons with Redis the monotonic clock counts:
a step of the driver's wall clock moves no claim beyond Redis' time.
"""

import math
import statistics
import threading
from collections.abc import Collection
from typing import NamedTuple

from keylane.adapters.redis.cluster import Cluster, Node
from keylane.adapters.redis.error_replies import RedisError
from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.ports import Clock, Deadline

_TIME = encode_command(b"TIME")
_REFRESH_MS = 5000
_REPLIES_MS = 300
"""How long all primaries together may take: one that hangs must not stop the heartbeat."""
LARGE_SKEW_MS = 1000
"""Clocks that differ by more are reported."""


class _Comparison(NamedTuple):
    """A primary's clock less this process' monotonic clock, at most; the wall clock less the primary's."""

    since_ms: float
    skew_ms: int


class ClaimClock:
    """A clock for claims. Threads share it; each compares it over its own cluster."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._comparisons: dict[Node, _Comparison] = {}

    def compare(self, cluster: Cluster, slots: Collection[int]) -> None:
        """Compare with the primaries of these slots; one that does not answer keeps its last comparison.

        No call may be in flight. Raises StateUnavailable where no slot map can be read.
        """
        if not cluster.nodes:
            with translate_redis_errors():
                cluster.refresh(Deadline.after_ms(_REFRESH_MS, self._clock))
        primaries = sorted({node for slot in slots if (node := cluster.known_primary(slot))})
        limit = Deadline.after_ms(_REPLIES_MS, self._clock)
        sent_ms: dict[Node, float] = {}
        for node in primaries:
            try:
                began_ms = self._monotonic_ms()
                cluster.send(node, _TIME, limit)
                sent_ms[node] = began_ms
            except (RedisError, OSError):
                continue
        found = {}
        for node, began_ms in sent_ms.items():
            try:
                reply = cluster.receive_next(node, limit)
            except (RedisError, OSError):
                continue
            if isinstance(reply, list):
                found[node] = self._comparison(began_ms, int(reply[0]) * 1000 + int(reply[1]) / 1000)
        with self._lock:
            kept = {node: each for node, each in self._comparisons.items() if node in primaries}
            # Without any primary, as while all shards are away, the last ones go on.
            self._comparisons = kept | found or self._comparisons

    def now_ms(self) -> int:
        """The latest time that a claim may name at this moment; 0 before the first comparison."""
        wall_ms = self._clock.now_ms()
        with self._lock:
            since = [each.since_ms for each in self._comparisons.values()]
        if not since:
            return 0
        return min(wall_ms, math.floor(statistics.median_low(since) + self._monotonic_ms()))

    def largest_skew(self) -> tuple[Node, int] | None:
        """The primary whose clock differs most from this machine's, and by how many ms this one is ahead."""
        with self._lock:
            skews = {node: each.skew_ms for node, each in self._comparisons.items()}
        return max(skews.items(), key=lambda each: abs(each[1]), default=None)

    def _comparison(self, began_ms: float, redis_ms: float) -> _Comparison:
        """Redis read its clock between the request and now: its clock shows at least `redis_ms` by now."""
        now_ms, wall_ms = self._monotonic_ms(), self._clock.now_ms()
        return _Comparison(redis_ms - now_ms, round(wall_ms - (now_ms - began_ms) / 2 - redis_ms))

    def _monotonic_ms(self) -> float:
        return self._clock.monotonic_s() * 1000
