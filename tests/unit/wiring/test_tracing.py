"""Whether spans are exported and by what; and that nothing which is wrong there stops a process."""

from __future__ import annotations

import logging
import sys
import threading

import pytest
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from keylane.adapters import open_telemetry
from keylane.adapters.open_telemetry import SdkMessages, Tracing, load_exporters, read_context
from keylane.errors import SettingsError
from keylane.wiring.tracing import is_traced, open_tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
HTTP, CONSOLE = "OTLPSpanExporter", "ConsoleSpanExporter"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "None"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"}, False),
    ],
)
def test_spans_are_exported_where_the_environment_says_so(environment, expected):
    assert is_traced(environment) is expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [HTTP]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, [HTTP]),
        ({"OTEL_TRACES_EXPORTER": "Console, otlp,"}, [CONSOLE, HTTP]),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, [HTTP]),
        ({"OTEL_TRACES_EXPORTER": "otlp_proto_http", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, [HTTP]),
    ],
)
def test_exporters_are_those_that_the_environment_names(environment, expected):
    exporters = load_exporters(environment)
    assert [type(each).__name__ for each in exporters] == expected
    for each in exporters:
        each.shutdown()


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/xml"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
    ],
)
def test_an_exporter_that_is_not_there_is_said_and_stops_nothing(environment, variable):
    with pytest.raises(SettingsError, match=variable):
        load_exporters(environment)
    said: list[str] = []
    assert open_tracing({**ENDPOINT, **environment}, "tested", said.append) is None
    [sentence] = said
    assert sentence.startswith(f"no traces: {variable}")
    assert logging.getLogger("opentelemetry").propagate


def test_packages_that_are_not_installed_are_said_and_stop_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "keylane.adapters.open_telemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    said: list[str] = []
    assert open_tracing(ENDPOINT, "tested", said.append) is None
    [sentence] = said
    assert "opentelemetry.sdk.resources is not installed: pip install 'keylane[otel]'" in sentence


def test_the_environments_name_of_the_service_comes_first(monkeypatch: pytest.MonkeyPatch):
    exporter = InMemorySpanExporter()
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders-api")
    tracing = Tracing("tested", lambda: [exporter], print)
    tracing.tracer.start_span("one").end()
    tracing.close()
    [span] = exporter.get_finished_spans()
    assert span.resource.attributes["service.name"] == "orders-api"


class StuckExporter(SpanExporter):
    """Never comes back from a collector."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.came_back = 0

    def export(self, _):
        self.released.wait(120)
        self.came_back += 1

    def shutdown(self) -> None:
        self.export(None)


def test_a_collector_that_hangs_holds_up_neither_spans_nor_the_stop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    monkeypatch.setattr(open_telemetry, "CLOSE_S", 0.1)
    said: list[str] = []
    exporter = StuckExporter()
    tracing = Tracing("tested", lambda: [exporter], said.append)
    for _ in range(100):
        tracing.tracer.start_span("one").end()
    tracing.close()
    assert exporter.came_back == 0, "it was waited for"
    exporter.released.set()
    assert said == ["traces: Queue full, dropping Span."]


def test_the_sdks_warnings_are_passed_on_once_without_credentials(monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    messages = SdkMessages(said.append)

    def warn(name: str, text: str, *arguments: object) -> None:
        messages.handle(logging.LogRecord(name, logging.WARNING, "", 0, text, arguments, None))

    for _ in range(3):
        warn("opentelemetry.exporter", "lost %d spans", 3)
    warn("opentelemetry.util.re", "Header format invalid: %s", "authorization=Bearer secret")
    assert said == ["traces: lost 3 spans", "traces: Header format invalid: %s"]
    monkeypatch.setattr(open_telemetry, "REPEAT_S", 0.0)
    warn("opentelemetry.exporter", "lost %d spans", 5)
    assert said[-1] == "traces: lost 5 spans"


def test_credentials_in_headers_of_the_collector_are_never_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The SDK's own warning shows the header that it can't read."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization Bearer top-secret")
    said: list[str] = []
    tracing = open_tracing(ENDPOINT, "tested", said.append)
    assert tracing is not None
    tracing.close()
    assert "top-secret" not in f"{said} {caplog.text}"
    assert any("invalid" in each for each in said)


@pytest.mark.parametrize("value", ["", "nonsense", f"00-{'0' * 32}-{'1' * 16}-01"])
def test_a_traceparent_that_is_none_links_to_nothing(value):
    assert read_context({"traceparent": value}) is None
