"""Rate limits: how much a minute lets into a topic, and how much of one caller, in all environments together.

Three units are counted: requests, records, and bytes of keys, values and headers. Each limit is a bucket that
fills at its rate and holds what `burst_s` seconds give, a minute's worth by default. A request that is larger
than a bucket is let through when that is full, and paid for afterwards.

A caller over its limit is refused the whole request. A topic over its limit refuses the request's records for
it, all of them; those for other topics are written. What is refused takes nothing from any limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from keylane.errors import RateLimited, StateUnavailable
from keylane.metrics.meter import NO_METER, Meter
from keylane.model.patterns import fits
from keylane.model.records import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane.model.records import NewRecord

UNITS = ("requests", "records", "bytes")
CALLER, TOPIC = "caller", "topic"


@dataclass(frozen=True, slots=True)
class Rate:
    """One limit: `per_minute` of a unit, of which `holds` may come at once."""

    unit: str
    per_minute: int
    holds: int


class Rule(NamedTuple):
    """The rates of all names that fit the pattern, each by itself; `*` stands for any characters."""

    pattern: str
    rates: tuple[Rate, ...]


UNRULED = Rule("", ())


class RequestLoad(NamedTuple):
    """What is to be counted, a number for each of UNITS."""

    requests: int
    records: int
    bytes: int


class RateLimitSubject(NamedTuple):
    """Who is limited, a TOPIC or a CALLER, by the rule of that pattern, and what this request asks of it."""

    kind: str
    name: str
    rates: tuple[Rate, ...]
    load: RequestLoad
    pattern: str = ""


class RateLimitState(NamedTuple):
    """Where a limit stands: what is left, seconds until its bucket is full, and until it takes this."""

    rate: Rate
    left: int
    full_in_s: float
    wait_s: float


class RateLimiter(Protocol):
    """Counts. None for a subject whose count can't be had."""

    def take(self, subjects: Sequence[RateLimitSubject]) -> list[list[RateLimitState] | None]:
        """Take each subject's load from all its limits, or from none of them."""

    def give_back(self, subjects: Sequence[RateLimitSubject]) -> None:
        """Undo what was taken."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Which topics refuse their records, and the headers that tell of the limits."""

    refused: dict[str, RateLimited]
    headers: dict[str, str]


UNLIMITED = Admission({}, {})


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The rules, and who counts. `open_on_failure`: what can't be counted is let through."""

    topics: tuple[Rule, ...]
    callers: tuple[Rule, ...]
    limiter: RateLimiter
    open_on_failure: bool = True
    meter: Meter = NO_METER

    def admit(self, caller: str, records: Sequence[NewRecord]) -> Admission:
        """Count a request. Raises RateLimited for the caller, StateUnavailable where nobody can count."""
        subjects = self._subjects(caller, records)
        if not subjects:
            return UNLIMITED
        standings = self.limiter.take(subjects)
        found = list(zip(subjects, standings, strict=True))
        taken = [subject for subject, each in found if each and not refusing(each)]
        if None in standings:
            self.meter.count("LimitsUncounted", standings.count(None))
        if None in standings and not self.open_on_failure:
            self.limiter.give_back(taken)
            raise StateUnavailable("the rate limits can't be counted for now: nothing was written")
        headers = headers_of([limit for each in standings for limit in each or ()])
        refused = {
            subject: _refusal(subject, refusing(each), headers)
            for subject, each in found
            if each and refusing(each)
        }
        if refused:
            self.limiter.give_back(_undone(taken, refused))
        for subject, error in refused.items():
            if subject.kind == CALLER:
                raise error
        return Admission({subject.name: error for subject, error in refused.items()}, headers)

    def _subjects(self, caller: str, records: Sequence[NewRecord]) -> list[RateLimitSubject]:
        """Those that have limits, the caller first."""
        by_topic: dict[str, RequestLoad] = {}
        for record in records:
            requests, count, size = by_topic.get(record.topic, (1, 0, 0))
            by_topic[record.topic] = RequestLoad(requests, count + 1, size + size_of(record))
        loads = by_topic.values()
        whole = RequestLoad(1, sum(load.records for load in loads), sum(load.bytes for load in loads))
        rule = rule_of(self.callers, caller)
        subjects = [RateLimitSubject(CALLER, caller, rule.rates, whole, rule.pattern)]
        for topic, load in by_topic.items():
            # What can't be a topic's name is refused as such.
            rule = rule_of(self.topics, topic) if is_topic_name(topic) else UNRULED
            subjects.append(RateLimitSubject(TOPIC, topic, rule.rates, load, rule.pattern))
        return [subject for subject in subjects if subject.rates]


def rule_of(rules: Sequence[Rule], name: str) -> Rule:
    """The first rule that fits, else UNRULED."""
    return next((rule for rule in rules if fits(rule.pattern, name)), UNRULED)


def size_of(record: NewRecord) -> int:
    """Bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


def refusing(standings: Sequence[RateLimitState]) -> list[RateLimitState]:
    """Those that refuse."""
    return [each for each in standings if each.wait_s > 0]


def headers_of(standings: Sequence[RateLimitState]) -> dict[str, str]:
    """What the answer tells: of the limit that refuses for longest, else of the one with the least left."""
    if not standings:
        return {}
    told = min(standings, key=lambda each: (-each.wait_s, each.left / each.rate.holds))
    return {
        "RateLimit-Limit": str(told.rate.per_minute),
        "RateLimit-Remaining": str(told.left),
        "RateLimit-Reset": str(math.ceil(told.full_in_s)),
        "RateLimit-Policy": f'{told.rate.per_minute};w=60;burst={told.rate.holds};comment="{told.rate.unit}"',
    }


def _refusal(
    subject: RateLimitSubject, refusing: Sequence[RateLimitState], headers: dict[str, str]
) -> RateLimited:
    longest = max(refusing, key=lambda each: each.wait_s)
    who = f"topic {subject.name!r} takes" if subject.kind == TOPIC else "this caller may send"
    wait_s = max(1, math.ceil(longest.wait_s))
    what = f"{who} {longest.rate.per_minute} {longest.rate.unit} a minute"
    sentence = f"{what}: nothing of this was written, it may be in {wait_s} s"
    return RateLimited(sentence, wait_s, headers, subject.pattern)


def _undone(
    taken: Sequence[RateLimitSubject], refused: Mapping[RateLimitSubject, RateLimited]
) -> list[RateLimitSubject]:
    """What was taken for records that are not written after all."""
    if any(subject.kind == CALLER for subject in refused):
        return list(taken)
    callers = [subject for subject in taken if subject.kind == CALLER]
    if not callers:
        return []
    [caller] = callers
    records = sum(subject.load.records for subject in refused)
    size = sum(subject.load.bytes for subject in refused)
    requests = 1 if records == caller.load.records else 0
    return [caller._replace(load=RequestLoad(requests, records, size))]
