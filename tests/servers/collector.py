"""A collector of OpenTelemetry's spans (OTLP over HTTP, protobuf), in a thread of the tests."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator


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


class Collector:
    """Keeps what exporters send to `url`."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        collector = self

        class CollectorHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(self.path, body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer((HOST, 0), CollectorHandler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    @property
    def variables(self) -> dict[str, str]:
        """What has a process export to here, soon after each span."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {each.key: _value(each.value) for each in of_resource.resource.attributes}
            for scope in of_resource.scope_spans:
                self.spans += [CollectedSpan(resource["service.name"], each) for each in scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Yield a collector that listens."""
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()
