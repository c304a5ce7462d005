"""Builds the clients from the environment: the one place that does.

The makers import their client library at once, in a Lambda's init phase; they read the environment and build
at the first request: a missing variable is then a clear answer and log line, not a function that never
starts. Nothing connects before it is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from keylane.adapters import references
from keylane.clusters import DEFAULT
from keylane.guard_settings import LIMITS
from keylane.guard_wiring import checks_of, guards_of
from keylane.guards import NONE, Guards
from keylane.layouts import Layouts
from keylane.metrics import METER
from keylane.ports import Clock
from keylane.settings import ExploreSettings, ProduceSettings, QuerySettings, registry_settings
from keylane.variables import number, switch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.access import Grant
    from keylane.adapters.kafka_admin import ReaderSettings
    from keylane.adapters.kafka_producer import KafkaSettings
    from keylane.ports import Bucket, Checks, Log, LogReader, Metadata, Queue, Schemas, SchemaWriter, State
    from keylane.queueing import WriteAheadLog
    from keylane.settings_queue import AwsSettings, DrainSettings, QueueSettings


DRAIN_PATIENCE = 2
"""So many times the deadline of a batch is librdkafka's own of a record."""


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
    """What the produce function works with; `schemas` is None where no Schema Registry is set up."""

    settings: ProduceSettings
    clock: Clock
    log: Log
    guards: Guards = NONE
    wal: WriteAheadLog | None = None
    checks: Checks | None = None
    schemas: Callable[[], SchemaWriter] | None = None
    registry_timeout_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class Drain:
    """What the drain function works with; `bucket` is None where none is set."""

    settings: DrainSettings
    clock: Clock
    log: Log
    dead_letters: Queue
    bucket: Bucket | None


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

    _start_metrics()

    @cache
    def make() -> Query:
        _check_metrics()
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
    from keylane.settings_queue import URL, queue_settings  # noqa: PLC0415

    _start_metrics()

    @cache
    def make() -> Produce:
        _check_metrics()
        environment = references.resolved(os.environ)
        settings = ProduceSettings.from_environment(environment)
        queue = queue_settings(environment, settings.timeout_ms)
        METER.count("ColdStarts", 1, "produce")
        clock = Clock()
        guards = guards_of(environment, clock)
        wal = _wal(queue) if queue else None
        checks = checks_of(environment, clock)
        timeout_ms = number(environment, "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS", 2_000)
        has_registry = environment.get("KEYLANE_SCHEMA_REGISTRY_URL", "").strip()
        writer = schemas if has_registry else None
        return Produce(settings, clock, log_of(settings), guards, wal, checks, writer, timeout_ms)

    @cache
    def schemas() -> SchemaWriter:
        from keylane.adapters.registry_writer import RegistryWriter  # noqa: PLC0415

        return RegistryWriter(registry_settings(references.resolved(os.environ)))

    if os.environ.get(URL):
        import keylane.adapters.sqs_queue  # noqa: PLC0415
    if os.environ.get(LIMITS):
        import keylane.adapters.redis_limits  # noqa: F401, PLC0415

    return make


def _wal(settings: QueueSettings) -> WriteAheadLog:
    from keylane.adapters.sqs_queue import SqsQueue  # noqa: PLC0415
    from keylane.queueing import Packing, WriteAheadLog  # noqa: PLC0415

    packing = Packing(settings.groups if settings.is_fifo else 0, settings.limit_bytes)
    queue = SqsQueue(settings.url, settings.limit_bytes, settings.aws)
    bucket = _bucket(settings.bucket, settings.aws)
    return WriteAheadLog(queue, bucket, packing, settings.takes_async, settings.takes_failed)


def _bucket(name: str | None, aws: AwsSettings) -> Bucket | None:
    from keylane.adapters.s3_bucket import S3Bucket  # noqa: PLC0415

    return S3Bucket(name, aws) if name else None


def drain_maker() -> Callable[[], Drain]:
    """Give the maker of the drain function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.kafka_producer import KafkaProducer  # noqa: F401, PLC0415
    from keylane.adapters.sqs_queue import SqsQueue  # noqa: PLC0415
    from keylane.settings_queue import drain_settings  # noqa: PLC0415

    _start_metrics()

    @cache
    def make() -> Drain:
        _check_metrics()
        environment = references.resolved(os.environ)
        settings = drain_settings(environment)

        def patient(kafka: KafkaSettings) -> KafkaSettings:
            """No record times out by itself while a later one of its key is written: a deadline ends all."""
            options = replace(kafka.producer, message_timeout_ms=None, retries=None)
            return replace(kafka, timeout_ms=DRAIN_PATIENCE * settings.timeout_ms, producer=options)

        log = log_of(ProduceSettings.from_environment(environment), patient)
        dead_letters = SqsQueue(settings.dead_letters_url, settings.limit_bytes, settings.aws)
        METER.count("ColdStarts", 1, "drain")
        return Drain(settings, Clock(), log, dead_letters, _bucket(settings.bucket, settings.aws))

    return make


def log_of(
    settings: ProduceSettings, changed: Callable[[KafkaSettings], KafkaSettings] = lambda kafka: kafka
) -> Log:
    """The log of all clusters; secrets that are references are read anew where a broker refuses them.

    `changed` gives a cluster's settings as this function wants them.
    """
    from keylane.adapters.kafka_producer import KafkaProducer  # noqa: PLC0415

    def renewed(name: str) -> KafkaSettings:
        anew = ProduceSettings.from_environment(references.resolved(os.environ))
        return changed(anew.clusters.by_name()[name])

    renew = renewed if references.has_references(os.environ) else None

    def made(name: str, kafka: KafkaSettings) -> Log:
        return KafkaProducer(changed(kafka), partial(renew, name) if renew else None)

    logs = settings.clusters.map(made)
    if not logs.named:
        return logs.default
    from keylane.adapters.kafka_clusters import ClusteredLog  # noqa: PLC0415

    return ClusteredLog(logs)


def explore_maker() -> Callable[[], Explore]:
    """Give the maker of the explore function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.kafka_admin import KafkaAdmin, KafkaMetadata  # noqa: PLC0415
    from keylane.adapters.kafka_clusters import ClusteredMetadata, ClusteredReader  # noqa: PLC0415
    from keylane.adapters.kafka_reader import KafkaReader  # noqa: PLC0415
    from keylane.adapters.redis_cluster import Cluster  # noqa: PLC0415
    from keylane.adapters.redis_state import RedisState  # noqa: PLC0415

    _start_metrics()

    @cache
    def make() -> Explore:
        _check_metrics()
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


ACCESS_S = 60.0
"""How long the authorizer goes by the grants that it has read."""


def access_maker() -> Callable[[], dict[str, Grant]]:
    """Give the maker of the authorizer's grants, read anew each minute. Raises SettingsError when called."""
    from keylane.access import grants_of  # noqa: PLC0415

    clock = Clock()
    kept: list[tuple[float, dict[str, Grant]]] = []

    def make() -> dict[str, Grant]:
        if not kept or clock.monotonic_s() - kept[0][0] > ACCESS_S:
            kept[:] = [(clock.monotonic_s(), grants_of(references.resolved(os.environ)))]
        return kept[0][1]

    return make


def _start_metrics() -> None:
    """KEYLANE_METRICS, true by default: the functions' numbers in their logs, from the first request on."""
    if os.environ.get("KEYLANE_METRICS", "").strip().lower() == "false":
        METER.stop()
    else:
        METER.start()


def _check_metrics() -> None:
    switch(os.environ, "KEYLANE_METRICS", default=True)
