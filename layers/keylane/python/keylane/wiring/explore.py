"""Builds what the explore function works with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.adapters.kafka.admin import KafkaAdmin, KafkaMetadata
from keylane.adapters.kafka.clusters import ClusteredMetadata, ClusteredReader
from keylane.adapters.kafka.reader import KafkaReader
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import ExploreSettings, renewable
from keylane.errors import SettingsError
from keylane.explore.clusters import ClusterDirectory
from keylane.ports import Clock, Deadline
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.wiring.kafka import reload_of
from keylane.wiring.metrics import check_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.adapters.kafka.admin import ReaderSettings
    from keylane.metrics.meter import Meter
    from keylane.model.clusters import Clusters
    from keylane.ports import DetailedMetadata, LogReader, Metadata


@dataclass(frozen=True, slots=True)
class ExploreParts:
    """What the explore function works with; `store` is None where no Redis is set."""

    settings: ExploreSettings
    clock: Clock
    metadata: DetailedMetadata
    reader: LogReader
    clusters: Mapping[str, Metadata]
    store: Store | None = None

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


def build_explore(meter: Meter) -> ExploreParts:
    """Build all from the environment. Raises SettingsError, SettingsUnavailable."""
    check_metrics()
    settings = ExploreSettings.from_environment(references.resolved(os.environ))
    clock = Clock()
    admins = settings.clusters.map(_open_admin)
    metadata = admins.map(lambda _, admin: KafkaMetadata(admin))
    readers = admins.map(lambda _, admin: KafkaReader(admin))
    redis = renewable(settings.redis, os.environ) if settings.redis else None
    state = RedisState(Cluster(redis, meter)) if redis else None
    store = Store(state, Layouts(state, clock, 0), clock) if state else None
    meter.count("ColdStarts", 1, "explore")
    kafka = ClusteredMetadata(metadata)
    return ExploreParts(settings, clock, kafka, ClusteredReader(readers), metadata.by_name(), store)


def open_reader() -> LogReader:
    """Build the reader of all clusters' logs alone. Raises SettingsError, SettingsUnavailable."""
    return ClusteredReader(_read_clusters().map(_open_admin).map(lambda _, admin: KafkaReader(admin)))


def _open_admin(cluster: str, settings: ReaderSettings) -> KafkaAdmin[ReaderSettings]:
    return KafkaAdmin(settings, reload_of(_read_clusters, cluster))


def _read_clusters() -> Clusters[ReaderSettings]:
    return ExploreSettings.from_environment(references.resolved(os.environ)).clusters
