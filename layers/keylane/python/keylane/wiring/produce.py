"""Builds what the produce function works with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import keylane.adapters.kafka.producer  # noqa: F401 (the client library loads in the init phase)
from keylane.adapters.aws import references
from keylane.config.functions import ProduceSettings, renewable_registry
from keylane.config.queue import queue_settings
from keylane.config.settings import is_set
from keylane.config.table import SETTINGS
from keylane.produce.guards import NO_GUARDS, Guards
from keylane.produce.put import RecordWriter
from keylane.wiring import runtime
from keylane.wiring.api import read_api_settings
from keylane.wiring.guards import build_checks, build_guards
from keylane.wiring.kafka import open_log
from keylane.wiring.metrics import check_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.kafka.options import KafkaSettings
    from keylane.config.queue import QueueSettings
    from keylane.metrics.meter import Meter
    from keylane.model.clusters import Clusters
    from keylane.ports import SchemaWriter
    from keylane.produce.enqueue import WriteAheadLog


@dataclass(frozen=True, slots=True)
class ProduceParts:
    """What the produce function works with.

    `schemas` opens the Schema Registry; it is None where no registry is set. `request_id_header`: the name of
    the header that names a record's request. `has_trace_headers`: records get the trace of their request.
    `pushes_as_kprf`: failed pushes are answered as kprf answers them.
    """

    writer: RecordWriter
    guards: Guards = NO_GUARDS
    schemas: Callable[[], SchemaWriter] | None = None
    registry_timeout_ms: int = 2_000
    request_id_header: str | None = None
    pushes_as_kprf: bool = False
    has_trace_headers: bool = True


def preload_clients() -> None:
    """Import the clients that only some settings need, in the init phase."""
    if os.environ.get("KEYLANE_QUEUE_URL"):
        import keylane.adapters.aws.sqs  # noqa: PLC0415
    if os.environ.get("KEYLANE_RATE_LIMITS"):
        import keylane.adapters.redis.rate_limits  # noqa: F401, PLC0415


def build_produce(meter: Meter) -> ProduceParts:
    """Build all from the environment. Raises SettingsError, SettingsUnavailable."""
    check_metrics()
    environment = references.resolved(os.environ)
    settings = ProduceSettings.from_environment(environment)
    queue = queue_settings(environment, settings.timeout_ms)
    meter.count("ColdStarts", 1, "produce")
    clock = runtime.current().clock
    guards = build_guards(environment, clock, meter)
    writer = RecordWriter(
        open_log(_read_clusters, meter),
        clock,
        settings.value_limit_bytes,
        settings.timeout_ms,
        _open_wal(queue) if queue else None,
        build_checks(environment, clock),
        read_api_settings().topics,
    )
    has_registry = is_set(environment, "KEYLANE_SCHEMA_REGISTRY_URL")
    registry_timeout_ms = SETTINGS.read(environment, "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS")
    return ProduceParts(
        writer,
        guards,
        cache(_open_schemas) if has_registry else None,
        registry_timeout_ms,
        SETTINGS.read(environment, "KEYLANE_REQUEST_ID_HEADER"),
        settings.pushes_as_kprf,
        SETTINGS.read(environment, "KEYLANE_TRACE_HEADERS"),
    )


def _read_clusters() -> Clusters[KafkaSettings]:
    return ProduceSettings.from_environment(references.resolved(os.environ)).clusters


def _open_schemas() -> SchemaWriter:
    return runtime.current().open_port(_make_schemas)


def _make_schemas() -> SchemaWriter:
    from keylane.adapters.registry.client import RegistryClient  # noqa: PLC0415
    from keylane.adapters.registry.encoders import RegistryEncoders  # noqa: PLC0415

    return RegistryEncoders(RegistryClient(renewable_registry(os.environ)))


def _open_wal(settings: QueueSettings) -> WriteAheadLog:
    from keylane.adapters.aws.s3 import S3Bucket  # noqa: PLC0415
    from keylane.adapters.aws.sqs import SqsQueue  # noqa: PLC0415
    from keylane.produce.enqueue import Batching, WriteAheadLog  # noqa: PLC0415

    batching = Batching(settings.groups if settings.is_fifo else 0, settings.limit_bytes)
    use = runtime.current()
    queue = use.open_port(partial(SqsQueue, settings.url, settings.limit_bytes, settings.aws))
    bucket = use.open_port(partial(S3Bucket, settings.bucket, settings.aws)) if settings.bucket else None
    return WriteAheadLog(queue, bucket, batching, settings.takes_async, settings.takes_failed)
