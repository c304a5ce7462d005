"""Answers and events from responses. What lacks something is InvalidAnswer: of another server, or version."""

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from keylane_client.answers import (
    Absent,
    HistoryEntry,
    Lane,
    LogRecord,
    Position,
    Record,
    RecordHeader,
    TopicLayout,
    Window,
)
from keylane_client.errors import InvalidAnswer
from keylane_client.json_text import parse_json
from keylane_client.wire import ApiResponse, Key, Loads, normal_key

_TAG = re.compile(r'"\d+-\d+(?:@\d+)?(?:-bytes)?', re.ASCII)
"""An ETag without its end."""


@contextmanager
def expect_keylane() -> Iterator[None]:
    """Raise InvalidAnswer for an answer that lacks what Keylane's has."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidAnswer(
            f"the answer is not what this client expects ({type(error).__name__}: {error}):"
            " is the URL that of Keylane, and is its version the client's?"
        ) from error


def parse_document(response: ApiResponse, loads: Loads = parse_json) -> dict[str, Any]:
    """Parse a JSON object. Raises InvalidAnswer."""
    with expect_keylane():
        found = loads(response.body)
        if not isinstance(found, dict):
            raise TypeError(f"a JSON object is expected, not {type(found).__name__}")
        return found


def parse_freshness(headers: Mapping[str, str]) -> tuple[Position | None, timedelta | None, bool]:
    """Parse the headers of a read of one key: watermark, age, and whether the lane is incomplete."""
    watermark, age_ms = headers.get("keylane-watermark"), headers.get("keylane-age-ms")
    return (
        Position.parse(watermark) if watermark else None,
        None if age_ms is None else timedelta(milliseconds=int(age_ms)),
        headers.get("keylane-incomplete") == "true",
    )


def parse_bare_record(response: ApiResponse, topic: str, key: Key, loads: Loads) -> Record:
    """Parse a read of one key whose body is the value itself."""
    with expect_keylane():
        headers = response.headers
        value, value_format = _parse_body(response, loads)
        watermark, age, is_incomplete = parse_freshness(headers)
        return Record(
            topic=topic,
            key=normal_key(key),
            value=value,
            position=Position.parse(headers["keylane-position"]),
            timestamp_ms=_parse_timestamp_ms(headers),
            watermark=watermark,
            age=age,
            value_format=value_format,
            is_incomplete=is_incomplete,
            raw=response.body,
            tag=_tag_of(headers),
        )


def _tag_of(headers: Mapping[str, str]) -> str:
    """Return the ETag as the service has it: a proxy that compresses makes it weak, or adds to its end."""
    given = headers.get("etag", "")
    found = _TAG.search(given)
    return f'{found[0]}"' if found else given


def _parse_timestamp_ms(headers: Mapping[str, str]) -> int | None:
    found = headers.get("keylane-timestamp")
    return None if found is None else int(found)


def parse_absent(headers: Mapping[str, str], topic: str, key: Key) -> Absent:
    """Parse the headers of 404 `key-absent`."""
    with expect_keylane():
        watermark, age, _ = parse_freshness(headers)
        return Absent(topic, normal_key(key), watermark, age)


def parse_absence(document: Mapping[str, Any], topic: str, key: Key) -> Absent:
    """Parse a document with `absent`. Call it within `expect_keylane`."""
    watermark = document.get("watermark")
    parsed = Position.parse(watermark) if watermark else None
    return Absent(topic, normal_key(key), parsed, parse_age(document))


def parse_record(document: Mapping[str, Any], topic: str) -> Record | None:
    """Parse a record of a document; None where it is absent. Call it within `expect_keylane`."""
    if document.get("absent"):
        return None
    return Record(
        topic=document.get("topic", topic),
        key=parse_key(document),
        value=_parse_value(document),
        position=Position(document["partition"], document["offset"]),
        timestamp_ms=document["timestamp"],
        watermark=Position.parse(document["watermark"]) if "watermark" in document else None,
        age=parse_age(document),
        value_format=document["value_format"],
        is_incomplete=bool(document.get("incomplete")),
        headers=_parse_headers(document),
        value_bytes=document.get("value_bytes"),
        schema_id=document.get("schema_id"),
        undecoded=document.get("undecoded"),
    )


def parse_history_entry(document: Mapping[str, Any], page: Mapping[str, Any]) -> HistoryEntry:
    """Parse an entry of a history; its freshness is the page's."""
    is_deleted = bool(document.get("deleted"))
    partition = document["partition"]
    next_offset = page.get("watermarks", {}).get(str(partition))
    return HistoryEntry(
        position=Position(partition, document["offset"]),
        timestamp_ms=document["timestamp"],
        is_deleted=is_deleted,
        value=None if is_deleted else _parse_value(document),
        value_format="null" if is_deleted else document["value_format"],
        watermark=None if next_offset is None else Position(partition, next_offset),
        age=parse_age(page),
        headers=_parse_headers(document),
    )


