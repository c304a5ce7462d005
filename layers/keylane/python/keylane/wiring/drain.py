"""Builds what the drain function works with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import keylane.adapters.kafka.producer  # noqa: F401 (the client library loads in the init phase)
from keylane.adapters.aws import references
from keylane.adapters.aws.s3 import S3Bucket
from keylane.adapters.aws.sqs import SqsQueue
from keylane.config.functions import ProduceSettings
from keylane.config.queue import drain_settings
from keylane.wiring.application import check_metrics
from keylane.wiring.kafka import ClusterSource, open_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.config.queue import DrainSettings
    from keylane.metrics.meter import Meter
    from keylane.model.clusters import Clusters
    from keylane.ports import Bucket, Clock, Deliveries, Log, Queue
    from keylane.wiring.runtime import Runtime

RECORD_TIMEOUT_FACTOR = 2
"""How many times longer than a batch librdkafka may try to write one record of it."""


@dataclass(frozen=True, slots=True)
class DrainParts:
    """What the drain function works with; `bucket` and `deliveries` are None where none is set."""

    settings: DrainSettings
    clock: Clock
    log: Log
    dead_letters: Queue
    bucket: Bucket | None
    deliveries: Deliveries | None = None


def build_drain(runtime: Runtime, environment: Mapping[str, str], meter: Meter) -> DrainParts:
    """Build all from the environment. Raises SettingsError, SettingsUnavailable."""
    check_metrics(environment)
    settings = drain_settings(references.resolved(environment))
    log = open_log(runtime, ClusterSource(environment, _clusters_for_batches), meter)
    dead_letters = SqsQueue(settings.dead_letters_url, settings.limit_bytes, settings.aws)
    bucket = S3Bucket(settings.bucket, settings.aws) if settings.bucket else None
    meter.count("ColdStarts", 1, "drain")
    deliveries = SqsQueue(settings.url, settings.limit_bytes, settings.aws) if settings.url else None
    return DrainParts(settings, runtime.clock, log, dead_letters, bucket, deliveries)


def _clusters_for_batches(environment: Mapping[str, str]) -> Clusters[KafkaSettings]:
    """The clusters of the produce function, for batches.

    No record times out by itself while a later one of its key is written: the batch's deadline ends all.
    """
    timeout_ms = RECORD_TIMEOUT_FACTOR * drain_settings(environment).timeout_ms
    clusters = ProduceSettings.from_environment(environment).clusters
    return clusters.map(lambda _, settings: _for_batches(settings, timeout_ms))


def _for_batches(settings: KafkaSettings, timeout_ms: int) -> KafkaSettings:
    options = replace(settings.producer, message_timeout_ms=None, retries=None)
    return replace(settings, timeout_ms=timeout_ms, producer=options)
