"""The port `RateLimiter` over Redis Cluster: one key for each subject, all asked at the same time.

    {keylane:limit:topic:orders}   a hash: unit -> when its bucket is full again (us since 1970)

Each has a slot of its own, so that no shard has all of them; it is gone once its buckets are full. Time is
the server's: whoever counts on a primary counts by one clock.

A dead Redis must not slow each write: a node that failed is left alone for REST_S.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

from keylane.adapters.redis.scripts import Run, Script
from keylane.errors import StateUnavailable
from keylane.ports import Deadline
from keylane.produce.rate_limits import RateLimitState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.redis.cluster import Node
    from keylane.adapters.redis.scripts import Scripts
    from keylane.ports import Clock
    from keylane.produce.rate_limits import RateLimitSubject

REST_S = 1.0
FIRST_MS = 500.0
"""What the first count may take, which connects; each one after it has the settings' time."""

_US = 1_000_000
_log = logging.getLogger("keylane")


class RedisRateLimiter:
    """Counts by the script `limit`. One request at a time."""

    def __init__(self, scripts: Scripts, clock: Clock, timeout_ms: float) -> None:
        self._scripts = scripts
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._script = Script.named("limit")
        self._resting: dict[Node | None, float] = {}
        self._is_first = True

    def take(self, subjects: Sequence[RateLimitSubject]) -> list[list[RateLimitState] | None]:
        """As `RateLimiter.take` has it; where a reply was lost, a load may have been taken twice."""
        return self._count(subjects, 1)

    def give_back(self, subjects: Sequence[RateLimitSubject]) -> None:
        """As `RateLimiter.give_back` has it, where Redis can be reached."""
        self._count(subjects, -1)

    def _count(self, subjects: Sequence[RateLimitSubject], sign: int) -> list[list[RateLimitState] | None]:
        counted: list[list[RateLimitState] | None] = [None] * len(subjects)
        now_s = self._clock.monotonic_s()
        runs = [self._run(subject, sign) for subject in subjects]
        homes = [self._scripts.home(run.key) for run in runs]
        asked = [number for number, home in enumerate(homes) if self._resting.get(home, 0.0) <= now_s]
        if not asked:
            return counted
        within_ms = FIRST_MS if self._is_first else self._timeout_ms
        self._is_first = False
        replies = self._scripts.run([runs[n] for n in asked], Deadline.after_ms(within_ms, self._clock))
        for number, reply in zip(asked, replies, strict=True):
            if isinstance(reply, StateUnavailable):
                self._rest(self._scripts.home(runs[number].key), reply)
            else:
                counted[number] = _standings(subjects[number], reply)
        return counted

    def _run(self, subject: RateLimitSubject, sign: int) -> Run:
        arguments: list[bytes] = []
        for rate in subject.rates:
            cost = sign * getattr(subject.load, rate.unit)
            arguments += [rate.unit.encode(), b"%d" % cost, b"%d" % rate.per_minute, b"%d" % rate.holds]
        return Run(self._script, key_of(subject), tuple(arguments))

    def _rest(self, node: Node | None, error: StateUnavailable) -> None:
        now_s = self._clock.monotonic_s()
        self._resting = {each: until for each, until in self._resting.items() if until > now_s}
        if node not in self._resting:
            self._resting[node] = now_s + REST_S
            _log.warning("rate limits can't be counted: %s; cause: %r", error, error.__cause__)


def key_of(subject: RateLimitSubject) -> bytes:
    """The subject's key in Redis: braces in a name would end the hash tag."""
    return f"{{keylane:limit:{subject.kind}:{quote(subject.name, safe=':/@')}}}".encode()


def _standings(subject: RateLimitSubject, reply: Sequence[int]) -> list[RateLimitState]:
    triples = zip(subject.rates, reply[0::3], reply[1::3], reply[2::3], strict=True)
    return [
        RateLimitState(rate, left, full_us / _US, wait_us / _US) for rate, left, full_us, wait_us in triples
    ]