def parse_log_record(document: Mapping[str, Any], topic: str) -> LogRecord:
    """Parse a raw record."""
    return LogRecord(
        topic=topic,
        position=Position(document["partition"], document["offset"]),
        timestamp_ms=document["timestamp"],
        key=None if document["key_format"] == "null" else parse_key(document),
        value=_parse_value(document),
        value_format=document["value_format"],
        headers=_parse_headers(document),
    )


def parse_window(document: Mapping[str, Any], page: Mapping[str, Any]) -> Window:
    """Parse a window of a view."""
    return Window(
        key=parse_key(document),
        start_ms=document.get("start"),
        end_ms=document.get("end"),
        is_final=bool(document.get("final")),
        changed_ms=document["changed"],
        values=document["values"],
        age=parse_age(page),
    )


def parse_layout(document: Mapping[str, Any]) -> TopicLayout:
    """Parse a topic's layout with its lanes."""
    with expect_keylane():
        lanes = tuple(map(_parse_lane, document["lanes"]))
        return TopicLayout(
            document["topic"],
            document["partitions"],
            document["stripes"],
            document["lag"],
            parse_age(document),
            lanes,
            document,
        )


def _parse_lane(document: Mapping[str, Any]) -> Lane:
    return Lane(
        partition=document["partition"],
        stripe=document["stripe"],
        slot=document["slot"],
        shard=document["shard"],
        next_offset=document["next_offset"],
        log_end=document["log_end"],
        lag=document["lag"],
        is_building=document["building"],
        is_incomplete=document["incomplete"],
        has_strays=document["has_strays"],
        age=parse_age(document),
    )


def parse_key(document: Mapping[str, Any]) -> Any:
    """Parse `key` and `key_format`: a string, bytes, or what JSON has of a typed key."""
    key: Any = document["key"]
    return base64.b64decode(key) if document.get("key_format") == "base64" else key


def parse_watermarks(document: Mapping[str, Any]) -> dict[int, int]:
    """Parse the next offset of each partition."""
    return {int(partition): offset for partition, offset in document.get("watermarks", {}).items()}


def parse_age(document: Mapping[str, Any]) -> timedelta | None:
    """Parse `age_ms`, which is missing while a lane is being built."""
    age_ms = document.get("age_ms")
    return None if age_ms is None else timedelta(milliseconds=age_ms)


def _parse_body(response: ApiResponse, loads: Loads) -> tuple[Any, str]:
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "application/json":
        return loads(response.body), "json"
    if kind == "text/plain":
        return response.body.decode(), "text"
    return response.body, "base64"


def _parse_value(document: Mapping[str, Any]) -> Any:
    value = document["value"]
    return base64.b64decode(value) if document["value_format"] == "base64" else value


def _parse_headers(document: Mapping[str, Any]) -> tuple[RecordHeader, ...] | None:
    headers = document.get("headers")
    if headers is None:
        return None
    return tuple(RecordHeader(each["name"], _parse_value(each)) for each in headers)


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `id` may be empty."""

    name: str
    id: str
    data: str


class EventParser:
    """Server-Sent Events (WHATWG HTML, 9.2) from bytes as they come. Comments are left out.

    Those without data count, too, if they have an id: they say where the stream is.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that end in this chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            if text:
                name, _, value = text.partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            if self._fields.keys() & {"data", "id"}:
                found = self._fields
                name, last_id = found.get("event", ["message"])[-1], found.get("id", [""])[-1]
                events.append(ServerEvent(name, last_id, "\n".join(found.get("data", ()))))
            self._fields = {}
        return events
