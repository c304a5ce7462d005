"""A span for each written batch, linked to the traces of its records. Imported if spans are exported."""

from collections.abc import Iterable, Mapping

from opentelemetry.trace import Link, SpanKind

from keylane.adapters.open_telemetry import Tracing, read_context
from keylane.model.kafka import TopicPartition
from keylane.model.records import TRACEPARENT
from keylane_spark.telemetry.tally import Tally

_NS_OF_MS = 1_000_000


class BatchSpans:
    """Makes the spans of the job, by OpenTelemetry's conventions for consumers of messages."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def report(
        self,
        began_ms: int,
        ended_ms: int,
        tallies: Mapping[TopicPartition, Tally],
        traces: Iterable[bytes] = (),
    ) -> None:
        """Report a batch that has been written. `traces`: values of `traceparent` of its records."""
        topics = sorted({topic for topic, _ in tallies})
        if not topics:
            return
        attributes: dict[str, str | int | list[str]] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.batch.message_count": sum(tally.records for tally in tallies.values()),
            "keylane.topics": topics,
        }
        name = "process"
        if len(topics) == 1:
            name = f"process {topics[0]}"
            attributes["messaging.destination.name"] = topics[0]
        contexts = (read_context({TRACEPARENT: each.decode(errors="replace")}) for each in traces)
        span = self._tracing.tracer.start_span(
            name,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(each) for each in contexts if each is not None],
            start_time=began_ms * _NS_OF_MS,
        )
        span.end(ended_ms * _NS_OF_MS)

    def close(self) -> None:
        """Export the spans that wait."""
        self._tracing.close()
