"""Builds what the explore function works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.adapters.kafka.admin import KafkaAdmin, KafkaMetadata
from keylane.adapters.kafka.clusters import ClusteredMetadata, ClusteredReader
from keylane.adapters.kafka.reader import KafkaReader
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import ExploreSettings, renewable_redis
from keylane.errors import SettingsError
from keylane.explore.clusters import ClusterDirectory
from keylane.explore.schemas import find_schemas
from keylane.explore.topics import find_layout
from keylane.ports import Clock, Deadline, WaitBudget
from keylane.query.decoding import ValueDecoder
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.query.summaries import MemorySamples, read_summaries
from keylane.wiring.application import check_metrics
from keylane.wiring.kafka import ClusterSource
from keylane.wiring.schemas import reading_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.adapters.kafka.admin import ReaderSettings
    from keylane.explore.ports import ClusterMetadata, DetailedMetadata
    from keylane.explore.schemas import SubjectSchemas
    from keylane.metrics.meter import Meter
    from keylane.model.clusters import Clusters
    from keylane.model.records import Layout
    from keylane.ports import LogReader, Schemas
    from keylane.query.summaries import TopicSummary
    from keylane.wiring.runtime import Runtime


@dataclass(frozen=True, slots=True)
class ExploreParts:
    """What the explore function works with; `store` is None where no Redis is set.

    `schemas` opens the Schema Registry for the first key of it.
    """

    settings: ExploreSettings
    clock: Clock
    metadata: DetailedMetadata
    reader: LogReader
    clusters: Mapping[str, ClusterMetadata]
    schemas: Callable[[], Schemas]
    store: Store | None = None
    samples: MemorySamples = field(default_factory=MemorySamples)

    @property
    def directory(self) -> ClusterDirectory:
        """The clusters by id."""
        return ClusterDirectory(self.clusters, self.settings.clusters.name_of, self.metadata)

    @property
    def state_store(self) -> Store:
        """The state. Raises SettingsError where no Redis is set."""
        if self.store is None:
            raise SettingsError("KEYLANE_REDIS_NODES", "is not set: the function has no state to describe")
        return self.store

    @property
    def deadline(self) -> Deadline:
        """The end of a request to Kafka that begins now."""
        return Deadline.after_ms(self.settings.timeout_ms, self.clock)

    def summaries_of(self, topics: Sequence[str]) -> Mapping[str, TopicSummary | None]:
        """Return how topics are, or the first of them; nothing is known of any without a Redis."""
        if self.store is None:
            return dict.fromkeys(topics)
        return read_summaries(self.store, self.samples, topics, self.settings.state_timeout_ms)

    def find_layout(self, topic: str) -> Layout | None:
        """Return a topic's layout; None where it is not to be had."""
        return find_layout(self.store, topic, self.settings.state_timeout_ms)

    def schemas_of(self, topic: str) -> list[SubjectSchemas]:
        """Return the subjects of a topic; none where the service has no Schema Registry."""
        if not self.settings.has_registry:
            return []
        return find_schemas(self.schemas(), topic, WaitBudget(self.settings.registry_timeout_ms, self.clock))

    def decoder(self) -> ValueDecoder:
        """Return a decoder for the keys of one request."""
        return ValueDecoder(self.schemas, WaitBudget(self.settings.registry_timeout_ms, self.clock))


def build_explore(runtime: Runtime, environment: Mapping[str, str], meter: Meter) -> ExploreParts:
    """Build all from the environment. Raises SettingsError, SettingsUnavailable."""
    check_metrics(environment)
    settings = ExploreSettings.from_environment(references.resolved(environment))
    clock = runtime.clock
    admins = _open_admins(settings.clusters, environment)
    metadata = admins.map(lambda _, admin: KafkaMetadata(admin))
    readers = admins.map(lambda _, admin: KafkaReader(admin))
    # Its requests are few, and run in threads: a client of each one's own blocks in the server, too.
    state = RedisState(Cluster(renewable_redis(environment), meter)) if settings.has_redis else None
    store = Store(state, Layouts(state, clock, 0), clock) if state else None
    meter.count("ColdStarts", 1, "explore")
    kafka = ClusteredMetadata(metadata)
    schemas = reading_schemas(runtime, environment, settings.registry_timeout_ms)
    return ExploreParts(settings, clock, kafka, ClusteredReader(readers), metadata.by_name(), schemas, store)


def open_reader(environment: Mapping[str, str]) -> LogReader:
    """Build the reader of all clusters' logs alone. Raises SettingsError, SettingsUnavailable."""
    clusters = _source(environment).current()
    return ClusteredReader(_open_admins(clusters, environment).map(lambda _, admin: KafkaReader(admin)))


def _open_admins(
    clusters: Clusters[ReaderSettings], environment: Mapping[str, str]
) -> Clusters[KafkaAdmin[ReaderSettings]]:
    source = _source(environment)
    return clusters.map(lambda name, settings: KafkaAdmin(settings, source.reload_of(name)))


def _source(environment: Mapping[str, str]) -> ClusterSource[ReaderSettings]:
    return ClusterSource(environment, lambda found: ExploreSettings.from_environment(found).clusters)
