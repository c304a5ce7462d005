"""The response to records of REST Proxy v3: a report for each, in their order, each followed by CR and LF.

    {"error_code": 200, "cluster_id": ..., "topic_name": "flights", "partition_id": 1, "offset": 42,
     "timestamp": "2021-02-05T19:14:42Z", "key": {"type": "STRING", "size": 6},
     "value": {"type": "AVRO", "subject": "flights-value", "schema_id": 7, "schema_version": 1, "size": 9}}
    {"error_code": 400, "message": "..."}
    {"error_code": 50003, "message": "...", "uncertain": true}

The status is 200 whatever the reports say, as with REST Proxy. A record in the write-ahead log has the code
202, `"status": "queued"` and its `id`, and no offset.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from keylane import errors
from keylane.api.http.rendering import JSON
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, TEXT, Schema, an_object
from keylane.api.rest_proxy.v2_answers import FATAL, FORBIDDEN, NOT_AUTHORIZED, RETRIABLE, code_of
from keylane.api.rest_proxy.v3 import StreamRequest
from keylane.api.rest_proxy.v3_records import StreamedRecord
from keylane.api.writes.record_results import (
    FAILURE,
    describe_doubts,
    is_retriable,
    log_failures,
    message_of,
    status_of,
)
from keylane.model.records import Queued
from keylane.ports import RecordResult

OK, QUEUED = 200, 202
NULL_SIZE = -1
"""What Kafka's producer calls the size of a key or value that is null."""
_CODES = {400: 40002, 413: 413, 414: 413, 429: 429}
"""Status of the problem -> REST Proxy's code."""


_SIZED = an_object(
    optional=("subject", "schema_id", "schema_version"),
    type={"enum": ["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"]},
    subject=TEXT,
    schema_id={"type": "integer"},
    schema_version={"type": "integer"},
    size={"type": "integer", "minimum": -1, "description": "bytes; -1 for null"},
)
DOUBTS = {name: FAILURE[name] for name in ("uncertain", "superseded")}
WRITTEN: dict[str, Any] = {
    "cluster_id": TEXT,
    "topic_name": TEXT,
    "partition_id": COUNT,
    "offset": COUNT,
    "timestamp": TEXT,
    "key": _SIZED,
    "value": _SIZED,
    "status": {"enum": ["queued"], "description": "the record is in the write-ahead log"},
}
REPORT_SCHEMA = Schema(
    "V3Report",
    {
        "description": "of one record; several follow one another, each with CR and LF behind it",
        **an_object(
            optional=("message", "id", *WRITTEN, *DOUBTS),
            error_code={"type": "integer", "description": "200, or why the record was not written"},
            message=TEXT,
            id=TEXT,
            **WRITTEN,
            **DOUBTS,
        ),
    },
)


def render_reports(request: StreamRequest, request_id: str, results: Sequence[RecordResult]) -> Response[str]:
    """Render the report of each record; `results`: those of the valid ones, in their order."""
    body = "".join(f"{json.dumps(each)}\r\n" for each in describe_results(request, request_id, results))
    return Response(200, JSON, body, {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})


def describe_results(
    request: StreamRequest, request_id: str, results: Sequence[RecordResult]
) -> list[dict[str, Any]]:
    """The reports of `render_reports`."""
    log_failures(results, request_id)
    found = iter(results)
    return [
        _rejected(index, entry)
        if isinstance(entry, errors.RecordRejected)
        else _report(request, index, entry, next(found))
        for index, entry in enumerate(request.entries)
    ]


def _report(
    request: StreamRequest, index: int, streamed: StreamedRecord, result: RecordResult
) -> dict[str, Any]:
    if isinstance(result, errors.KeylaneError):
        return _rejected(index, result)
    record = streamed.record
    report: dict[str, Any] = {
        "error_code": OK,
        "cluster_id": request.cluster,
        "topic_name": request.topic,
    }
    if isinstance(result, Queued):
        report |= {"error_code": QUEUED, "status": "queued", "id": result.id}
    else:
        report |= {"partition_id": result.partition, "offset": result.offset}
    report["timestamp"] = _instant(record.timestamp_ms or 0)
    for name, form, data in (
        ("key", streamed.key_form, record.key),
        ("value", streamed.value_form, record.value),
    ):
        if form is not None:
            described = {each: value for each, value in form._asdict().items() if value is not None}
            report[name] = {**described, "size": NULL_SIZE if data is None else len(data)}
    return report


def _rejected(index: int, error: errors.KeylaneError) -> dict[str, Any]:
    return {"error_code": _code_of(error), "message": message_of(index, error), **describe_doubts(error)}


def _code_of(error: errors.KeylaneError) -> int:
    if isinstance(error, errors.RecordRejected):
        return error.error_code
    status = status_of(error)
    if status == FORBIDDEN:
        return NOT_AUTHORIZED
    return code_of(error) or _CODES.get(status) or (RETRIABLE if is_retriable(error) else FATAL)


def _instant(timestamp_ms: int) -> str:
    """The time as Java writes it: without a fraction where there is none."""
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{timestamp_ms % 1000:03d}Z" if timestamp_ms % 1000 else f"{moment}Z"
