"""Settings of what stands before a write: rate limits, idempotency keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from keylane.access.callers import SOURCES
from keylane.config.env import json_object, number
from keylane.errors import SettingsError
from keylane.produce.rate_limits import UNITS, Rate, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMITS = "KEYLANE_RATE_LIMITS"
_EXAMPLE = '{"topics": {"a*": {"records_per_minute": 600}}, "callers": {"*": {"bytes_per_minute": 9000}}}'
_MINUTE_S = 60
MOST = 10**12
LONGEST_BURST_S = 3600
LONGEST_EXPIRY_S = 30 * 86_400


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Without a Redis there are no limits, and no idempotency keys.

    `limit_timeout_ms` bounds what counting may add to a write, `state_timeout_ms` one look at a key's answer.
    `expiry_s`: how long an answer is kept. `in_progress_s`: after it a request without one is taken for dead.
    """

    has_redis: bool = False
    topics: tuple[Rule, ...] = ()
    callers: tuple[Rule, ...] = ()
    open_on_failure: bool = True
    limit_timeout_ms: int = 50
    caller: tuple[str, ...] = SOURCES
    expiry_s: int = 86_400
    in_progress_s: int = 30
    state_timeout_ms: int = 1_000

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all at once. Raises SettingsError."""
        topics, callers = _limits(environment)
        has_redis = bool(environment.get("KEYLANE_REDIS_NODES", "").strip())
        if (topics or callers) and not has_redis:
            raise SettingsError("KEYLANE_REDIS_NODES", f"is not set: {LIMITS} needs it")
        return cls(
            has_redis,
            topics,
            callers,
            _failure(environment) == "open",
            number(environment, "KEYLANE_RATE_LIMIT_TIMEOUT_MS", 50),
            _sources(environment),
            number(environment, "KEYLANE_IDEMPOTENCY_EXPIRY_S", 86_400, most=LONGEST_EXPIRY_S),
            number(environment, "KEYLANE_IDEMPOTENCY_IN_PROGRESS_S", 30, most=900),
            number(environment, "KEYLANE_STATE_TIMEOUT_MS", 1_000),
        )


def _limits(environment: Mapping[str, str]) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    given = json_object(environment, LIMITS, _EXAMPLE)
    for name in given.keys() - {"topics", "callers"}:
        raise SettingsError(LIMITS, f"has {name[:100]!r}, which is neither topics nor callers")
    return _rules(given, "topics"), _rules(given, "callers")


def _rules(given: Mapping[str, Any], kind: str) -> tuple[Rule, ...]:
    rules = given.get(kind, {})
    if not isinstance(rules, dict):
        raise SettingsError(LIMITS, f"has {kind} that are no object like {_EXAMPLE}")
    return tuple(Rule(pattern, _rates(f"{kind}.{pattern}", rates)) for pattern, rates in rules.items())


def _rates(place: str, given: Any) -> tuple[Rate, ...]:
    if not isinstance(given, dict):
        raise SettingsError(LIMITS, f"has as {place} no object like {_EXAMPLE}")
    # kprf's name; each record counts there.
    names = {f"{unit}_per_minute": unit for unit in UNITS} | {"max_requests_per_minute": "records"}
    for name in given.keys() - names.keys() - {"burst_s"}:
        known = ", ".join([*names, "burst_s"])
        raise SettingsError(LIMITS, f"has in {place} {name[:100]!r}, which is none of {known}")
    burst_s = _whole(place, given, "burst_s", LONGEST_BURST_S) if "burst_s" in given else _MINUTE_S
    found = {unit: _whole(place, given, name, MOST) for name, unit in names.items() if name in given}
    return tuple(
        Rate(unit, found[unit], max(1, found[unit] * burst_s // _MINUTE_S)) for unit in UNITS if unit in found
    )


def _whole(place: str, given: Mapping[str, Any], name: str, most: int) -> int:
    found = given[name]
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
        raise SettingsError(LIMITS, f"has in {place} a {name} that is no whole number of 1 to {most}")
    return found


def _failure(environment: Mapping[str, str]) -> str:
    variable = "KEYLANE_RATE_LIMIT_FAILURE"
    found = environment.get(variable, "").strip() or "open"
    if found not in {"open", "closed"}:
        raise SettingsError(variable, f"is {found!r}, neither open nor closed")
    return found


def _sources(environment: Mapping[str, str]) -> tuple[str, ...]:
    variable = "KEYLANE_CALLER"
    given = environment.get(variable, "").strip()
    if not given:
        return SOURCES
    found = tuple(each.strip() for each in given.split(","))
    for each in found:
        if each not in SOURCES:
            raise SettingsError(variable, f"names {each[:100]!r}, which is none of {', '.join(SOURCES)}")
    return found
