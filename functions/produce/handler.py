"""The produce function: records to Kafka, of one key, or of many as kprf and REST Proxy accept them.

Each route parses its request, passes the guards (rate limits, idempotency key), writes the records, and
renders the result of each record.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from keylane.api import (
    kprf,
    preferences,
    problems,
    rest_proxy,
    rest_proxy_answers,
    rest_proxy_v3,
    rest_proxy_v3_batch,
    router,
    write_key,
)
from keylane.api.event import KEY_FORMAT, Event, request_id_of, topic_of
from keylane.api.guarded_write import GuardedWrite
from keylane.api.idempotency import IDEMPOTENCY_KEY
from keylane.api.rest_proxy_schemas import MEDIA_TYPES, RequestSchemas
from keylane.api.rest_proxy_v3_records import RecordParser
from keylane.api.rest_proxy_v3_reports import render_reports
from keylane.api.rest_proxy_v3_schemas import RecordSchemas
from keylane.api.trace_context import has_trace, trace_headers
from keylane.model.routes import PermissionKind
from keylane.produce.put import put_all
from keylane.wiring.api import read_api_settings
from keylane.wiring.metrics import build_meter
from keylane.wiring.produce import ProduceParts, build_produce, preload_clients

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.api.response import Response
    from keylane.model.records import NewRecord
    from keylane.ports import RecordResult

meter = build_meter()
app = router.Resolver("produce", meter, cache(read_api_settings))
preload_clients()


@cache
def parts() -> ProduceParts:
    """Build what the function works with, at its first request."""
    return build_produce(meter)


@app.operation(
    parameters=(KEY_FORMAT, preferences.PREFER_ASYNC, IDEMPOTENCY_KEY),
    body=router.BYTES,
    answer="Written",
    status=201,
    accepted="Accepted",
    refusals=(403, 409, 413, 415, 422, 429, 502),
)
def put_key(event: Event, topic: str, key: str) -> Response[str]:
    """Write the body as the key's value."""
    return _write_key(event, write_key.parse_put(event, topic, key), 201)


@app.operation(
    parameters=(KEY_FORMAT, preferences.PREFER_ASYNC, IDEMPOTENCY_KEY),
    answer="Written",
    accepted="Accepted",
    refusals=(403, 409, 413, 422, 429, 502),
)
def delete_key(event: Event, topic: str, key: str) -> Response[str]:
    """Write a tombstone for the key."""
    return _write_key(event, write_key.parse_delete(event, topic, key), 200)


@app.operation(
    parameters=(IDEMPOTENCY_KEY,),
    body=kprf.BODY,
    answer="Pushed",
    refusals=(403, 409, 413, 415, 422, 429, 502),
    reports_failures=True,
)
def push(event: Event) -> Response[str]:
    """Write records to any topics, as with kprf."""
    request = kprf.parse_push(event)
    try:
        response = _push(event, request)
    except Exception as error:  # noqa: BLE001 (answered as the router would, with the method's own name)
        response = problems.response_to(error, request_id_of(event))
    response.method = "push/async" if request.is_async else "push/sync"  # as kprf's metrics call it
    return response


def _push(event: Event, request: kprf.PushRequest) -> Response[str]:
    use = parts()
    with GuardedWrite(use.guards, event, request.records) as write:
        if not write.is_replayed:
            results = _put(use, event, request.records, write, is_async=request.is_async)
            rendered = kprf.render_push(results, request_id_of(event), as_kprf=use.pushes_as_kprf)
            write.respond(results, rendered)
    return write.response


_rest_proxy = app.operation(
    parameters=(rest_proxy.KEY_FORMAT, preferences.PREFER_ASYNC, IDEMPOTENCY_KEY),
    bodies=rest_proxy.BODIES,
    answer="Offsets",
    accepted="Offsets",
    answer_type=rest_proxy_answers.JSON,
    refusals=(403, 409, 413, 415, 422, 429),
    render_error=rest_proxy_answers.render_failure,
)


@_rest_proxy
def post_records(event: Event, topic: str) -> Response[str]:
    """Write records to the topic, as with Confluent's REST Proxy."""
    return _post(event, topic)


