"""A span for each request, by OpenTelemetry's conventions for HTTP servers. Imported if spans are exported.

The request then belongs to that span: the records that it writes carry the span's context in `traceparent`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.semconv.attributes.client_attributes import CLIENT_ADDRESS
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.http_attributes import (
    HTTP_REQUEST_METHOD,
    HTTP_RESPONSE_STATUS_CODE,
    HTTP_ROUTE,
)
from opentelemetry.semconv.attributes.url_attributes import URL_PATH, URL_QUERY, URL_SCHEME
from opentelemetry.semconv.attributes.user_agent_attributes import USER_AGENT_ORIGINAL
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from keylane.adapters.open_telemetry import PROPAGATOR
from keylane_server.greenlets import RequestCancelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import Span

    from keylane.adapters.open_telemetry import Tracing
    from keylane.api.http.response import Response
    from keylane_server.received import ReceivedRequest

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
_SERVER_ERRORS = 500


class RequestSpans:
    """Makes the spans of one process. `scheme`: http or https."""

    def __init__(self, tracing: Tracing, scheme: str) -> None:
        self._tracing = tracing
        self._scheme = scheme

    @contextmanager
    def of(self, request: ReceivedRequest) -> Iterator[RequestSpan]:
        """Give a span that ends with the block. The request's trace headers become those of the span."""
        method = request.method if request.method in METHODS else "_OTHER"
        shown = "HTTP" if method == "_OTHER" else method
        attributes = {HTTP_REQUEST_METHOD: method, URL_SCHEME: self._scheme, URL_PATH: _text(request.path)}
        if route := request.target.route:
            attributes[HTTP_ROUTE] = route.path
            shown = f"{shown} {route.path}"
        if request.query_string:
            attributes[URL_QUERY] = _text(request.shown_query)
        if request.source_ip:
            attributes[CLIENT_ADDRESS] = request.source_ip
        if agent := request.last.get("user-agent"):
            attributes[USER_AGENT_ORIGINAL] = agent
        parent = PROPAGATOR.extract(request.last)
        span = self._tracing.tracer.start_span(shown, parent, SpanKind.SERVER, attributes)
        _pass_on(span, request)
        try:
            yield RequestSpan(span)
        except RequestCancelled as error:
            span.set_attribute(ERROR_TYPE, type(error).__name__)
            raise
        except BaseException as error:
            span.set_attribute(ERROR_TYPE, type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()

    def close(self) -> None:
        """Export the spans that wait."""
        self._tracing.close()


class RequestSpan:
    """The span of one request."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def answered(self, response: Response[object]) -> None:
        """Note the response."""
        self._span.set_attribute(HTTP_RESPONSE_STATUS_CODE, response.status_code)
        if response.status_code >= _SERVER_ERRORS:
            self._span.set_attribute(ERROR_TYPE, response.problem or str(response.status_code))
            self._span.set_status(Status(StatusCode.ERROR))


def _pass_on(span: Span, request: ReceivedRequest) -> None:
    for name in PROPAGATOR.fields:
        request.headers.pop(name, None)
    PROPAGATOR.inject(request.headers, set_span_in_context(span))


def _text(received: str) -> str:
    """Return text that UTF-8 can encode: one attribute that can't be would cost the whole batch."""
    return received.encode(errors="surrogateescape").decode(errors="replace")
