"""Clients of all Kafka clusters, for the functions that write; and how any client gets new secrets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from keylane.adapters.aws import references
from keylane.wiring import runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.metrics.meter import Meter
    from keylane.model.clusters import Clusters
    from keylane.ports import Log

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reload(Generic[T]):
    """Re-reads the settings of one cluster, with the current values of its references."""

    read: Callable[[], Clusters[T]]
    cluster: str

    def __call__(self) -> T:
        """Return the settings. Raises SettingsError, SettingsUnavailable."""
        return self.read().by_name()[self.cluster]


def reload_of(read: Callable[[], Clusters[T]], cluster: str) -> Reload[T] | None:
    """Return how a cluster's settings are read again, None where they have no references."""
    return Reload(read, cluster) if references.has_references(os.environ) else None


def open_log(read: Callable[[], Clusters[KafkaSettings]], meter: Meter) -> Log:
    """Return the log of all clusters. Raises SettingsError, SettingsUnavailable.

    `read` reads their settings; clients that a broker rejects call it again.
    """
    use = runtime.current()
    logs = read().map(lambda name, settings: use.open_producer(settings, reload_of(read, name), meter))
    if not logs.named:
        return logs.default
    from keylane.adapters.kafka.clusters import ClusteredLog  # noqa: PLC0415

    return ClusteredLog(logs, use.call_all)
