"""Clients of all Kafka clusters, for the functions that write; and how any client gets new secrets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from keylane.adapters.aws import references

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.metrics.meter import Meter
    from keylane.model.clusters import Clusters
    from keylane.ports import Log
    from keylane.wiring.runtime import Runtime

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterSource(Generic[T]):
    """The settings of all Kafka clusters in an environment, read again where a cluster rejects its secrets.

    `read` makes them of an environment whose references are resolved.
    """

    environment: Mapping[str, str]
    read: Callable[[Mapping[str, str]], Clusters[T]]

    def current(self) -> Clusters[T]:
        """Read the settings, with the present values of their references.

        Raises SettingsError, SettingsUnavailable.
        """
        return self.read(references.resolved(self.environment))

    def reload_of(self, cluster: str) -> Callable[[], T] | None:
        """Return what reads a cluster's settings again, None where nothing in them can change."""
        if not references.has_references(self.environment):
            return None
        return partial(self._read_one, cluster)

    def _read_one(self, cluster: str) -> T:
        return self.current().by_name()[cluster]


def open_log(runtime: Runtime, source: ClusterSource[KafkaSettings], meter: Meter) -> Log:
    """Return the log of all clusters. Raises SettingsError, SettingsUnavailable."""
    logs = source.current().map(
        lambda name, settings: runtime.open_producer(settings, source.reload_of(name), meter)
    )
    if not logs.named:
        return logs.default
    from keylane.adapters.kafka.clusters import ClusteredLog  # noqa: PLC0415

    return ClusteredLog(logs, runtime.call_all)
