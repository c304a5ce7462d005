"""Conversations that write records."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keylane_client.answers import Position, WriteFailed, Written
from keylane_client.context import TopicScope
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


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to push. `value`: as for a put; None is a tombstone. `timestamp_ms`: now, if it is None."""

    key: Key | None
    value: Any
    partition: int | None = None
    timestamp_ms: int | None = None


def put(topic: TopicScope, key: Key, value: Any, headers: Mapping[str, str]) -> Conversation[Written]:
    """Write one record."""
    body, content_type = encode_value(value)
    return (yield from _write(topic, key, "PUT", body, {**headers, "Content-Type": content_type}))


def delete(topic: TopicScope, key: Key, headers: Mapping[str, str]) -> Conversation[Written]:
    """Write a tombstone."""
    return (yield from _write(topic, key, "DELETE", None, headers))


def _write(
    topic: TopicScope, key: Key, method: str, body: bytes | None, headers: Mapping[str, str]
) -> Conversation[Written]:
    topic.terms.require_now("a write")
    path, query = key_path(topic.name, key)
    response = yield ApiRequest(method, path, query, headers, body, is_repeatable=_is_repeatable(headers))
    document = parse_document(response)
    with expect_keylane():
        is_replayed = response.headers.get("idempotency-replayed") == "true"
        if document.get("status") == "queued":
            return Written(topic.name, key, None, document["id"], is_replayed)
        position = Position(document["partition"], document["offset"])
    _note(topic, key, position)
    return Written(topic.name, key, position, None, is_replayed)


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
    return rendered


def _note(topic: TopicScope, key: Key, position: Position) -> None:
    if topic.context.ledger:
        topic.context.ledger.note(topic.name, key, position)


def _is_repeatable(headers: Mapping[str, str]) -> bool:
    return "Idempotency-Key" in headers
