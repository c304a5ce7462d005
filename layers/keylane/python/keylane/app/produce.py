"""Records to Kafka: of one key, or many, as kprf and REST Proxy accept them.

Each operation parses its request, passes the guards (rate limits, idempotency key), writes the records, and
renders the result of each record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from keylane.api.http import problems
from keylane.api.http.common_parameters import KEY_FORMAT, RAW
from keylane.api.http.preferences import PREFER_ASYNC, wants_async
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.router import BYTES, Application, Operations
from keylane.api.http.trace_context import has_trace, trace_headers
from keylane.api.rest_proxy import v2_answers, v2_records, v3, v3_batch, v3_reports
from keylane.api.rest_proxy.compatibility import COMPATIBLE
from keylane.api.rest_proxy.v2_schemas import MEDIA_TYPES, RequestSchemas
from keylane.api.rest_proxy.v3_records import RecordParser
from keylane.api.rest_proxy.v3_schemas import RecordSchemas
from keylane.api.writes import kprf
from keylane.api.writes.guarded_write import write_guarded
from keylane.api.writes.idempotency import IDEMPOTENCY_KEY
from keylane.api.writes.key import (
    ACCEPTED_SCHEMA,
    LATEST,
    SCHEMA,
    WRITTEN_SCHEMA,
    WriteKeyRequest,
    parse_delete,
    parse_put,
    render_write,
)
from keylane.api.writes.record_bodies import parse_json
from keylane.app import build_application
from keylane.errors import BadRequest, OutsideScope
from keylane.model.records import NewRecord
from keylane.model.routes import PRODUCE, PermissionKind
from keylane.ports import RecordResult, WaitBudget
from keylane.produce.put import put_all
from keylane.produce.write_scopes import scoped_records
from keylane.wiring.produce import ProduceParts, build_produce, preload_clients
from keylane.wiring.runtime import Runtime

ProduceApp = Application[ProduceParts]
Render = Callable[[Sequence[RecordResult]], Response[str]]

OPERATIONS = Operations(PRODUCE)


class _Terms(NamedTuple):
    """How a request's records are written.

    `is_raw`: whether readers can read them or not. `is_async`: the client doesn't wait for Kafka.
    `registry_wait`: what the request has left of it; None where it asks for no schema before.
    """

    is_raw: bool
    is_async: bool = False
    registry_wait: WaitBudget | None = None


def _parse_terms(request: Request) -> _Terms:
    """Parse the terms that are in the query. Raises BadRequest."""
    return _Terms(bool(request.query and RAW.of(request)))


def build(runtime: Runtime, environment: Mapping[str, str]) -> ProduceApp:
    """Return the application that writes. Its parts are built by the first request."""
    preload_clients(environment)
    return build_application(OPERATIONS, build_produce, runtime, environment)


@OPERATIONS.operation(
    WRITTEN_SCHEMA,
    parameters=(KEY_FORMAT, SCHEMA, RAW, PREFER_ASYNC, IDEMPOTENCY_KEY),
    body=BYTES,
    status=201,
    accepted=ACCEPTED_SCHEMA,
    refusals=(403, 409, 413, 415, 422, 429, 502),
    takes_scope=True,
)
def put_key(app: ProduceApp, request: Request, topic: str, key: str) -> Response[str]:
    """Write the body as the key's value."""
    wanted = parse_put(request, topic, key)
    record, registry_wait = wanted.record, None
    if wanted.schema is not None:
        registry_wait = app.parts().registry_wait()
        record = _by_schema(app, record, wanted.schema, registry_wait)
    return _write_key(app, request, wanted._replace(record=record), 201, registry_wait)


@OPERATIONS.operation(
    WRITTEN_SCHEMA,
    parameters=(KEY_FORMAT, RAW, PREFER_ASYNC, IDEMPOTENCY_KEY),
    accepted=ACCEPTED_SCHEMA,
    refusals=(403, 409, 413, 422, 429, 502),
    takes_scope=True,
)
def delete_key(app: ProduceApp, request: Request, topic: str, key: str) -> Response[str]:
    """Write a tombstone for the key."""
    return _write_key(app, request, parse_delete(request, topic, key), 200)


@OPERATIONS.operation(
    kprf.PUSHED_SCHEMA,
    parameters=(RAW, IDEMPOTENCY_KEY),
    body=kprf.BODY,
    refusals=(403, 409, 413, 414, 415, 422, 429, 502),
    reports_failures=True,
)
def push(app: ProduceApp, request: Request) -> Response[str]:
    """Write records to any topics, as with kprf."""
    terms = _parse_terms(request)
    wanted = kprf.parse_push(request)
    try:
        render = partial(kprf.render_push, request.id, as_kprf=app.parts().pushes_as_kprf)
        response = _write(app, request, wanted.records, render, terms._replace(is_async=wanted.is_async))
    except Exception as error:  # noqa: BLE001 (answered as the router would, with the method's own name)
        response = problems.response_to(error, request.id)
    response.method = wanted.method
    return response


_rest_proxy = partial(
    OPERATIONS.operation,
    v2_answers.OFFSETS_SCHEMA,
    parameters=(v2_records.KEY_FORMAT, RAW, PREFER_ASYNC, IDEMPOTENCY_KEY),
    bodies=v2_records.BODIES,
    accepted=v2_answers.OFFSETS_SCHEMA,
    answer_type=v2_answers.JSON,
    refusals=(403, 409, 413, 415, 422, 429),
    render_error=v2_answers.render_failure,
    compatible=COMPATIBLE,
)


@_rest_proxy(takes_scope=True)
def post_records(app: ProduceApp, request: Request, topic: str) -> Response[str]:
    """Write records to the topic, as with Confluent's REST Proxy."""
    return _post(app, request, topic)


