"""The port `RateLimiter` over Redis Cluster: one key for each subject; all are counted at the same time.

    {keylane:limit:topic:orders}   a hash: unit -> when its bucket is full again (us since 1970)

Each key has its own hash tag, so the subjects are spread over the shards; a key expires once its buckets are
full. The clock is the primary's, so all functions count by the same one.

A dead Redis must not slow every write: the circuit to a node that failed stays open for CIRCUIT_OPEN_S.
"""

import logging
from collections.abc import Sequence
from urllib.parse import quote

from keylane.adapters.redis.connections import Node
from keylane.adapters.redis.scripts import Run, Script, Scripts
from keylane.errors import StateUnavailable
from keylane.ports import Clock, Deadline
from keylane.produce.rate_limits import RateLimitState, RateLimitSubject

CIRCUIT_OPEN_S = 1.0
FIRST_MS = 500.0
"""The least timeout of the first count, which connects; the others have the timeout of the settings."""

_US = 1_000_000
_log = logging.getLogger("keylane")


class RedisRateLimiter:
    """Counts by the script `limit`. One request at a time."""

    def __init__(self, scripts: Scripts, clock: Clock, timeout_ms: float) -> None:
        self._scripts = scripts
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._script = Script.named("limit")
        self._open_until_s: dict[Node | None, float] = {}  # the circuits
        self._is_first = True

    def take(self, subjects: Sequence[RateLimitSubject]) -> list[list[RateLimitState] | None]:
        """See `RateLimiter.take`. A load may be counted twice if its reply is lost, for it is sent again."""
        return self._count(subjects, 1)

    def give_back(self, subjects: Sequence[RateLimitSubject]) -> None:
        """See `RateLimiter.give_back`. Without Redis nothing is given back."""
        self._count(subjects, -1)

    def _count(self, subjects: Sequence[RateLimitSubject], sign: int) -> list[list[RateLimitState] | None]:
        counted: list[list[RateLimitState] | None] = [None] * len(subjects)
        now_s = self._clock.monotonic_s()
        runs = [self._run(subject, sign) for subject in subjects]
        nodes = [self._scripts.node_of(run.key) for run in runs]
        asked = [number for number, node in enumerate(nodes) if self._open_until_s.get(node, 0.0) <= now_s]
        if not asked:
            return counted
        timeout_ms = max(FIRST_MS, self._timeout_ms) if self._is_first else self._timeout_ms
        self._is_first = False
        replies = self._scripts.run([runs[n] for n in asked], Deadline.after_ms(timeout_ms, self._clock))
        for number, reply in zip(asked, replies, strict=True):
            if isinstance(reply, StateUnavailable):
                self._open_circuit(self._scripts.node_of(runs[number].key), reply)
            else:
                counted[number] = _standings(subjects[number], reply)
        return counted

    def _run(self, subject: RateLimitSubject, sign: int) -> Run:
        arguments: list[bytes] = []
        for rate in subject.rates:
            cost = sign * getattr(subject.load, rate.unit)
            arguments += [rate.unit.encode(), b"%d" % cost, b"%d" % rate.per_minute, b"%d" % rate.holds]
        return Run(self._script, key_of(subject), tuple(arguments))

    def _open_circuit(self, node: Node | None, error: StateUnavailable) -> None:
        now_s = self._clock.monotonic_s()
        self._open_until_s = {each: until for each, until in self._open_until_s.items() if until > now_s}
        if node not in self._open_until_s:
            self._open_until_s[node] = now_s + CIRCUIT_OPEN_S
            _log.warning("rate limits can't be counted: %s; cause: %r", error, error.__cause__)


def key_of(subject: RateLimitSubject) -> bytes:
    """The subject's key in Redis. The name is quoted: a brace in it would end the hash tag."""
    return f"{{keylane:limit:{subject.kind}:{quote(subject.name, safe=':/@')}}}".encode()


def _standings(subject: RateLimitSubject, reply: Sequence[int]) -> list[RateLimitState]:
    triples = zip(subject.rates, reply[0::3], reply[1::3], reply[2::3], strict=True)
    return [
        RateLimitState(rate, left, full_us / _US, wait_us / _US) for rate, left, full_us, wait_us in triples
    ]
