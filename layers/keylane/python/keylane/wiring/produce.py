"""What the produce function works with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from keylane.adapters.aws import references
from keylane.config.functions import ProduceSettings, registry_settings
from keylane.config.settings import is_set
from keylane.config.table import SETTINGS
from keylane.ports import Clock
from keylane.produce.guards import NO_GUARDS, Guards
from keylane.produce.put import RecordWriter
from keylane.wiring.buckets import bucket_of
from keylane.wiring.guards import checks_of, guards_of
from keylane.wiring.log import log_of
from keylane.wiring.metrics import check_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.config.queue import QueueSettings
    from keylane.metrics.meter import Meter
    from keylane.ports import SchemaWriter
    from keylane.produce.enqueue import WriteAheadLog


@dataclass(frozen=True, slots=True)
class Produce:
    """What the produce function works with; `schemas` is None where no Schema Registry is set up."""

    writer: RecordWriter
    guards: Guards = NO_GUARDS
    schemas: Callable[[], SchemaWriter] | None = None
    registry_timeout_ms: int = 2_000


def produce_maker(meter: Meter) -> Callable[[], Produce]:
    """Give the maker of the produce function's parts; it builds once. Raises SettingsError when called."""
    from keylane.adapters.kafka.producer import KafkaProducer  # noqa: F401, PLC0415
    from keylane.config.queue import queue_settings  # noqa: PLC0415

    @cache
    def make() -> Produce:
        check_metrics()
        environment = references.resolved(os.environ)
        settings = ProduceSettings.from_environment(environment)
        queue = queue_settings(environment, settings.timeout_ms)
        meter.count("ColdStarts", 1, "produce")
        clock = Clock()
        guards = guards_of(environment, clock, meter)
        writer = RecordWriter(
            log_of(settings, meter),
            clock,
            settings.value_limit_bytes,
            settings.timeout_ms,
            _wal(queue) if queue else None,
            checks_of(environment, clock),
        )
        registry_timeout_ms = SETTINGS.read(environment, "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS")
        has_registry = is_set(environment, "KEYLANE_SCHEMA_REGISTRY_URL")
        return Produce(writer, guards, schemas if has_registry else None, registry_timeout_ms)

    @cache
    def schemas() -> SchemaWriter:
        from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415
        from keylane.adapters.registry.encoders import RegistryEncoders  # noqa: PLC0415

        return RegistryEncoders(RegistryClient(registry_settings(references.resolved(os.environ))))

    if os.environ.get("KEYLANE_QUEUE_URL"):
        import keylane.adapters.aws.sqs  # noqa: PLC0415
    if os.environ.get("KEYLANE_RATE_LIMITS"):
        import keylane.adapters.redis.rate_limits  # noqa: F401, PLC0415

    return make


def _wal(settings: QueueSettings) -> WriteAheadLog:
    from keylane.adapters.aws.sqs import SqsQueue  # noqa: PLC0415
    from keylane.produce.enqueue import Batching, WriteAheadLog  # noqa: PLC0415

    batching = Batching(settings.groups if settings.is_fifo else 0, settings.limit_bytes)
    queue = SqsQueue(settings.url, settings.limit_bytes, settings.aws)
    bucket = bucket_of(settings.bucket, settings.aws)
    return WriteAheadLog(queue, bucket, batching, settings.takes_async, settings.takes_failed)
