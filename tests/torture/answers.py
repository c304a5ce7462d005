"""The documents that answers of the server are: rows with their values as they were written, and problems."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from keylane.errors import (
    BadRequest,
    HistoryTooShort,
    KeylaneError,
    LaneBuilding,
    PositionNotReached,
    StateUnavailable,
    UnknownTopic,
    UnknownView,
)
from keylane.model.records import HistoryEntry, Position, Record

if TYPE_CHECKING:
    from collections.abc import Callable

_JSON_VALUE = '"value_format": "json", "value": '
Row = tuple[dict[str, Any], bytes]
"""The fields of a row, and the bytes of its value."""
ABSENT: Row = {"absent": True}, b""


def age_in_ms(age: str | int | None) -> int:
    """The age of an answer, which only a lane that is being built does not have."""
    if age is None:
        raise KeylaneError("an answer without an age, though it may not be of a lane that is being built")
    return int(age)


def raise_unless_absent(body: bytes, status: int, what: str) -> None:
    """Raise the error that a problem stands for; an absent key is none."""
    document = json.loads(body)
    kind, detail = document["type"].removeprefix("urn:keylane:problem:"), document["detail"]
    errors: dict[str, Callable[[], KeylaneError]] = {
        "state-unavailable": lambda: StateUnavailable(detail),
        "lane-building": lambda: LaneBuilding(what, 0, document.get("next_offset")),
        "unknown-topic": lambda: UnknownTopic(what),
        "unknown-view": lambda: UnknownView(what),
        "position-not-reached": lambda: PositionNotReached(detail, 0, 0),
        "history-too-short": lambda: HistoryTooShort(what, document["since_ms"]),
        "bad-request": lambda: BadRequest(detail),
    }
    if kind != "key-absent":
        error = errors.get(kind, lambda: KeylaneError(f"{status} {kind}: {detail}"))()
        raise error


def rows_of(body: bytes, start: str) -> list[Row]:
    """The rows of a document's first array, which begins with `start`."""
    text = body.decode()
    at = text.index(start) + len(start)
    rows = []
    while text[at] != "]":
        row, at = row_at(text, at)
        rows.append(row)
        at += len(", ") if text[at] == "," else 0
    return rows


def row_at(text: str, at: int) -> tuple[Row, int]:
    """The row at a place of a document, and where it ends. JSON in a value stays as it was written."""
    fields, end = json.JSONDecoder().raw_decode(text, at)
    value = b""
    if fields.get("value_format") == "json":
        value = text[at:end].partition(_JSON_VALUE)[2][:-1].encode()
    elif fields.get("value_format") == "base64":
        value = base64.b64decode(fields["value"])
    elif "value" in fields:
        value = fields["value"].encode()
    return (fields, value), end


def entry_of(key: bytes, fields: dict[str, Any], value: bytes) -> HistoryEntry:
    position, time_ms = Position(fields["partition"], fields["offset"]), fields["timestamp"]
    record = None
    if not fields.get("deleted"):
        record = Record(key, value, position.partition, position.offset, time_ms)
    return HistoryEntry(position, time_ms, record)
