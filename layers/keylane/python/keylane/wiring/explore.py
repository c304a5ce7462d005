"""What the explore function works with."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.config.functions import ExploreSettings
from keylane.model.clusters import DEFAULT
from keylane.ports import Clock
from keylane.query.layouts import Layouts
from keylane.wiring.metrics import check_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.adapters.kafka.admin import ReaderSettings
    from keylane.metrics.meter import Meter
    from keylane.ports import LogReader, Metadata, State


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


def explore_maker(meter: Meter) -> Callable[[], Explore]:
    """Give the maker of the explore function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.kafka.admin import KafkaAdmin, KafkaMetadata  # noqa: PLC0415
    from keylane.adapters.kafka.clusters import ClusteredMetadata, ClusteredReader  # noqa: PLC0415
    from keylane.adapters.kafka.reader import KafkaReader  # noqa: PLC0415
    from keylane.adapters.redis.cluster import Cluster  # noqa: PLC0415
    from keylane.adapters.redis.state import RedisState  # noqa: PLC0415

    @cache
    def make() -> Explore:
        check_metrics()
        settings = ExploreSettings.from_environment(references.resolved(os.environ))
        clock = Clock()
        renew = renewed if references.has_references(os.environ) else None
        admins = settings.clusters.map(
            lambda name, kafka: KafkaAdmin(kafka, partial(renew, name) if renew else None)
        )
        metadata = admins.map(lambda _, admin: KafkaMetadata(admin))
        readers = admins.map(lambda _, admin: KafkaReader(admin))
        state = RedisState(Cluster(settings.redis, meter)) if settings.redis else None
        layouts = Layouts(state, clock, 0) if state else None
        meter.count("ColdStarts", 1, "explore")
        return Explore(
            *(settings, clock, ClusteredMetadata(metadata), ClusteredReader(readers), state, layouts),
            clusters=metadata.by_name(),
        )

    def renewed(name: str) -> ReaderSettings:
        anew = ExploreSettings.from_environment(references.resolved(os.environ))
        return anew.clusters.by_name()[name]

    return make
