"""Settings of what guards a write: rate limits and idempotency keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from keylane.access.callers import SOURCES
from keylane.config.settings import is_set
from keylane.config.table import GUARDS, SETTINGS
from keylane.errors import SettingsError
from keylane.produce.rate_limits import UNITS, Rate, Rule

_LIMITS = "KEYLANE_RATE_LIMITS"
_CLAIM = "KEYLANE_IDEMPOTENCY_IN_PROGRESS_S"
_TIMES_OF_A_WRITE = (
    "KEYLANE_PRODUCE_TIMEOUT_MS",
    "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS",
    "KEYLANE_STATE_TIMEOUT_MS",
)
"""Of its records, of the schemas by which they are checked, and of saving its response."""
_MINUTE_S = 60
_MOST = 10**12
_LONGEST_BURST_S = 3600
_UNITS = {f"{unit}_per_minute": unit for unit in UNITS} | {"max_requests_per_minute": "records"}
"""Fields of a rate and the units that they count. The last one is kprf's name, which counts records there."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Without a Redis there are neither limits nor idempotency keys.

    `limit_timeout_ms` bounds what counting adds to a write, `state_timeout_ms` one look-up of a response.
    `expiry_s`: how long a response is saved. `in_progress_s`: later a request without one counts as failed.
    """

    has_redis: bool
    topics: tuple[Rule, ...]
    callers: tuple[Rule, ...]
    open_on_failure: bool
    limit_timeout_ms: int
    caller: tuple[str, ...]
    expiry_s: int
    in_progress_s: int
    state_timeout_ms: int
    layout_ttl_s: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read all settings. Raises SettingsError."""
        limits = GUARDS.read(environment, _LIMITS)
        for name in limits.keys() - {"topics", "callers"}:
            raise SettingsError(_LIMITS, f"has {name[:100]!r}: its fields are topics and callers")
        topics, callers = _rules(limits, "topics"), _rules(limits, "callers")
        has_redis = is_set(environment, "KEYLANE_REDIS_NODES")
        if (topics or callers) and not has_redis:
            raise SettingsError("KEYLANE_REDIS_NODES", f"is not set: {_LIMITS} needs it")
        return cls(
            has_redis,
            topics,
            callers,
            GUARDS.read(environment, "KEYLANE_RATE_LIMIT_FAILURE") == "open",
            GUARDS.read(environment, "KEYLANE_RATE_LIMIT_TIMEOUT_MS"),
            _sources(environment),
            GUARDS.read(environment, "KEYLANE_IDEMPOTENCY_EXPIRY_S"),
            _claim_s(environment) if has_redis else GUARDS.read(environment, _CLAIM),
            SETTINGS.read(environment, "KEYLANE_STATE_TIMEOUT_MS"),
            SETTINGS.read(environment, "KEYLANE_LAYOUT_TTL_S"),
        )


def _claim_s(environment: Mapping[str, str]) -> int:
    """Return how long a claim on an idempotency key holds.

    It must outlive whatever a write may take: once it has expired, the request is written again.
    """
    claim_s: int = GUARDS.read(environment, _CLAIM)
    longest_ms = sum(SETTINGS.read(environment, each) for each in _TIMES_OF_A_WRITE)
    if claim_s * 1000 <= longest_ms:
        times = ", ".join(_TIMES_OF_A_WRITE)
        raise SettingsError(_CLAIM, f"is {claim_s} s: it must exceed the sum of {times}, {longest_ms} ms")
    return claim_s


def _rules(limits: Mapping[str, Any], kind: str) -> tuple[Rule, ...]:
    rules = limits.get(kind, {})
    if not isinstance(rules, dict):
        raise SettingsError(
            _LIMITS, f"has a field {kind} that is not an object: it must be {GUARDS[_LIMITS].accepts}"
        )
    return tuple(Rule(pattern, _rates(f"{kind}.{pattern}", rates)) for pattern, rates in rules.items())


def _rates(path: str, given: Any) -> tuple[Rate, ...]:
    if not isinstance(given, dict):
        raise SettingsError(
            _LIMITS, f"has an entry {path} that is not an object: it must be {GUARDS[_LIMITS].accepts}"
        )
    for name in given.keys() - _UNITS.keys() - {"burst_s"}:
        known = ", ".join([*_UNITS, "burst_s"])
        raise SettingsError(_LIMITS, f"has an entry {path} with {name[:100]!r}, which is not one of {known}")
    burst_s = _integer(path, given, "burst_s", _LONGEST_BURST_S) if "burst_s" in given else _MINUTE_S
    found = {unit: _integer(path, given, name, _MOST) for name, unit in _UNITS.items() if name in given}
    return tuple(
        Rate(unit, found[unit], max(1, found[unit] * burst_s // _MINUTE_S)) for unit in UNITS if unit in found
    )


def _integer(path: str, given: Mapping[str, Any], name: str, most: int) -> int:
    found = given[name]
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
        raise SettingsError(_LIMITS, f"has an entry {path} whose {name} is not an integer from 1 to {most}")
    return found


def _sources(environment: Mapping[str, str]) -> tuple[str, ...]:
    variable = "KEYLANE_CALLER"
    given = GUARDS.read(environment, variable)
    found = tuple(each.strip() for each in given.split(",")) if given else SOURCES
    for each in found:
        if each not in SOURCES:
            raise SettingsError(variable, f"has {each[:100]!r}, which is not one of {', '.join(SOURCES)}")
    return found
