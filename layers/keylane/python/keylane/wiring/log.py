"""The log of all Kafka clusters, as the functions that write have it."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.config.functions import ProduceSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.metrics.meter import Meter
    from keylane.ports import Log


def log_of(
    settings: ProduceSettings,
    meter: Meter,
    changed: Callable[[KafkaSettings], KafkaSettings] = lambda kafka: kafka,
) -> Log:
    """The log of all clusters; secrets that are references are read anew where a broker refuses them.

    `changed` gives a cluster's settings as this function wants them.
    """
    from keylane.adapters.kafka.producer import KafkaProducer  # noqa: PLC0415

    def renewed(name: str) -> KafkaSettings:
        anew = ProduceSettings.from_environment(references.resolved(os.environ))
        return changed(anew.clusters.by_name()[name])

    renew = renewed if references.has_references(os.environ) else None

    def made(name: str, kafka: KafkaSettings) -> Log:
        return KafkaProducer(changed(kafka), partial(renew, name) if renew else None, meter)

    logs = settings.clusters.map(made)
    if not logs.named:
        return logs.default
    from keylane.adapters.kafka.clusters import ClusteredLog  # noqa: PLC0415

    return ClusteredLog(logs)
