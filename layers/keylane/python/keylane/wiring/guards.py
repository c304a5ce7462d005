"""Builds what stands before a write, as all wiring does: it imports and makes what the settings ask for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from keylane.config.functions import redis_settings, registry_settings
from keylane.config.schemas import SCHEMAS, schema_rules
from keylane.config.table import SETTINGS
from keylane.errors import SettingsError
from keylane.produce.guards import Guards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.adapters.redis.scripts import Scripts
    from keylane.metrics.meter import Meter
    from keylane.ports import Checks, Clock, IdempotencyStore


def guards_of(environment: Mapping[str, str], clock: Clock, meter: Meter) -> Guards:
    """Limits and idempotency keys, where there is a Redis; that is connected to when there is need.

    Raises SettingsError.
    """
    from keylane.config.guards import GuardSettings  # noqa: PLC0415

    settings = GuardSettings.from_environment(environment)
    if not settings.has_redis:
        return Guards(settings.caller)

    @cache
    def scripts() -> Scripts:
        from keylane.adapters.redis.cluster import Cluster  # noqa: PLC0415
        from keylane.adapters.redis.scripts import Scripts  # noqa: PLC0415

        return Scripts(Cluster(redis_settings(environment), meter))

    @cache
    def idempotency_store() -> IdempotencyStore:
        from keylane.adapters.redis.idempotency import RedisIdempotencyStore  # noqa: PLC0415

        return RedisIdempotencyStore(
            scripts(),
            clock,
            timeout_ms=settings.state_timeout_ms,
            expiry_s=settings.expiry_s,
            in_progress_s=settings.in_progress_s,
        )

    if not settings.topics and not settings.callers:
        return Guards(settings.caller, None, idempotency_store)
    from keylane.adapters.redis.rate_limits import RedisRateLimiter  # noqa: PLC0415
    from keylane.produce.rate_limits import RateLimits  # noqa: PLC0415

    limiter = RedisRateLimiter(scripts(), clock, settings.limit_timeout_ms)
    limits = RateLimits(settings.topics, settings.callers, limiter, settings.open_on_failure, meter)
    return Guards(settings.caller, limits, idempotency_store, meter)


def checks_of(environment: Mapping[str, str], clock: Clock) -> Checks | None:
    """Schemas that values are checked by; None where there are none. Raises SettingsError."""
    rules = schema_rules(environment)
    if not rules:
        return None
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415
    from keylane.adapters.registry.value_checks import ValueChecks  # noqa: PLC0415

    has_subject = any(rule.subject for rule in rules)
    client = RegistryClient(registry_settings(environment)) if has_subject else None
    timeout_ms = SETTINGS.read(environment, "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS")
    try:
        return ValueChecks(rules, client, clock, timeout_ms)
    except ValueError as error:
        raise SettingsError(SCHEMAS, f"has no JSON Schema: {error}") from error
