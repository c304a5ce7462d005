"""Requests that write or delete one key, and their responses."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from keylane.api.http.common_parameters import IF_NONE_MATCH, RAW, has_base64_keys, parse_key
from keylane.api.http.conditions import IF_MATCH, IF_UNMODIFIED_SINCE
from keylane.api.http.parameters import matching
from keylane.api.http.preferences import ASYNC_APPLIED, wants_async
from keylane.api.http.rendering import JSON
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, TEXT, Schema
from keylane.api.writes.record_results import QUEUED_ID
from keylane.errors import BadRequest, KeylaneError
from keylane.model.records import NewRecord, Position
from keylane.ports import RecordResult

LATEST = "latest"
SCHEMA = matching(
    "schema",
    f"the body is JSON, and is written by this schema of the topic's subject: its id, or {LATEST}",
    f"({LATEST}|[1-9][0-9]{{0,9}})",
    f"neither {LATEST} nor the id of a schema",
)
# If-Modified-Since is of reads alone (RFC 9110, 13.1.3).
_CONDITIONS = {each.key: each.name for each in (IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE)}


class WriteKeyRequest(NamedTuple):
    """The record to write. `is_async`: the client doesn't wait for Kafka.

    `schema`: the id of the schema by which its value, which is JSON, is encoded, or LATEST; None: by none.
    `names_values`: the key is one by its values, as readers name it, and not its bytes.
    """

    record: NewRecord
    is_async: bool
    schema: str | None = None
    names_values: bool = True


def parse_put(request: Request, topic: str, key: str) -> WriteKeyRequest:
    """Parse the PUT of a key: its body is the value. Raises as `parse_delete` and `Request.content`.

    A part of a value can't be written (RFC 9110, 14.5): it would replace the whole.
    """
    if "content-range" in request.headers:
        raise BadRequest("a value is written whole: leave out Content-Range", "Content-Range")
    name, data, is_async = _parse(request, topic, key)
    record = NewRecord(name, data, request.content())
    return WriteKeyRequest(record, is_async, SCHEMA.of(request), _names_values(request))


def parse_delete(request: Request, topic: str, key: str) -> WriteKeyRequest:
    """Parse the DELETE of a key; `topic` and `key` are percent-encoded, as in the path.

    Raises BadRequest; also for a condition (If-Match, say): the state lags behind Kafka, so no write can
    depend on what the state holds.
    """
    name, data, is_async = _parse(request, topic, key)
    return WriteKeyRequest(NewRecord(name, data, None), is_async, None, _names_values(request))


def _names_values(request: Request) -> bool:
    return not (request.query and (has_base64_keys(request) or RAW.of(request)))


def _parse(request: Request, topic: str, key: str) -> tuple[str, bytes, bool]:
    """Return the topic's name, the key's bytes, and whether the client doesn't wait for Kafka."""
    for name in request.headers.keys() & _CONDITIONS.keys():
        raise BadRequest(
            f"writes don't support {_CONDITIONS[name]}: a topic with insert_once keeps each key's first "
            "record; to see whose record it is, read the key from this write's position on",
            _CONDITIONS[name],
        )
    return topic_of(topic), parse_key(request, key), wants_async(request)


WRITTEN_SCHEMA = Schema.of("Written", partition=COUNT, offset=COUNT, position=TEXT)
ACCEPTED_SCHEMA = Schema.of("Accepted", status={"enum": ["queued"]}, id=QUEUED_ID)


def render_write(request: WriteKeyRequest, status: int, results: Sequence[RecordResult]) -> Response[str]:
    """Render a written record with this status, a queued one with 202. Raises the error of a failed one."""
    (result,) = results
    if isinstance(result, KeylaneError):
        raise result
    if isinstance(result, Position):
        return render_position(result, status)
    headers = {"Cache-Control": "no-store", **(ASYNC_APPLIED if request.is_async else {})}
    return Response(202, JSON, json.dumps({"status": "queued", "id": result.id}), headers)


def render_position(position: Position, status: int) -> Response[str]:
    """Render the position of a written record: a read can wait for it."""
    shown = str(position)
    # Numbers alone: json.dumps takes ten times as long.
    body = f'{{"partition": {position.partition}, "offset": {position.offset}, "position": "{shown}"}}'
    return Response(status, JSON, body, {"Keylane-Position": shown, "Cache-Control": "no-store"})
