"""What a scenario has found, and whether that is what was expected."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.figures import percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

OUTCOMES = {
    200: "200",
    201: "200",
    404: "404",
    412: "412",
    429: "429",
    503: "503",
    504: "504",
    0: "no answer",
}
OTHER = "other"
FINE = {200, 201, 404}


class Event(NamedTuple):
    """One request of the checker. `status`: 0, it was not answered."""

    phase: str
    kind: str
    begun_s: float
    taken_ms: float
    status: int


def outcomes_of(statuses: Iterable[int]) -> dict[str, int]:
    """Count statuses by what they mean here."""
    return dict(Counter(OUTCOMES.get(status, OTHER) for status in statuses))


def percentile_ms(samples: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile; NaN without samples, with which no comparison holds."""
    return percentile(samples, percent) if samples else math.nan


def longest_gap_s(events: Sequence[Event]) -> float:
    """Return the longest time between two answers that were fine, the first and the last event included."""
    if not events:
        return math.inf
    ends = sorted(each.begun_s + each.taken_ms / 1000 for each in events)
    fine = sorted(each.begun_s + each.taken_ms / 1000 for each in events if each.status in FINE)
    times = [min(each.begun_s for each in events), *fine, ends[-1]]
    return max(after - before for before, after in itertools.pairwise(times))


@dataclass(slots=True)
class Found:
    """What the processes of one scenario have seen. `load`: outcomes of the load, if there was one."""

    events: list[Event] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0
    uncertain: int = 0
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    rss_mib: dict[str, float] = field(default_factory=dict)
    load: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def of(self, kind: str, phase: str | None = None) -> list[Event]:
        """Return the events of a kind in a phase, in all of them if it is None."""
        return [each for each in self.events if each.kind == kind and phase in (None, each.phase)]

    def p(self, percent: float, kind: str, phase: str) -> float:
        """Return a percentile of the answers that were fine, in milliseconds."""
        return percentile_ms([each.taken_ms for each in self.of(kind, phase) if each.status in FINE], percent)

    def failed(self, kind: str, phase: str) -> int:
        """Return how many requests had another answer than a good one."""
        return sum(each.status not in FINE for each in self.of(kind, phase))

    def summary(self) -> dict[str, Any]:
        """Return the figures by phase and kind."""
        rows: dict[str, Any] = {}
        for phase, kind in dict.fromkeys((each.phase, each.kind) for each in self.events):
            events = self.of(kind, phase)
            rows.setdefault(phase, {})[kind] = {
                **outcomes_of(each.status for each in events),
                "p50": self.p(50, kind, phase), "p99": self.p(99, kind, phase),
                "max": self.p(100, kind, phase),
                "longest gap, s": round(longest_gap_s(events), 3),
            }  # fmt: skip
        return rows


class Expectation(NamedTuple):
    """What must hold. `text` says it; `shown` gives the figure that decides."""

    text: str
    holds: Callable[[Found], bool]
    shown: Callable[[Found], Any]


class Verdict(NamedTuple):
    text: str
    holds: bool
    shown: str


def judge(found: Found, expectations: Iterable[Expectation]) -> list[Verdict]:
    """Judge what was found, by the expectations and those of every scenario."""
    return [
        Verdict(each.text, bool(each.holds(found)), _shown(each.shown(found)))
        for each in (*ALWAYS, *expectations)
    ]


def _shown(figure: Any) -> str:
    return f"{figure:,.1f}" if isinstance(figure, float) else str(figure)


ALWAYS = (
    Expectation(
        "acknowledged writes: some", lambda found: found.acknowledged > 0, lambda found: found.acknowledged
    ),
    Expectation("none of them lost", lambda found: not found.lost, lambda found: len(found.lost)),
    Expectation("no stale read", lambda found: not found.fault_count, lambda found: found.fault_count),
)


def p99_below(limit_ms: float, kind: str, phase: str) -> Expectation:
    return Expectation(
        f"{kind}s {phase}: p99 below {limit_ms:g} ms",
        lambda found: found.p(99, kind, phase) < limit_ms,
        lambda found: found.p(99, kind, phase),
    )


def none_failed(kind: str, phase: str) -> Expectation:
    return Expectation(
        f"{kind}s {phase}: none fails",
        lambda found: bool(found.of(kind, phase)) and found.failed(kind, phase) == 0,
        lambda found: f"{found.failed(kind, phase)} of {len(found.of(kind, phase))}",
    )


def gap_below(limit_s: float, kind: str, phase: str) -> Expectation:
    return Expectation(
        f"{kind}s {phase}: a good answer at least every {limit_s:g} s",
        lambda found: longest_gap_s(found.of(kind, phase)) < limit_s,
        lambda found: longest_gap_s(found.of(kind, phase)),
    )


def answered_with(allowed: set[int], kind: str, phase: str) -> Expectation:
    """Expect these statuses alone."""

    def others(found: Found) -> int:
        return sum(each.status not in allowed for each in found.of(kind, phase))

    names = ", ".join(str(status) for status in sorted(allowed))
    return Expectation(
        f"{kind}s {phase}: nothing but {names}",
        lambda found: bool(found.of(kind, phase)) and others(found) == 0,
        lambda found: f"{others(found)} others",
    )


def fact_below(limit: float, name: str) -> Expectation:
    return Expectation(
        f"{name}: below {limit:g}",
        lambda found: found.facts.get(name, math.inf) < limit,
        lambda found: found.facts.get(name, "not measured"),
    )
