"""Builds what guards a write: rate limits, idempotency keys, schemas, what readers expect of topics.

It imports what the settings need.
"""

from __future__ import annotations

from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

from keylane.adapters.aws import references
from keylane.config.functions import renewable_redis, renewable_registry
from keylane.config.guards import GuardSettings
from keylane.config.schemas import SCHEMAS
from keylane.config.settings import is_set
from keylane.errors import RegistryUnavailable, SettingsError
from keylane.produce.guards import Guards
from keylane.produce.topic_formats import TopicFormats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.adapters.redis.cluster import ClusterClient
    from keylane.adapters.redis.scripts import Scripts
    from keylane.adapters.registry.circuit import Circuit
    from keylane.adapters.registry.compiled import CompiledSchemas
    from keylane.metrics.meter import Meter
    from keylane.model.records import Layout
    from keylane.model.schema_rules import SchemaRule
    from keylane.ports import Checks, Clock, Deadline
    from keylane.produce.guards import IdempotencyStore
    from keylane.produce.rate_limits import RateLimits
    from keylane.query.layouts import Layouts
    from keylane.wiring.runtime import Runtime


class RedisGuards:
    """What guards a write by its state in Redis: each part is built when it is first needed.

    `environment`: with its references, which are resolved again where Redis rejects the credentials.
    """

    def __init__(
        self, runtime: Runtime, environment: Mapping[str, str], settings: GuardSettings, meter: Meter
    ) -> None:
        self._runtime = runtime
        self._environment = environment
        self._settings = settings
        self._meter = meter

    def limits(self) -> RateLimits:
        """Return the rate limits."""
        from keylane.adapters.redis.rate_limits import RedisRateLimiter  # noqa: PLC0415
        from keylane.produce.rate_limits import RateLimits  # noqa: PLC0415

        settings = self._settings
        limiter = RedisRateLimiter(self._scripts, self._runtime.clock, settings.limit_timeout_ms)
        return RateLimits(settings.topics, settings.callers, limiter, settings.open_on_failure, self._meter)

    def idempotency_store(self) -> IdempotencyStore:
        """Return the store of idempotency keys."""
        return self._idempotency_store

    @cached_property
    def _idempotency_store(self) -> IdempotencyStore:
        from keylane.adapters.redis.idempotency import RedisIdempotencyStore  # noqa: PLC0415

        return RedisIdempotencyStore(
            self._scripts,
            self._runtime.clock,
            timeout_ms=self._settings.state_timeout_ms,
            expiry_s=self._settings.expiry_s,
            in_progress_s=self._settings.in_progress_s,
        )

    def known(self, topic: str) -> Layout | None:
        """See `ports.LayoutReader`."""
        return self._layouts.known(topic)

    def get(self, topic: str, deadline: Deadline) -> Layout:
        """See `ports.LayoutReader`."""
        return self._layouts.get(topic, deadline)

    @cached_property
    def _layouts(self) -> Layouts:
        from keylane.adapters.redis.state import RedisState  # noqa: PLC0415

        return self._runtime.open_layouts(RedisState(self._cluster), self._settings.layout_ttl_s)

    @cached_property
    def _scripts(self) -> Scripts:
        from keylane.adapters.redis.scripts import Scripts  # noqa: PLC0415

        return Scripts(self._cluster)

    @cached_property
    def _cluster(self) -> ClusterClient:
        return self._runtime.open_cluster(renewable_redis(self._environment), self._meter)


def build_guards(runtime: Runtime, environment: Mapping[str, str], meter: Meter) -> Guards:
    """Return the guards of a write; without a Redis there are none. Raises SettingsError."""
    settings = GuardSettings.from_environment(references.resolved(environment))
    if not settings.has_redis:
        return Guards(settings.caller)
    redis = RedisGuards(runtime, environment, settings, meter)
    limits = redis.limits() if settings.topics or settings.callers else None
    formats = TopicFormats(redis, runtime.clock)
    return Guards(settings.caller, limits, redis.idempotency_store, meter, formats)


def build_checks(
    runtime: Runtime,
    environment: Mapping[str, str],
    rules: Sequence[SchemaRule],
    circuit: Callable[[], Circuit],
) -> Callable[[], Checks]:
    """Return what opens the checks of values by schemas, once. Raises SettingsError when it does."""
    return cache(partial(_open_checks, runtime, environment, rules, circuit))


def _open_checks(
    runtime: Runtime,
    environment: Mapping[str, str],
    rules: Sequence[SchemaRule],
    circuit: Callable[[], Circuit],
) -> Checks:
    from keylane.adapters.registry.compiled import CompiledSchemas  # noqa: PLC0415 (most functions need none)

    make = partial(_make_checks, environment, runtime.clock, rules, circuit, CompiledSchemas[Any]())
    return runtime.open_port(make, busy=RegistryUnavailable)


def _make_checks(
    environment: Mapping[str, str],
    clock: Clock,
    rules: Sequence[SchemaRule],
    circuit: Callable[[], Circuit],
    compiled: CompiledSchemas[Any],
) -> Checks:
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415
    from keylane.adapters.registry.value_checks import ValueChecks  # noqa: PLC0415

    has_registry = is_set(environment, "KEYLANE_SCHEMA_REGISTRY_URL") or any(rule.subject for rule in rules)
    client = RegistryClient(renewable_registry(environment), circuit()) if has_registry else None
    try:
        return ValueChecks(rules, client, clock, compiled)
    except ValueError as error:
        raise SettingsError(SCHEMAS, f"has a rule that is not a JSON Schema: {error}") from error