@_rest_proxy()
def post_records_to_partition(app: ProduceApp, request: Request, topic: str, partition: str) -> Response[str]:
    """Write records to one partition of the topic, as with Confluent's REST Proxy."""
    return _post(app, request, topic, partition)


@OPERATIONS.operation(
    v3_reports.REPORT_SCHEMA,
    parameters=(RAW, IDEMPOTENCY_KEY),
    bodies=v3.BODIES,
    refusals=(409, 413, 415, 422, 429),
    render_error=v2_answers.render_failure,
)
def post_v3_records(app: ProduceApp, request: Request, cluster: str, topic: str) -> Response[str]:
    """Write a stream of records to the topic, as with REST Proxy v3."""
    terms, registry_wait = _parse_terms(request), app.parts().registry_wait()
    wanted = v3.parse_stream(request, cluster, topic, _v3_parser(app, topic, registry_wait))
    render = partial(v3_reports.render_reports, wanted, request.id)
    return _write(app, request, wanted.records, render, terms._replace(registry_wait=registry_wait))


@OPERATIONS.operation(
    v3_batch.BATCH_SCHEMA,
    parameters=(RAW, IDEMPOTENCY_KEY),
    bodies=v3_batch.BODIES,
    status=v3_batch.MULTI_STATUS,
    refusals=(409, 413, 415, 422, 429),
    render_error=v2_answers.render_failure,
)
def post_v3_batch(app: ProduceApp, request: Request, cluster: str, topic: str) -> Response[str]:
    """Write a batch of records, each with an id, to the topic, as with REST Proxy v3."""
    terms, registry_wait = _parse_terms(request), app.parts().registry_wait()
    wanted = v3_batch.parse_batch(request, cluster, topic, _v3_parser(app, topic, registry_wait))
    render = partial(v3_batch.render_batch, wanted, request.id)
    return _write(app, request, wanted.records, render, terms._replace(registry_wait=registry_wait))


def _write_key(
    app: ProduceApp,
    request: Request,
    wanted: WriteKeyRequest,
    status: int,
    registry_wait: WaitBudget | None = None,
) -> Response[str]:
    record, writer = wanted.record, app.parts().writer
    is_served = writer.served.is_served(record.topic, PermissionKind.WRITE)
    if writer.readers is not None and wanted.names_values and is_served and record.key is not None:
        record = replace(record, key=writer.readers.key_of(record.topic, record.key))
    render = partial(render_write, wanted, status)
    terms = _parse_terms(request)._replace(is_async=wanted.is_async, registry_wait=registry_wait)
    return _write(app, request, [record], render, terms)


def _by_schema(app: ProduceApp, record: NewRecord, schema: str, registry_wait: WaitBudget) -> NewRecord:
    """Return the record with its value, which is JSON, encoded by a schema of the topic's subject."""
    app.settings().topics.check(record.topic, PermissionKind.WRITE)
    schemas = _schemas(app.parts(), registry_wait)
    if schemas is None:
        raise BadRequest("schema needs a Schema Registry: the service has none", "schema")
    schema_id = None if schema == LATEST else int(schema)
    value = parse_json(record.value or b"", "; the record was not written")
    return replace(record, value=schemas.encode_value(record.topic, schema_id, value))


def _post(app: ProduceApp, request: Request, topic: str, partition: str | None = None) -> Response[str]:
    terms = _parse_terms(request)._replace(is_async=wants_async(request))
    target = v2_records.parse_target(request, topic, partition)
    if request.scope is not None and target.media_type in MEDIA_TYPES:
        raise OutsideScope("rules of the access policy apply to this caller: its records can't bring schemas")
    # Before the body, which may register a schema for the topic.
    app.settings().topics.check(target.topic, PermissionKind.WRITE)
    registry_wait = app.parts().registry_wait()
    terms = terms._replace(registry_wait=registry_wait)
    schemas = _schemas(app.parts(), registry_wait) if target.media_type in MEDIA_TYPES else None
    target, records = v2_records.parse_body(request, target, schemas)
    render = partial(v2_answers.render_results, target, request.id, is_async=terms.is_async)
    return _write(app, request, records, render, terms)


def _v3_parser(app: ProduceApp, topic: str, registry_wait: WaitBudget) -> RecordParser:
    use = app.parts()
    schemas = RecordSchemas(_schemas(use, registry_wait), topic_of(topic), app.settings().topics)
    return RecordParser(schemas, use.writer.clock.now_ms())


def _schemas(use: ProduceParts, registry_wait: WaitBudget) -> RequestSchemas | None:
    return RequestSchemas(use.schemas, registry_wait) if use.schemas else None


def _write(
    app: ProduceApp, request: Request, records: Sequence[NewRecord], render: Render, terms: _Terms
) -> Response[str]:
    """Write the records that no guard refuses, with the headers that name their request and its trace."""
    use = app.parts()
    if request.scope is not None:
        readers = use.writer.readers
        records = scoped_records(request.scope, records, readers.formats if readers else None)
    named = records
    if use.has_trace_headers and (trace := trace_headers(request)):
        named = [each if has_trace(each) else _with_headers(each, trace) for each in named]
    if use.request_id_header:
        own = ((use.request_id_header, request.id.encode()),)
        named = [_with_headers(each, own) for each in named]
    given = terms._replace(registry_wait=terms.registry_wait or use.registry_wait())
    put = partial(put_all, use.writer, named, **given._asdict())
    return write_guarded(use.guards, request, records, put, render)


def _with_headers(record: NewRecord, headers: Sequence[tuple[str, bytes]]) -> NewRecord:
    return replace(record, headers=(*record.headers, *headers))
