"""What answers of the server say: rows with their values as they were written, problems, and claims of lanes.

An answer does not say by which layout it was read, nor the epoch of its lane. Its watermark is complete as of
its age before the request was sent: that is at most what the lane claims.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tests.support.replies import ABSENT, PROBLEM
from tests.torture.sources import Found

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
from keylane.model.records import Answer, HistoryEntry, Layout, Position, Record, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.replies import Reply
    from tests.torture.schedule import Shape

_JSON_VALUE = '"value_format": "json", "value": '
Row = tuple[dict[str, Any], bytes]
"""The fields of a row, and the bytes of its value."""
ABSENT_ROW: Row = {"absent": True}, b""


def raise_unless_absent(reply: Reply, what: str) -> None:
    """Raise the error that a problem stands for; an absent key is none."""
    document = reply.document
    if document["type"] == ABSENT:
        return
    kind, detail = document["type"].removeprefix(PROBLEM), document["detail"]
    errors: dict[str, Callable[[], KeylaneError]] = {
        "state-unavailable": lambda: StateUnavailable(detail),
        "lane-building": lambda: LaneBuilding(what, 0, document.get("next_offset")),
        "unknown-topic": lambda: UnknownTopic(what),
        "unknown-view": lambda: UnknownView(what),
        "position-not-reached": lambda: PositionNotReached(detail, 0, 0),
        "history-too-short": lambda: HistoryTooShort(what, document["since_ms"]),
        "bad-request": lambda: BadRequest(detail),
    }
    error = errors.get(kind, lambda: KeylaneError(f"{reply.status} {kind}: {detail}"))()
    raise error


class Answers:
    """Reads answers of topics with these shapes, by name. Raises KeylaneError for what no answer may say."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes

    def latest(self, topic: str, key: bytes, reply: Reply) -> Found:
        """What a read of one key says."""
        at, record = reply.headers.get("keylane-position"), None
        if reply.status == 200 and at:
            position, time_ms = Position.parse(at), int(reply.headers["keylane-timestamp"])
            record = Record(key, reply.body, position.partition, position.offset, time_ms)
        watermark = Position.parse(reply.headers["keylane-watermark"])
        age_ms = _age_in_ms(reply.headers.get("keylane-age-ms"))
        return Found(self._answer(topic, watermark, record, reply.began_ms - age_ms))

    def envelope(self, topic: str, key: bytes, reply: Reply) -> Found:
        """What a read of one key says whose answer is a document."""
        row = row_at(reply.body.decode(), 0)[0]
        return self._of_row(topic, key, row, reply, {}, row[0])

    def many(self, topic: str, keys: Sequence[bytes], reply: Reply) -> list[tuple[bytes, Found]]:
        """What an answer says of each of the keys that were asked for."""
        rows = _rows_of(reply.body)
        if len(rows) != len(keys):
            raise KeylaneError(f"{len(rows)} records of {len(keys)} keys")
        return list(zip(keys, self._of_rows(topic, keys, rows, reply), strict=True))

    def joined(self, topics: Sequence[str], key: bytes, reply: Reply) -> list[Found]:
        """What an answer says of a key in each of the topics."""
        document, text = reply.document, reply.body.decode()
        found = []
        for topic in topics:
            name = f'"{topic}": '
            row, _ = row_at(text, text.index(name, text.index('"records": {')) + len(name))
            of_row = self._of_row(topic, key, row, reply, document["watermarks"][topic], document)
            found.append(of_row._replace(is_exact=True, is_of_lane=True))
        return found

    def page(self, topic: str, reply: Reply) -> list[tuple[bytes, Found]]:
        """The keys of a page in order, each with what it says of it. Its rows come from several rounds."""
        rows = _rows_of(reply.body)
        keys = [row[0]["key"].encode() for row in rows]
        found = self._of_rows(topic, keys, rows, reply)
        return [(key, each._replace(is_exact=False)) for key, each in zip(keys, found, strict=True)]

    def absent(self, topic: str, keys: Sequence[bytes], reply: Reply) -> dict[bytes, Found]:
        """What a page says of keys that are not in it."""
        return dict(zip(keys, self._of_rows(topic, keys, [ABSENT_ROW] * len(keys), reply), strict=True))

    def history(self, topic: str, key: bytes, reply: Reply) -> tuple[Found, list[HistoryEntry]]:
        """The records of a page of a history, newest first, with an answer that says how fresh they are."""
        document = reply.document
        found = self._of_row(topic, key, ABSENT_ROW, reply, document["watermarks"], document)
        entries = [_entry_of(key, *row) for row in _rows_of(reply.body)]
        return found._replace(is_of_lane=True), entries

    def _of_rows(self, topic: str, keys: Sequence[bytes], rows: Sequence[Row], reply: Reply) -> list[Found]:
        document = reply.document
        return [
            self._of_row(topic, key, row, reply, document["watermarks"], document)
            for key, row in zip(keys, rows, strict=True)
        ]

    def _of_row(
        self,
        topic: str,
        key: bytes,
        row: Row,
        reply: Reply,
        watermarks: Mapping[str, int],
        document: Mapping[str, Any],
    ) -> Found:
        """What a row of a document says of a key. An absent one has the least watermark of its partition."""
        fields, value = row
        if not fields.get("absent"):
            if fields["key"] != key.decode():
                raise KeylaneError(f"the answer for {key!r} is of {fields['key']!r}")
            watermark = Position.parse(fields["watermark"])
            record = Record(key, value, fields["partition"], fields["offset"], fields["timestamp"])
            complete_ms = reply.began_ms - _age_in_ms(fields.get("age_ms"))
            return Found(self._answer(topic, watermark, record, complete_ms))
        partition = self._shapes[topic].partition_of(key)
        complete_ms = reply.began_ms - _age_in_ms(document.get("age_ms"))
        answer = self._answer(topic, Position(partition, watermarks[str(partition)]), None, complete_ms)
        return Found(answer, is_exact=False, is_of_lane=False)

    def _answer(self, topic: str, watermark: Position, record: Record | None, complete_ms: int) -> Answer:
        shape = self._shapes[topic]
        layout = Layout(topic, shape.partitions, shape.stripes, generation=0, partition_by=shape.partition_by)
        claim = Watermark(watermark.offset, 0, complete_as_of_ms=complete_ms)
        return Answer(layout, watermark.partition, record, claim)


def _age_in_ms(age: str | int | None) -> int:
    """The age of an answer, which only a lane that is being built does not have."""
    if age is None:
        raise KeylaneError("an answer without an age, though it may not be of a lane that is being built")
    if int(age) < 0:
        raise KeylaneError(f"an age of {age} ms")
    return int(age)


def _rows_of(body: bytes) -> list[Row]:
    """The rows of a document's records."""
    text, start = body.decode(), '"records": ['
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


def _entry_of(key: bytes, fields: dict[str, Any], value: bytes) -> HistoryEntry:
    position, time_ms = Position(fields["partition"], fields["offset"]), fields["timestamp"]
    record = None
    if not fields.get("deleted"):
        record = Record(key, value, position.partition, position.offset, time_ms)
    return HistoryEntry(position, time_ms, record)
