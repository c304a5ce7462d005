"""Spans of requests, with OpenTelemetry's exporter that keeps them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from keylane.adapters.open_telemetry import Tracing
from keylane.api.http.response import Response
from keylane.api.http.trace_context import trace_headers
from keylane_server.greenlets import RequestCancelled
from keylane_server.received import ReceivedRequest
from keylane_server.request_spans import RequestSpans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


class Traced:
    """The spans of requests, and the requests as handlers get them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.said: list[str] = []
        self._tracing = Tracing("tested", lambda: [self._exporter], self.said.append)
        self.spans = RequestSpans(self._tracing, "https")

    def answer(self, request: ReceivedRequest, status: int = 200, problem: str = "") -> None:
        with self.spans.of(request) as span:
            response = Response(status, None, "")
            response.problem = problem
            span.answered(response)

    @property
    def finished(self) -> Sequence[ReadableSpan]:
        self.spans.close()
        return self._exporter.get_finished_spans()


@pytest.fixture
def traced() -> Traced:
    return Traced()


def request(
    method: str = "GET",
    target: bytes = b"/topics/t/keys/k",
    pairs: Sequence[tuple[str, str]] = (),
    **headers: str,
) -> ReceivedRequest:
    path, _, query = target.partition(b"?")
    given = (*pairs, *headers.items())
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in given]
    scope = {"method": method, "raw_path": path, "query_string": query, "headers": pairs}
    received = ReceivedRequest({**scope, "client": ("10.0.0.7", 40_000)}, "request-1")
    received.find_target(received.path)
    return received


def test_a_span_is_named_by_the_route_and_describes_the_request(traced: Traced):
    received = request(target=b"/topics/t/keys/k?fields=a", user_agent="curl/8", traceparent=SAMPLED)
    traced.answer(received, 200)
    [span] = traced.finished
    assert (span.name, span.kind) == ("GET /topics/{topic}/keys/{key}", SpanKind.SERVER)
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.attributes == {
        "http.request.method": "GET",
        "http.route": "/topics/{topic}/keys/{key}",
        "http.response.status_code": 200,
        "url.scheme": "https",
        "url.path": "/topics/t/keys/k",
        "url.query": "fields=a",
        "client.address": "10.0.0.7",
        "user_agent.original": "curl/8",
    }
    assert span.resource.attributes["service.name"] == "tested"
    assert traced.said == []


@pytest.mark.parametrize(
    ("status", "problem", "error"),
    [(404, "key-absent", None), (503, "state-unavailable", "state-unavailable"), (502, "", "502")],
)
def test_only_an_answer_that_is_the_servers_fault_is_an_error(traced: Traced, status, problem, error):
    traced.answer(request(), status, problem)
    [span] = traced.finished
    assert (span.attributes["http.response.status_code"], span.attributes.get("error.type")) == (
        status,
        error,
    )
    assert span.status.status_code == (StatusCode.ERROR if error else StatusCode.UNSET)


@pytest.mark.parametrize(
    ("raised", "status"), [(RequestCancelled, StatusCode.UNSET), (ValueError, StatusCode.ERROR)]
)
def test_a_request_without_an_answer_has_a_span_that_says_why(traced: Traced, raised, status):
    with pytest.raises(raised), traced.spans.of(request()):
        raise raised
    [span] = traced.finished
    assert (span.attributes["error.type"], span.status.status_code) == (raised.__name__, status)
    assert "http.response.status_code" not in span.attributes


def test_records_of_a_request_get_the_context_of_its_span(traced: Traced):
    received = request("PUT", traceparent=SAMPLED, tracestate="vendor=1")
    traced.answer(received)
    [span] = traced.finished
    own = f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert dict(trace_headers(received.with_body(b""))) == {
        "traceparent": own.encode(),
        "tracestate": b"vendor=1",
    }


def test_repeated_headers_give_way_to_those_of_the_span(traced: Traced):
    scope_headers = [("traceparent", SAMPLED), ("tracestate", "a=1"), ("traceparent", SAMPLED)]
    received = request("PUT", pairs=[*scope_headers, ("tracestate", "b=2"), ("accept", "*/*")])
    traced.answer(received)
    [span] = traced.finished
    own = f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert received.headers == {"traceparent": own, "tracestate": "b=2", "accept": "*/*"}
    passed_on = {"traceparent": own.encode(), "tracestate": b"b=2"}
    assert dict(trace_headers(received.with_body(b""))) == passed_on


def test_an_invalid_parent_begins_a_new_trace_without_its_state(traced: Traced):
    received = request("PUT", traceparent=f"00-{'0' * 32}-{PARENT}-01", tracestate="vendor=1")
    traced.answer(received)
    [span] = traced.finished
    assert span.parent is None
    # The flags may say that the trace's id is random, too (03).
    flags = int(span.context.trace_flags)
    own = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{flags:02x}"
    assert dict(trace_headers(received.with_body(b""))) == {"traceparent": own.encode()}


def test_what_the_caller_does_not_sample_is_passed_on_and_not_exported(traced: Traced):
    received = request("PUT", traceparent=f"00-{TRACE}-{PARENT}-00")
    traced.answer(received)
    [(_, passed_on)] = trace_headers(received.with_body(b""))
    assert passed_on.startswith(f"00-{TRACE}-".encode())
    assert passed_on.endswith(b"-00")
    assert traced.finished == ()


@pytest.mark.parametrize(
    ("method", "target", "name", "shown"),
    [
        ("GET", b"/nothing", "GET", "GET"),
        ("BREW", b"/topics/t/keys/k", "HTTP", "_OTHER"),
        ("HEAD", b"/topics/t/keys/k", "HEAD /topics/{topic}/keys/{key}", "HEAD"),
    ],
)
def test_names_are_few_whatever_clients_send(traced: Traced, method, target, name, shown):
    traced.answer(request(method, target))
    [span] = traced.finished
    assert (span.name, span.attributes["http.request.method"]) == (name, shown)


def test_bytes_that_are_no_text_can_be_exported(traced: Traced):
    traced.answer(request(target=b"/topics/t/keys/\xff?fields=\xfe"))
    [span] = traced.finished
    assert span.attributes["url.path"] == "/topics/t/keys/%FF"
    assert "\ufffd" in span.attributes["url.query"].encode().decode()
