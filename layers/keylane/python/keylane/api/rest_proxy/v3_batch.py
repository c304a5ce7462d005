"""`POST /v3/clusters/{cluster}/topics/{topic}/records:batch` of Confluent's REST Proxy: records with ids.

    {"entries": [{"id": "first", "value": {"type": "JSON", "data": "ONE"}}, ...]}

An entry is a record as in `v3_records`, with an id of its own: 1 to 80 letters, digits, `-` and
`_`. A batch with an entry that does not have the form of a record is refused as a whole. The response lists
what was written apart from what failed, with the status 207 whatever they are, as with REST Proxy:

    {"successes": [{"id": "first", "cluster_id": ..., "topic_name": ..., "partition_id": 0, ...}],
     "failures": [{"id": "second", "error_code": 400, "message": "..."}]}
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from keylane.api.http.rendering import JSON
from keylane.api.http.request import Request, id_of, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import TEXT, Schema, a_closed_object, an_array
from keylane.api.rest_proxy.v3 import StreamRequest, read_body
from keylane.api.rest_proxy.v3_records import RECORD_FIELDS, RecordParser
from keylane.api.rest_proxy.v3_reports import DOUBTS, OK, QUEUED, WRITTEN, describe_results
from keylane.api.writes.record_bodies import RECORDS_LIMIT, kind_of, parse_json
from keylane.errors import BadField, BadRequest, BadValue, BatchRefused, RecordMalformed
from keylane.ports import RecordResult

MULTI_STATUS = 207
ID = re.compile(r"[0-9a-zA-Z_-]{1,80}")
_FIELDS = RECORD_FIELDS | {"id"}
_ENTRY = Schema(
    "V3BatchEntry",
    {
        "type": "object",
        "properties": {"id": {"type": "string", "pattern": f"^{ID.pattern}$"}},
        "required": ["id"],
        "description": "a record of the stream, and its id",
    },
)
_ENTRIES = {"type": "array", "minItems": 1, "maxItems": RECORDS_LIMIT, "items": _ENTRY}
BODIES = {JSON: Schema("V3BatchRequest", a_closed_object(entries=_ENTRIES))}


def parse_batch(request: Request, cluster: str, topic: str, parser: RecordParser) -> StreamRequest:
    """Parse a request.

    Raises BadRequest, BadField, BadValue for an entry that is no record, BatchRefused, UnsupportedMediaType,
    TooLarge.
    """
    name, body = topic_of(topic), read_body(request)
    document = parse_json(body, "; no record was written") if body.strip() else None
    if document is None:
        raise BatchRefused("is empty: it must be a JSON object", "body")
    if not isinstance(document, dict):
        raise BadRequest(f"the body is {kind_of(document)}, not an object; no record was written", "body")
    for field in document.keys() - {"entries"}:
        raise BadField("is not a field of this request", field[:100])
    entries = _entries_of(document)
    ids = tuple(_id_of(entry, index) for index, entry in enumerate(entries))
    if len(set(ids)) < len(ids):
        raise BatchRefused("has ids that are not distinct", "entries")
    parsed = [parser.parse(entry, name, _FIELDS) for entry in entries]
    for index, found in enumerate(parsed):
        if isinstance(found, RecordMalformed):
            raise BadValue(f"is invalid: {found}", f"entries[{index}]") from found
    return StreamRequest(id_of(cluster), name, parsed, ids)


_OPTIONAL = {"record_id"} | WRITTEN.keys() - {"cluster_id", "topic_name"}
_SUCCESS = Schema.of("V3Success", optional=_OPTIONAL, id=TEXT, record_id=TEXT, **WRITTEN)
_FAILURE = Schema.of(
    "V3Failure", optional=DOUBTS, id=TEXT, error_code={"type": "integer"}, message=TEXT, **DOUBTS
)
BATCH_SCHEMA = Schema.of("V3Batch", successes=an_array(_SUCCESS), failures=an_array(_FAILURE))


def render_batch(request: StreamRequest, request_id: str, results: Sequence[RecordResult]) -> Response[str]:
    """Render what was written and what failed; `results`: those of the valid entries, in their order."""
    written, failed = [], []
    for entry_id, report in zip(request.ids, describe_results(request, request_id, results), strict=True):
        code = report["error_code"]
        if code not in (OK, QUEUED):
            failed.append({"id": entry_id, **report})
            continue
        success = {name: value for name, value in report.items() if name not in ("error_code", "id")}
        # The name `id` is the entry's.
        record_id = {"record_id": report["id"]} if code == QUEUED else {}
        written.append({"id": entry_id, **success, **record_id})
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(MULTI_STATUS, JSON, json.dumps({"successes": written, "failures": failed}), headers)


def _entries_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    entries = document.get("entries")
    if not isinstance(entries, list | None):
        raise BadValue(f"is {kind_of(entries)}, not an array", "entries")
    if not entries or len(entries) > RECORDS_LIMIT:
        raise BatchRefused(f"has {len(entries or ())} entries: 1 to {RECORDS_LIMIT} are allowed", "entries")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise BadValue(f"is {kind_of(entry)}, not an object", f"entries[{index}]")
    return entries


def _id_of(entry: dict[str, Any], index: int) -> str:
    found = entry.get("id")
    if not isinstance(found, str) or not ID.fullmatch(found):
        where = f"entries[{index}].id"
        raise BatchRefused("is not a string of 1 to 80 letters, digits, hyphens and underscores", where)
    return found
