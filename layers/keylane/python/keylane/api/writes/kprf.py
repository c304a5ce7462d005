"""`POST /push` as in kprf (github.com/city-mobil/kafka-proxy): its request and its response.

    {"records": [{"topic": "flights", "key": "N14228", "partition": 3, "data": "..."}], "wait_for_send": true}

`topic` and `data` are required strings; `key` and `partition` may be missing or null, and a partition of -1
counts as missing, as in librdkafka. Fields that kprf doesn't know are ignored, as kprf does.

    {"status": "ok", "errors": [], "positions": ["3:1042"]}
    {"status": "err", "errors": [{"error": true, "message": "..."}, {"error": false, "message": null}],
     "positions": [null, "3:1042"]}

`errors` is empty, or has an entry for each record. kprf's code responds like this; its README shows another
form. Keylane adds `positions`, and to an entry `status` ("ok", "queued" or "error") and, where the record
failed, the fields of `record_results`. The HTTP status is 200 or that of the most severe failure, where kprf
always responds 500. Clients repeat a request by its status alone, so a push of which a part was written has
none that they would repeat, and no `Retry-After`: 422 takes the place of 429 and 5xx. With
KEYLANE_PUSH_COMPATIBILITY=kprf the status is 500, and the message of a rate-limited record kprf's.

`wait_for_send` is false by default. kprf responds to such a request before it sends anything. A function is
frozen once it has responded, and whatever its client still buffers is lost. So Keylane responds once the
records are in the write-ahead log or, without a log, once Kafka has acknowledged them.

    {"status": "ok", "errors": [], "positions": [null], "queued": ["0f8e...-0"]}

`queued` is present if a record is in the log: the record's id, which Kafka has in the header `keylane-id`.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from keylane.api.http.problems import SERVER_ERROR
from keylane.api.http.rendering import JSON
from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.http.schemas import FLAG, MAYBE_TEXT, Schema, an_array, an_object
from keylane.api.writes.record_bodies import (
    RECORDS_LIMIT,
    RecordFields,
    check_topics,
    kind_of,
    parse_document,
    parse_records,
)
from keylane.api.writes.record_results import (
    FAILURE,
    RETRY_LATER,
    describe_failure,
    log_failures,
    message_of,
    retry_after_s,
    status_of,
)
from keylane.errors import BadField, KeylaneError, RateLimited
from keylane.model.records import NewRecord, Position, Queued
from keylane.ports import RecordResult

ANY_PARTITION = -1
PARTLY_WRITTEN = 422
"""Replaces a status that invites clients to repeat the request, which would write some records twice."""
KPRF_STATUS, KPRF_RATE_LIMITED = 500, "ratelimit"
"""kprf's status of a push with a failed record, and its message for a record over a rate limit."""
_INT32 = 2**31

_RECORD = Schema.of(
    "PushRecord",
    optional=("key", "partition"),
    topic={"type": "string"},
    key={"type": ["string", "null"]},
    partition={"type": ["integer", "null"], "minimum": -_INT32, "maximum": _INT32 - 1},
    data={"type": "string"},
)
BODY = Schema.of(
    "Push",
    optional=("wait_for_send",),
    records={"type": "array", "maxItems": RECORDS_LIMIT, "items": _RECORD},
    wait_for_send={"type": ["boolean", "null"], "default": False},
)


class PushRequest(NamedTuple):
    """The records of a push. `is_async`: the client doesn't wait for Kafka."""

    records: list[NewRecord]
    is_async: bool

    @property
    def method(self) -> str:
        """Return what kprf's metrics call the request."""
        return "push/async" if self.is_async else "push/sync"


def parse_push(request: Request) -> PushRequest:
    """Parse a push. Raises BadRequest, BadField, TooLarge."""
    document = parse_document(request)
    wait_for_send = document.get("wait_for_send")
    if not isinstance(wait_for_send, bool | None):
        raise BadField(f"is {kind_of(wait_for_send)}, not true or false", "wait_for_send")
    records = [_parse_record(fields) for fields in parse_records(document, 0)]
    check_topics(records)
    return PushRequest(records, is_async=not wait_for_send)


def _parse_record(fields: RecordFields) -> NewRecord:
    topic = fields.required_string("topic")
    partition = fields.integer("partition", -_INT32, _INT32 - 1)
    if partition == ANY_PARTITION:
        partition = None
    return NewRecord(topic, fields.utf8("key"), fields.required_utf8("data"), partition)


PUSHED_SCHEMA = Schema.of(
    "Pushed",
    optional=("queued",),
    status={"enum": ["ok", "err"]},
    errors={
        "type": "array",
        "description": "empty, or one entry per record",
        "items": an_object(
            optional=FAILURE,
            status={"enum": ["ok", "queued", "error"]},
            error=FLAG,
            message=MAYBE_TEXT,
            **FAILURE,
        ),
    },
    positions=an_array(MAYBE_TEXT),
    queued={
        "type": "array",
        "description": "ids of the records in the write-ahead log, null for the others",
        "items": MAYBE_TEXT,
    },
)


def render_push(request_id: str, results: Sequence[RecordResult], *, as_kprf: bool = False) -> Response[str]:
    """Render the result of each record. `as_kprf`: with the status and text that kprf has for failures."""
    if all(isinstance(result, Position) for result in results):
        # Positions alone: json.dumps takes ten times as long.
        positions = ", ".join([f'"{result}"' for result in results])
        body = f'{{"status": "ok", "errors": [], "positions": [{positions}]}}'
        return Response(200, JSON, body, {"Cache-Control": "no-store"})
    log_failures(results, request_id)
    failed = [result for result in results if isinstance(result, KeylaneError)]
    document = {
        "status": "err" if failed else "ok",
        "errors": [_render_entry(index, result, as_kprf=as_kprf) for index, result in enumerate(results)]
        if failed
        else [],
        "positions": [str(result) if isinstance(result, Position) else None for result in results],
    }
    queued = [result.id if isinstance(result, Queued) else None for result in results]
    if any(queued):
        document["queued"] = queued
    headers = {"Cache-Control": "no-store"}
    status = _status_of_push(failed, is_part=len(failed) < len(results))
    if as_kprf and failed:
        status = KPRF_STATUS
    if status in RETRY_LATER:
        headers["Retry-After"] = str(max(map(retry_after_s, failed)))
    return Response(status, JSON, json.dumps(document), headers)


def _status_of_push(failed: Sequence[KeylaneError], *, is_part: bool) -> int:
    """Return the push's status. `is_part`: other records of it were written, or queued."""
    status = max(map(status_of, failed), default=200)
    is_inviting = status in RETRY_LATER or status >= SERVER_ERROR
    return PARTLY_WRITTEN if is_part and is_inviting else status


def _render_entry(index: int, result: RecordResult, *, as_kprf: bool) -> dict[str, Any]:
    if isinstance(result, Position):
        return {"status": "ok", "error": False, "message": None}
    if isinstance(result, Queued):
        return {"status": "queued", "error": False, "message": None}
    is_short = as_kprf and isinstance(result, RateLimited)
    message = KPRF_RATE_LIMITED if is_short else message_of(index, result)
    entry = {"status": "error", "error": True, "message": message}
    return entry | describe_failure(index, result, value_field="data")
