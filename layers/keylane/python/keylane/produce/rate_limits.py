"""Rate limits: how much a topic accepts, and a caller may send, in a minute; all environments count together.

Three units are counted: requests, records, and bytes of keys, values and headers. Each limit is a bucket that
fills at its rate and holds what `burst_s` seconds add, a minute's worth by default. A request that is larger
than a bucket is admitted when the bucket is full, which then stays empty for as long as the excess takes.

If a caller is over its limit, its complete request is refused. If a topic is over its limit, all of the
request's records for it are refused, and records for other topics are written. Refused records don't count.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from keylane.errors import RateLimited, StateUnavailable
from keylane.metrics.meter import NO_METER, Meter
from keylane.model.patterns import fits
from keylane.model.records import NewRecord, is_topic_name

UNITS = ("requests", "records", "bytes")
CALLER, TOPIC = "caller", "topic"


@dataclass(frozen=True, slots=True)
class Rate:
    """One limit: `per_minute` of a unit, of which `holds` may arrive at once."""

    unit: str
    per_minute: int
    holds: int


class Rule(NamedTuple):
    """The rates of every name that matches the pattern; `*` matches any characters."""

    pattern: str
    rates: tuple[Rate, ...]


UNRULED = Rule("", ())


class RequestLoad(NamedTuple):
    """What a request takes from a limit, a number for each of UNITS."""

    requests: int
    records: int
    bytes: int


class RateLimitSubject(NamedTuple):
    """A TOPIC or CALLER with the rates of its rule, the rule's pattern, and what this request takes."""

    kind: str
    name: str
    rates: tuple[Rate, ...]
    load: RequestLoad
    pattern: str = ""


class RateLimitState(NamedTuple):
    """A limit after a request: what is left, and the seconds until it is full and until it admits it."""

    rate: Rate
    left: int
    full_in_s: float
    wait_s: float


class RateLimiter(Protocol):
    """Counts what subjects take."""

    def take(self, subjects: Sequence[RateLimitSubject]) -> list[list[RateLimitState] | None]:
        """Take each subject's load from all of its limits, or from none if one would be exceeded.

        Return the state of each subject's limits, in order; None for a subject that can't be counted.
        """

    def give_back(self, subjects: Sequence[RateLimitSubject]) -> None:
        """Give the subjects' loads back to their limits."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Topics over their limit, with their errors, and the response's headers about the limits."""

    refused: dict[str, RateLimited]
    headers: dict[str, str]


UNLIMITED = Admission({}, {})


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The rules, and the limiter. `open_on_failure`: requests that can't be counted are admitted."""

    topics: tuple[Rule, ...]
    callers: tuple[Rule, ...]
    limiter: RateLimiter
    open_on_failure: bool = True
    meter: Meter = NO_METER

    def admit(self, caller: str, records: Sequence[NewRecord]) -> Admission:
        """Count a request. Raises RateLimited if the caller is over its limit, StateUnavailable."""
        subjects = self._subjects(caller, records)
        if not subjects:
            return UNLIMITED
        found = self._take(subjects)
        states = [each for _, each in found]
        taken = [subject for subject, each in found if each and not exceeded(each)]
        if None in states:
            self.meter.count("LimitsUncounted", states.count(None))
        if None in states and not self.open_on_failure:
            self.limiter.give_back(taken)
            raise StateUnavailable("rate limits can't be counted for now: nothing was written")
        headers = render_headers([limit for each in states for limit in each or ()])
        refused = {
            subject: _refusal(subject, exceeded(each), headers)
            for subject, each in found
            if each and exceeded(each)
        }
        if refused:
            self.limiter.give_back(_to_give_back(taken, refused))
        for subject, error in refused.items():
            if subject.kind == CALLER:
                raise error
        return Admission({subject.name: error for subject, error in refused.items()}, headers)

    def _take(
        self, subjects: Sequence[RateLimitSubject]
    ) -> list[tuple[RateLimitSubject, list[RateLimitState] | None]]:
        """Count the caller, and the topics unless the caller is over its limit.

        What a caller is refused must not use up the limits of other callers, not even until it is given back.
        """
        found: list[tuple[RateLimitSubject, list[RateLimitState] | None]] = []
        for kind in (CALLER, TOPIC):
            own = [subject for subject in subjects if subject.kind == kind]
            if own and not any(each and exceeded(each) for _, each in found):
                found += zip(own, self.limiter.take(own), strict=True)
        return found

    def _subjects(self, caller: str, records: Sequence[NewRecord]) -> list[RateLimitSubject]:
        """The subjects of a request that have limits."""
        by_topic: dict[str, RequestLoad] = {}
        for record in records:
            requests, count, size = by_topic.get(record.topic, (1, 0, 0))
            by_topic[record.topic] = RequestLoad(requests, count + 1, size + size_of(record))
        loads = by_topic.values()
        total = RequestLoad(1, sum(load.records for load in loads), sum(load.bytes for load in loads))
        rule = rule_of(self.callers, caller)
        subjects = [RateLimitSubject(CALLER, caller, rule.rates, total, rule.pattern)]
        for topic, load in by_topic.items():
            # A record with an invalid topic name is rejected later, for its name.
            rule = rule_of(self.topics, topic) if is_topic_name(topic) else UNRULED
            subjects.append(RateLimitSubject(TOPIC, topic, rule.rates, load, rule.pattern))
        return [subject for subject in subjects if subject.rates]


def rule_of(rules: Sequence[Rule], name: str) -> Rule:
    """The first rule that matches, else UNRULED."""
    return next((rule for rule in rules if fits(rule.pattern, name)), UNRULED)


def size_of(record: NewRecord) -> int:
    """Bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


def exceeded(states: Sequence[RateLimitState]) -> list[RateLimitState]:
    """The limits that refuse the request."""
    return [each for each in states if each.wait_s > 0]


def render_headers(states: Sequence[RateLimitState]) -> dict[str, str]:
    """Return the RateLimit headers, {} without limits.

    They describe the limit that refuses the request for longest, or else the one with the least left.
    """
    if not states:
        return {}
    shown = min(states, key=lambda each: (-each.wait_s, each.left / each.rate.holds))
    rate = shown.rate
    return {
        "RateLimit-Limit": str(rate.per_minute),
        "RateLimit-Remaining": str(shown.left),
        "RateLimit-Reset": str(math.ceil(shown.full_in_s)),
        "RateLimit-Policy": f'{rate.per_minute};w=60;burst={rate.holds};comment="{rate.unit}"',
    }


def _refusal(
    subject: RateLimitSubject, limits: Sequence[RateLimitState], headers: dict[str, str]
) -> RateLimited:
    longest = max(limits, key=lambda each: each.wait_s)
    who = f"topic {subject.name!r} takes" if subject.kind == TOPIC else "this caller may send"
    wait_s = max(1, math.ceil(longest.wait_s))
    what = f"{who} {longest.rate.per_minute} {longest.rate.unit} a minute"
    sentence = f"{what}: nothing of this was written; try again in {wait_s} s"
    return RateLimited(sentence, wait_s, headers, subject.pattern)


def _to_give_back(
    taken: Sequence[RateLimitSubject], refused: Mapping[RateLimitSubject, RateLimited]
) -> list[RateLimitSubject]:
    """What to give back: the load of records that are not written after all."""
    callers = [subject for subject in taken if subject.kind == CALLER]
    if not callers:
        return []
    [caller] = callers
    records = sum(subject.load.records for subject in refused)
    size = sum(subject.load.bytes for subject in refused)
    requests = 1 if records == caller.load.records else 0
    return [caller._replace(load=RequestLoad(requests, records, size))]
