"""Builds what the produce function works with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import keylane.adapters.kafka.producer  # noqa: F401 (the client library loads in the init phase)
from keylane.adapters.aws import references
from keylane.config.functions import ProduceSettings
from keylane.config.queue import QueueSettings, queue_settings
from keylane.config.schemas import schema_rules
from keylane.config.settings import is_set
from keylane.config.table import SETTINGS
from keylane.metrics.meter import Meter
from keylane.model.patterns import fits
from keylane.model.schema_rules import SchemaRule
from keylane.ports import Checks, SchemaWriter, WaitBudget
from keylane.produce.enqueue import WriteAheadLog
from keylane.produce.guards import Guards
from keylane.produce.put import RecordWriter
from keylane.produce.readable import ReadersRules
from keylane.wiring.application import check_metrics, read_api_settings
from keylane.wiring.guards import build_checks, build_guards
from keylane.wiring.kafka import ClusterSource, open_log
from keylane.wiring.runtime import Runtime
from keylane.wiring.schemas import open_circuit, writing_schemas


@dataclass(frozen=True, slots=True)
class ProduceParts:
    """What the produce function works with.

    `schemas` opens the Schema Registry; it is None where no registry is set. `request_id_header`: the name of
    the header that names a record's request. `has_trace_headers`: records get the trace of their request.
    `pushes_as_kprf`: failed pushes are answered as kprf answers them.
    """

    writer: RecordWriter
    guards: Guards
    schemas: Callable[[], SchemaWriter] | None
    registry_timeout_ms: int
    request_id_header: str | None
    pushes_as_kprf: bool
    has_trace_headers: bool

    def registry_wait(self) -> WaitBudget:
        """Return what one request may wait for the Schema Registry, in all."""
        return WaitBudget(self.registry_timeout_ms, self.writer.clock)


def preload_clients(environment: Mapping[str, str]) -> None:
    """Import the clients that only some settings need, in the init phase."""
    if environment.get("KEYLANE_QUEUE_URL"):
        import keylane.adapters.aws.sqs  # noqa: PLC0415
    if environment.get("KEYLANE_RATE_LIMITS"):
        import keylane.adapters.redis.rate_limits  # noqa: F401, PLC0415


def build_produce(runtime: Runtime, environment: Mapping[str, str], meter: Meter) -> ProduceParts:
    """Build all from the environment. Raises SettingsError, SettingsUnavailable."""
    check_metrics(environment)
    found = references.resolved(environment)
    settings = ProduceSettings.from_environment(found)
    queue = queue_settings(found, settings.timeout_ms)
    meter.count("ColdStarts", 1, "produce")
    guards = build_guards(runtime, environment, meter)
    registry_timeout_ms = SETTINGS.read(found, "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS")
    circuit = open_circuit(registry_timeout_ms)
    clusters = ClusterSource(environment, lambda found: ProduceSettings.from_environment(found).clusters)
    rules = schema_rules(found)
    open_checks = build_checks(runtime, environment, rules, circuit)
    has_registry = is_set(found, "KEYLANE_SCHEMA_REGISTRY_URL")
    writer = RecordWriter(
        open_log(runtime, clusters, meter),
        runtime.clock,
        settings.value_limit_bytes,
        settings.timeout_ms,
        _open_wal(runtime, queue) if queue else None,
        open_checks() if rules else None,
        read_api_settings(environment).topics,
        _readers_rules(guards, rules, open_checks if has_registry else None),
    )
    return ProduceParts(
        writer,
        guards,
        writing_schemas(runtime, environment, circuit) if has_registry else None,
        registry_timeout_ms,
        SETTINGS.read(found, "KEYLANE_REQUEST_ID_HEADER"),
        settings.pushes_as_kprf,
        SETTINGS.read(found, "KEYLANE_TRACE_HEADERS"),
    )


def _readers_rules(
    guards: Guards, rules: Sequence[SchemaRule], open_checks: Callable[[], Checks] | None
) -> ReadersRules | None:
    def is_ruled(topic: str) -> bool:
        return any(fits(rule.pattern, topic) for rule in rules)

    return None if guards.formats is None else ReadersRules(guards.formats, open_checks, is_ruled)


def _open_wal(runtime: Runtime, settings: QueueSettings) -> WriteAheadLog:
    from keylane.adapters.aws.s3 import S3Bucket  # noqa: PLC0415
    from keylane.adapters.aws.sqs import SqsQueue  # noqa: PLC0415
    from keylane.produce.enqueue import Batching, WriteAheadLog  # noqa: PLC0415

    batching = Batching(settings.groups if settings.is_fifo else 0, settings.limit_bytes)
    queue = runtime.open_port(partial(SqsQueue, settings.url, settings.limit_bytes, settings.aws))
    bucket = runtime.open_port(partial(S3Bucket, settings.bucket, settings.aws)) if settings.bucket else None
    return WriteAheadLog(queue, bucket, batching, settings.takes_async, settings.takes_failed)
