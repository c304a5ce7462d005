"""OpenTelemetry's SDK: makes spans, which a thread of its own exports in batches (extra `otel`).

The SDK reads its own environment variables: the sampler (OTEL_TRACES_SAMPLER), the service
(OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES), batches (OTEL_BSP_*), and the collector with its credentials
(OTEL_EXPORTER_OTLP_*). Only the choice of exporters is made here: the SDK has no public function for it.
"""

from __future__ import annotations

import logging
import threading
import time
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from keylane import __version__
from keylane.errors import SettingsError
from keylane.model.records import TRACEPARENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

CLOSE_S = 3.0
"""How long the last spans may take. A collector that is away must not hold up a stop."""
REPEAT_S = 60.0
"""How often the same message of the SDK is passed on at most."""
PROPAGATOR = TraceContextTextMapPropagator()
_GROUP = "opentelemetry_traces_exporter"
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_NO_SERVICE = "unknown_service"
_LOGGER = "opentelemetry"
_READS_CREDENTIALS = "opentelemetry.util.re"
"""It warns of headers for the collector by their values, which may be tokens."""


class Tracing:
    """The tracer of a process. `service`: its name unless the environment has one.

    `say` takes sentences on what was not exported: requests and batches never wait for it, or fail by it.
    Raises what `make_exporters` and the SDK raise for what they cannot use.
    """

    def __init__(
        self, service: str, make_exporters: Callable[[], Sequence[SpanExporter]], say: Callable[[str], object]
    ) -> None:
        # First: the SDK already logs while it reads the environment.
        self._messages = SdkMessages(say)
        self._messages.attach()
        try:
            self._provider = TracerProvider(resource=_resource(service), shutdown_on_exit=False)
            for exporter in make_exporters():
                self._provider.add_span_processor(BatchSpanProcessor(exporter))
        except Exception:
            self._messages.detach()
            raise
        self.tracer = self._provider.get_tracer("keylane", __version__)

    def close(self) -> None:
        """Export the spans that wait, for CLOSE_S at most."""
        closing = threading.Thread(target=self._provider.shutdown, name="keylane-spans", daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        self._messages.detach()


class SdkMessages(logging.Handler):
    """Passes the SDK's warnings on, without stack traces, and each one of them once in REPEAT_S."""

    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._said_s: dict[tuple[str, str], float] = {}

    def attach(self) -> None:
        """Take all messages of the SDK: nobody else gets them."""
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self)
        logger.propagate = False

    def detach(self) -> None:
        """Leave the SDK's messages to others again."""
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self)
        logger.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a message on unless the same one was passed on lately."""
        kind, now_s = (record.name, str(record.msg)), time.monotonic()
        if now_s - self._said_s.get(kind, -REPEAT_S) < REPEAT_S:
            return
        self._said_s[kind] = now_s
        text = kind[1] if record.name == _READS_CREDENTIALS else record.getMessage()
        self._say(f"traces: {text}")


def load_exporters(environment: Mapping[str, str]) -> list[SpanExporter]:
    """Return the exporters that OTEL_TRACES_EXPORTER names, by default OTLP's. Raises SettingsError."""
    names = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return [_load(name.strip().lower(), environment) for name in names.split(",") if name.strip()]


def _load(name: str, environment: Mapping[str, str]) -> SpanExporter:
    variable, wanted = "OTEL_TRACES_EXPORTER", name
    if name == "otlp":
        variable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
        if not (protocol := environment.get(variable, "").strip()):
            variable = "OTEL_EXPORTER_OTLP_PROTOCOL"
            protocol = environment.get(variable, "").strip() or "http/protobuf"
        wanted = _PROTOCOLS.get(protocol, protocol)
    found = list(entry_points(group=_GROUP, name=wanted))
    if not found:
        raise SettingsError(variable, f"no installed package exports spans by {wanted!r}")
    exporter: SpanExporter = found[0].load()()
    return exporter


def read_context(headers: Mapping[str, str]) -> SpanContext | None:
    """Return the span that a `traceparent` names, None if it is missing or invalid."""
    found = get_current_span(PROPAGATOR.extract({TRACEPARENT: headers.get(TRACEPARENT, "")}))
    context = found.get_span_context()
    return context if context.is_valid else None


def _resource(service: str) -> Resource:
    found = Resource.create({SERVICE_VERSION: __version__})
    if str(found.attributes[SERVICE_NAME]).startswith(_NO_SERVICE):
        found = found.merge(Resource({SERVICE_NAME: service}))
    return found
