"""A collector of OpenTelemetry's spans (OTLP over HTTP, protobuf), in a thread of the tests."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from tests.support.http_doubles import Exchange, HttpDouble


class CollectedSpan:
    """A span that came, with the name of its service."""

    def __init__(self, service: str, span: Any) -> None:
        self.service = service
        self.name: str = span.name
        self.kind: int = span.kind
        self.trace_id: str = span.trace_id.hex()
        self.id: str = span.span_id.hex()
        self.parent_id: str = span.parent_span_id.hex()
        self.links = [(each.trace_id.hex(), each.span_id.hex()) for each in span.links]
        self.attributes = {each.key: _value(each.value) for each in span.attributes}
        self.is_error: bool = span.status.code == span.status.STATUS_CODE_ERROR


class Collector(HttpDouble):
    """Keeps what exporters send to `url`."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        super().__init__(self._reply, protocol="HTTP/1.1")

    @property
    def variables(self) -> dict[str, str]:
        """What has a process export to here, soon after each span."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def _reply(self, exchange: Exchange) -> None:
        self.take(exchange.path, exchange.body())
        answer = ExportTraceServiceResponse().SerializeToString()
        exchange.answer(200, answer, [("Content-Type", "application/x-protobuf")])

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {each.key: _value(each.value) for each in of_resource.resource.attributes}
            for scope in of_resource.scope_spans:
                self.spans += [CollectedSpan(resource["service.name"], each) for each in scope.spans]


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
