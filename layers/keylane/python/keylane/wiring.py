"""Builds the clients from the environment: the one place that does.

The makers import their client library at once, in a Lambda's init phase; they read the environment and build
at the first request: a missing variable is then a clear answer and log line, not a function that never
starts. Nothing connects before it is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from keylane.guards import NONE, Guards
from keylane.layouts import Layouts
from keylane.metrics import METER
from keylane.ports import Clock
from keylane.settings import ExploreSettings, ProduceSettings, QuerySettings, registry_settings
from keylane.variables import switch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.ports import Log, LogReader, Metadata, Schemas, State


@dataclass(frozen=True, slots=True)
class Query:
    """What the query function works with; `schemas` is made when the first value needs one."""

    settings: QuerySettings
    clock: Clock
    state: State
    layouts: Layouts
    schemas: Callable[[], Schemas]


@dataclass(frozen=True, slots=True)
class Produce:
    """What the produce function works with."""

    settings: ProduceSettings
    clock: Clock
    log: Log
    guards: Guards = NONE


@dataclass(frozen=True, slots=True)
class Explore:
    """What the explore function works with; `state` and `layouts` are None where no Redis is configured."""

    settings: ExploreSettings
    clock: Clock
    metadata: Metadata
    reader: LogReader
    state: State | None
    layouts: Layouts | None


def query_maker() -> Callable[[], Query]:
    """Give the maker of the query function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.redis_cluster import Cluster  # noqa: PLC0415
    from keylane.adapters.redis_state import RedisState  # noqa: PLC0415

    @cache
    def make() -> Query:
        _start_metrics()
        settings = QuerySettings.from_environment(os.environ)
        clock = Clock()
        state = RedisState(Cluster(settings.redis))
        METER.count("ColdStarts", 1, "query")
        return Query(settings, clock, state, Layouts(state, clock, settings.layout_ttl_s), schemas)

    @cache
    def schemas() -> Schemas:
        from keylane.adapters.schema_registry import SchemaRegistry  # noqa: PLC0415

        return SchemaRegistry(registry_settings(os.environ))

    return make


def produce_maker() -> Callable[[], Produce]:
    """Give the maker of the produce function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.kafka_producer import KafkaProducer  # noqa: PLC0415

    @cache
    def make() -> Produce:
        _start_metrics()
        settings = ProduceSettings.from_environment(os.environ)
        METER.count("ColdStarts", 1, "produce")
        clock = Clock()
        return Produce(settings, clock, KafkaProducer(settings.kafka), guards_of(os.environ, clock))

    return make


def guards_of(environment: Mapping[str, str], clock: Clock) -> Guards:
    """What stands before a write; it imports and makes what the settings ask for. Raises SettingsError."""
    from keylane.guard_settings import GuardSettings  # noqa: PLC0415

    settings = GuardSettings.from_environment(environment)
    if settings.redis is None:
        return Guards(settings.caller)
    from keylane.adapters.redis_cluster import Cluster  # noqa: PLC0415
    from keylane.adapters.redis_limits import RedisLimits  # noqa: PLC0415
    from keylane.adapters.redis_scripts import Scripts  # noqa: PLC0415
    from keylane.limits import Limits  # noqa: PLC0415

    scripts = Scripts(Cluster(settings.redis))
    limits = None
    if settings.topics or settings.callers:
        limiter = RedisLimits(scripts, clock, settings.limit_timeout_ms)
        limits = Limits(settings.topics, settings.callers, limiter, settings.open_on_failure)
    return Guards(settings.caller, limits)


def explore_maker() -> Callable[[], Explore]:
    """Give the maker of the explore function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.kafka_admin import KafkaAdmin, KafkaMetadata  # noqa: PLC0415
    from keylane.adapters.kafka_reader import KafkaReader  # noqa: PLC0415
    from keylane.adapters.redis_cluster import Cluster  # noqa: PLC0415
    from keylane.adapters.redis_state import RedisState  # noqa: PLC0415

    @cache
    def make() -> Explore:
        _start_metrics()
        settings = ExploreSettings.from_environment(os.environ)
        clock = Clock()
        admin = KafkaAdmin(settings.kafka)
        state = RedisState(Cluster(settings.redis)) if settings.redis else None
        layouts = Layouts(state, clock, 0) if state else None
        reader = KafkaReader(admin)
        METER.count("ColdStarts", 1, "explore")
        return Explore(settings, clock, KafkaMetadata(admin), reader, state, layouts)

    return make


def _start_metrics() -> None:
    """KEYLANE_METRICS, true by default: the functions' numbers in their logs."""
    if switch(os.environ, "KEYLANE_METRICS", default=True):
        METER.start()
    else:
        METER.stop()
