"""Conversations that write records."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from keylane_client.answers import Position, WriteFailed, Written
from keylane_client.context import TopicScope
from keylane_client.errors import InvalidArgument, RequestRefused, Unavailable
from keylane_client.parsing import expect_keylane, parse_document
from keylane_client.wire import (
    ApiRequest,
    ApiResponse,
    Conversation,
    Key,
    base64_text,
    encode_key,
    encode_value,
    key_path,
    segment,
)

_BINARY = "application/vnd.kafka.binary.v2+json"
_RETRIABLE_CODE = 50003
_UNACKNOWLEDGED, _REFUSED = 504, 422
_NO_FORM: Mapping[str, str] = MappingProxyType({})
RAW = "raw"


HeaderValue = str | bytes | None
RecordHeaders = Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]]
"""Headers of a record in Kafka."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to push. `value`: as for a put; None is a tombstone. `timestamp_ms`: now, if it is None.

    `headers`: for Kafka, by name or as pairs, of which a name may have several; strings are UTF-8.
    """

    key: Key | None
    value: Any
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: RecordHeaders = ()


def put(
    topic: TopicScope, key: Key, value: Any, headers: Mapping[str, str], schema: int | str | None = None
) -> Conversation[Written]:
    """Write one record; `schema`: by which, RAW: as it is, whatever readers expect."""
    body, content_type = encode_value(value)
    form = {} if schema is None else {"raw": "true"} if schema == RAW else {"schema": str(schema)}
    return (yield from _write(topic, key, "PUT", body, {**headers, "Content-Type": content_type}, form))


def delete(topic: TopicScope, key: Key, headers: Mapping[str, str]) -> Conversation[Written]:
    """Write a tombstone."""
    return (yield from _write(topic, key, "DELETE", None, headers))


def _write(
    topic: TopicScope,
    key: Key,
    method: str,
    body: bytes | None,
    headers: Mapping[str, str],
    form: Mapping[str, str] = _NO_FORM,
) -> Conversation[Written]:
    topic.terms.require_now("a write")
    path, query = key_path(topic.name, key)
    query |= form
    response = yield ApiRequest(method, path, query, headers, body, is_repeatable=_is_repeatable(headers))
    document = parse_document(response)
    with expect_keylane():
        is_replayed = response.headers.get("idempotency-replayed") == "true"
        if document.get("status") == "queued":
            return Written(topic.name, key, None, document["id"], is_replayed)
        position = Position(document["partition"], document["offset"])
    _note(topic, key, position)
    return Written(topic.name, key, position, None, is_replayed)


def write_record(topic: TopicScope, record: NewRecord, headers: Mapping[str, str]) -> Conversation[Written]:
    """Write one record as a push does, which has its headers. Raises as `put` does."""
    [result] = yield from push(topic, [record], headers)
    if isinstance(result, Written):
        return result
    problem = {"detail": result.message, "code": result.code, "uncertain": result.is_uncertain}
    if result.is_retriable or result.is_uncertain or result.is_superseded:
        raise Unavailable(_UNACKNOWLEDGED, {**problem, "type": "unacknowledged"}, {})
    raise RequestRefused(_REFUSED, {**problem, "type": "record-refused"}, {})


def push(
    topic: TopicScope, records: Sequence[NewRecord], headers: Mapping[str, str]
) -> Conversation[list[Written | WriteFailed]]:
    """Write records to one topic, in REST Proxy's binary format: it has any bytes, and tombstones."""
    topic.terms.require_now("a push")
    if not records:
        return []
    body = json.dumps({"records": [_render(each) for each in records]}).encode()
    request = ApiRequest(
        "POST",
        f"/topics/{segment(topic.name)}",
        headers={**headers, "Content-Type": _BINARY},
        body=body,
        is_repeatable=_is_repeatable(headers),
    )
    return _results(topic, records, (yield request))


def _results(
    topic: TopicScope, records: Sequence[NewRecord], response: ApiResponse
) -> list[Written | WriteFailed]:
    document = parse_document(response)
    results: list[Written | WriteFailed] = []
    with expect_keylane():
        for record, entry in zip(records, document["offsets"], strict=True):
            result = _result(topic.name, record, entry)
            results.append(result)
            if isinstance(result, Written) and result.position and record.key is not None:
                _note(topic, record.key, result.position)
    return results


def _result(topic: str, record: NewRecord, entry: Mapping[str, Any]) -> Written | WriteFailed:
    if entry.get("status") == "queued":
        return Written(topic, record.key, None, entry["id"])
    if entry.get("error_code") is None:
        return Written(topic, record.key, Position(entry["partition"], entry["offset"]))
    return WriteFailed(
        topic,
        record.key,
        str(entry.get("error", "")),
        entry.get("code"),
        bool(entry.get("retriable", entry["error_code"] == _RETRIABLE_CODE)),
        bool(entry.get("uncertain")),
        bool(entry.get("superseded")),
    )


def _render(record: NewRecord) -> dict[str, Any]:
    value = None if record.value is None else base64_text(encode_value(record.value)[0])
    rendered: dict[str, Any] = {"value": value}
    if record.key is not None:
        rendered["key"] = base64_text(encode_key(record.key))
    if record.partition is not None:
        rendered["partition"] = record.partition
    if record.timestamp_ms is not None:
        rendered["timestamp"] = record.timestamp_ms
    if record.headers:
        rendered["headers"] = list(_render_headers(record.headers))
    return rendered


def _render_headers(headers: RecordHeaders) -> Iterator[dict[str, Any]]:
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(value, (str, bytes, type(None))):
            raise InvalidArgument(f"the header {name!r} is a {type(value).__name__}, not a string or bytes")
        data = value.encode() if isinstance(value, str) else value
        yield {"name": name, "value": None if data is None else base64_text(data)}


def _note(topic: TopicScope, key: Key, position: Position) -> None:
    if topic.context.ledger:
        topic.context.ledger.note(topic.name, key, position)


def _is_repeatable(headers: Mapping[str, str]) -> bool:
    return "Idempotency-Key" in headers
