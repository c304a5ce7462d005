"""Spans of the job's batches, with OpenTelemetry's exporter that keeps them in memory."""

from __future__ import annotations

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from keylane.adapters.open_telemetry import Tracing
from keylane_spark.telemetry.batch_spans import BatchSpans
from keylane_spark.telemetry.tally import Tally

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def reported(*batches: tuple) -> list:
    exporter = InMemorySpanExporter()
    spans = BatchSpans(Tracing("tested", lambda: [exporter], print))
    for batch in batches:
        spans.report(1_000, 1_250, *batch)
    spans.close()
    return list(exporter.get_finished_spans())


def test_a_batch_of_one_topic_is_named_by_it_and_linked_to_valid_traces():
    tallies = {("orders", 0): Tally(records=2), ("orders", 1): Tally(records=3)}
    [span] = reported((tallies, [f"00-{TRACE}-{SPAN}-01".encode(), b"nonsense", b"\xff"]))
    assert (span.name, span.kind, span.parent) == ("process orders", SpanKind.CONSUMER, None)
    assert (span.start_time, span.end_time) == (1_000_000_000, 1_250_000_000)
    assert span.attributes["messaging.batch.message_count"] == 5
    assert span.attributes["messaging.destination.name"] == "orders"
    [link] = span.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (TRACE, SPAN)


def test_a_batch_of_several_topics_lists_them_and_one_without_records_is_no_span():
    [span] = reported(({("b", 0): Tally(records=1), ("a", 0): Tally(records=1)},), ({},))
    assert span.name == "process"
    assert span.attributes["keylane.topics"] == ("a", "b")
    assert "messaging.destination.name" not in span.attributes
