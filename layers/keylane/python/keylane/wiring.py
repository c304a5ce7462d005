"""Builds the clients from the environment: the one place that does.

The makers import their client library at once, in a Lambda's init phase; they read the environment and build
at the first request: a missing variable is then a clear answer and log line, not a function that never
starts. Nothing connects before it is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

from keylane.adapters import references
from keylane.clusters import DEFAULT
from keylane.guards import NONE, Guards
from keylane.layouts import Layouts
from keylane.metrics import METER
from keylane.ports import Clock
from keylane.settings import ExploreSettings, ProduceSettings, QuerySettings, registry_settings
from keylane.variables import switch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.adapters.kafka_admin import ReaderSettings
    from keylane.adapters.kafka_producer import KafkaSettings
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
    clusters: Mapping[str, Metadata] = field(default_factory=dict)

    @property
    def metadata_by_cluster(self) -> Mapping[str, Metadata]:
        """Metadata of each cluster, by its name."""
        return self.clusters or {DEFAULT: self.metadata}


def query_maker() -> Callable[[], Query]:
    """Give the maker of the query function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.redis_cluster import Cluster  # noqa: PLC0415
    from keylane.adapters.redis_state import RedisState  # noqa: PLC0415

    @cache
    def make() -> Query:
        _start_metrics()
        settings = QuerySettings.from_environment(references.resolved(os.environ))
        clock = Clock()
        state = RedisState(Cluster(settings.redis))
        METER.count("ColdStarts", 1, "query")
        return Query(settings, clock, state, Layouts(state, clock, settings.layout_ttl_s), schemas)

    @cache
    def schemas() -> Schemas:
        from keylane.adapters.schema_registry import SchemaRegistry  # noqa: PLC0415

        return SchemaRegistry(registry_settings(references.resolved(os.environ)))

    return make


def produce_maker() -> Callable[[], Produce]:
    """Give the maker of the produce function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.kafka_producer import KafkaProducer  # noqa: F401, PLC0415

    @cache
    def make() -> Produce:
        _start_metrics()
        environment = references.resolved(os.environ)
        settings = ProduceSettings.from_environment(environment)
        METER.count("ColdStarts", 1, "produce")
        clock = Clock()
        return Produce(settings, clock, log_of(settings), guards_of(environment, clock))

    return make


def log_of(settings: ProduceSettings) -> Log:
    """The log of all clusters; secrets that are references are read anew where a broker refuses them."""
    from keylane.adapters.kafka_clusters import ClusteredLog  # noqa: PLC0415
    from keylane.adapters.kafka_producer import KafkaProducer  # noqa: PLC0415

    def renewed(name: str) -> KafkaSettings:
        anew = ProduceSettings.from_environment(references.resolved(os.environ))
        return anew.clusters.by_name()[name]

    renew = renewed if references.has_references(os.environ) else None

    def made(name: str, kafka: KafkaSettings) -> Log:
        return KafkaProducer(kafka, partial(renew, name) if renew else None)

    logs = settings.clusters.map(made)
    return ClusteredLog(logs) if logs.named else logs.default


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
    from keylane.adapters.kafka_clusters import ClusteredMetadata, ClusteredReader  # noqa: PLC0415
    from keylane.adapters.kafka_reader import KafkaReader  # noqa: PLC0415
    from keylane.adapters.redis_cluster import Cluster  # noqa: PLC0415
    from keylane.adapters.redis_state import RedisState  # noqa: PLC0415

    @cache
    def make() -> Explore:
        _start_metrics()
        settings = ExploreSettings.from_environment(references.resolved(os.environ))
        clock = Clock()
        renew = renewed if references.has_references(os.environ) else None
        admins = settings.clusters.map(
            lambda name, kafka: KafkaAdmin(kafka, partial(renew, name) if renew else None)
        )
        metadata = admins.map(lambda _, admin: KafkaMetadata(admin))
        readers = admins.map(lambda _, admin: KafkaReader(admin))
        state = RedisState(Cluster(settings.redis)) if settings.redis else None
        layouts = Layouts(state, clock, 0) if state else None
        METER.count("ColdStarts", 1, "explore")
        return Explore(
            *(settings, clock, ClusteredMetadata(metadata), ClusteredReader(readers), state, layouts),
            clusters=metadata.by_name(),
        )

    def renewed(name: str) -> ReaderSettings:
        anew = ExploreSettings.from_environment(references.resolved(os.environ))
        return anew.clusters.by_name()[name]

    return make


def _start_metrics() -> None:
    """KEYLANE_METRICS, true by default: the functions' numbers in their logs."""
    if switch(os.environ, "KEYLANE_METRICS", default=True):
        METER.start()
    else:
        METER.stop()