@_rest_proxy
def post_records_to_partition(event: Event, topic: str, partition: str) -> Response[str]:
    """Write records to one partition of the topic, as with Confluent's REST Proxy."""
    return _post(event, topic, partition)


@app.operation(
    parameters=(IDEMPOTENCY_KEY,),
    bodies=rest_proxy_v3.BODIES,
    answer="V3Report",
    refusals=(409, 413, 415, 422, 429),
    render_error=rest_proxy_answers.render_failure,
)
def post_v3_records(event: Event, cluster: str, topic: str) -> Response[str]:
    """Write a stream of records to the topic, as with REST Proxy v3."""
    request = rest_proxy_v3.parse_stream(event, cluster, topic, _v3_parser(topic))
    return _post_v3(event, request, render_reports)


@app.operation(
    parameters=(IDEMPOTENCY_KEY,),
    bodies=rest_proxy_v3_batch.BODIES,
    answer="V3Batch",
    status=rest_proxy_v3_batch.MULTI_STATUS,
    refusals=(409, 413, 415, 422, 429),
    render_error=rest_proxy_answers.render_failure,
)
def post_v3_batch(event: Event, cluster: str, topic: str) -> Response[str]:
    """Write a batch of records, each with an id, to the topic, as with REST Proxy v3."""
    request = rest_proxy_v3_batch.parse_batch(event, cluster, topic, _v3_parser(topic))
    return _post_v3(event, request, rest_proxy_v3_batch.render_batch)


def _v3_parser(topic: str) -> RecordParser:
    schemas = RecordSchemas(_schemas(), topic_of(topic), app.settings().topics)
    return RecordParser(schemas, parts().writer.clock.now_ms())


def _post_v3(
    event: Event,
    request: rest_proxy_v3.StreamRequest,
    render: Callable[[rest_proxy_v3.StreamRequest, Sequence[RecordResult], str], Response[str]],
) -> Response[str]:
    use, records = parts(), request.records
    with GuardedWrite(use.guards, event, records) as write:
        if not write.is_replayed:
            results = _put(use, event, records, write, is_async=False)
            write.respond(results, render(request, results, request_id_of(event)))
    return write.response


def _write_key(event: Event, request: write_key.WriteKeyRequest, status: int) -> Response[str]:
    use = parts()
    with GuardedWrite(use.guards, event, [request.record]) as write:
        if not write.is_replayed:
            results = _put(use, event, [request.record], write, is_async=request.is_async)
            write.respond(results, write_key.render_write(request, results[0], status))
    return write.response


def _post(event: Event, topic: str, partition: str | None = None) -> Response[str]:
    is_async = preferences.wants_async(event)
    request = rest_proxy.parse_request(event, topic, partition)
    # Before the body, which may register a schema for the topic.
    app.settings().topics.check(request.topic, PermissionKind.WRITE)
    schemas = _schemas() if request.media_type in MEDIA_TYPES else None
    request, records = rest_proxy.parse_body(event, request, schemas)
    use = parts()
    with GuardedWrite(use.guards, event, records) as write:
        if not write.is_replayed:
            results = _put(use, event, records, write, is_async=is_async)
            rendered = rest_proxy_answers.render_results(
                request, results, request_id_of(event), is_async=is_async
            )
            write.respond(results, rendered)
    return write.response


def _put(
    use: ProduceParts, event: Event, records: Sequence[NewRecord], write: GuardedWrite, *, is_async: bool
) -> list[RecordResult]:
    """Write the records that no limit refuses, with the headers that name their request and its trace."""
    if use.has_trace_headers and (trace := trace_headers(event)):
        records = [
            each if has_trace(each) else replace(each, headers=(*each.headers, *trace)) for each in records
        ]
    if use.request_id_header:
        header = (use.request_id_header, request_id_of(event).encode())
        records = [replace(each, headers=(*each.headers, header)) for each in records]
    return put_all(use.writer, records, refused=write.refused, is_async=is_async)


def _schemas() -> RequestSchemas | None:
    use = parts()
    return RequestSchemas(use.schemas, use.writer.clock, use.registry_timeout_ms) if use.schemas else None


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return router.serve(app, event, context)
