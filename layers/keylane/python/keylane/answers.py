"""Answers as HTTP: a record as its own bytes or in an envelope, an absent one, a written position.

Headers of a read, on 200, 304, 404 `key-absent` and 422 `value-left-in-kafka` alike:

    ETag                "partition-offset" of the record (not on 404)
    Last-Modified       the record's timestamp (not on 404, nor where the record has none)
    Keylane-Position    partition:offset of the record (not on 404)
    Keylane-Timestamp   the record's timestamp in ms since 1970 (not on 404)
    Keylane-Watermark   partition:next_offset of the lane: everything below it is in this answer
    Keylane-Age-Ms      a bound on staleness: nothing acknowledged longer ago than this is missing
    Keylane-Building    `true`, and no age, where `?partial=true` asked a lane that isn't whole yet
    Keylane-Value-Bytes size of a value that is left in Kafka (on 422 alone)
    Keylane-Incomplete  `true` where the topic's retention has removed records that the state never saw

`?envelope=true` answers with JSON instead:

    {"topic": "flights", "partition": 3, "offset": 1042, "position": "3:1042", "timestamp": 1357034400000,
     "key": "N14228", "key_format": "text", "value": {...}, "value_format": "json",
     "watermark": "3:2077", "age_ms": 212}

`key_format` is `text` or, where the key isn't UTF-8, `base64`. `value` is the JSON itself, digit by digit as
it was written (`value_format` `json`), else its text (`text`), else base64 (`base64`).
`incomplete` and `building` are there, and true, where the headers would be; `age_ms` where it is known.
Where the topic keeps them there are `headers`, [{"name": ..., "value": ..., "value_format": ...}, ...].
A value that is left in Kafka is null, its `value_format` `left-in-kafka`, with `value_bytes`.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import Response

from keylane import problems
from keylane.errors import KeyAbsent, ValueLeftInKafka

if TYPE_CHECKING:
    from keylane.model import Answer, Position, Record

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
_FORMATS = {JSON: "json", TEXT: "text", BYTES: "base64"}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LAST_HTTP_DATE_MS = 253_402_300_799_999


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Numbers aren't made: their size must not matter, and only the verdict is wanted.
_json = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=_no_constant)


def of_record(
    answer: Answer, request_id: str, now_ms: int, *, if_none_match: str | None, envelope: bool
) -> Response[Any]:
    """200, 304 where the client has this record already, 404 `key-absent`, 422 `value-left-in-kafka`."""
    record = answer.record
    headers = {
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Keylane-Watermark": _watermark(answer),
    }
    if answer.is_building:
        headers["Keylane-Building"] = "true"
    else:
        headers["Keylane-Age-Ms"] = str(answer.age_ms(now_ms))
    if answer.watermark.incomplete:
        headers["Keylane-Incomplete"] = "true"
    if record is None:
        absent = KeyAbsent(answer.layout.topic)
        return problems.problem(problems.kind_of(absent), str(absent), request_id, headers=headers)
    etag = f'"{record.partition}-{record.offset}"'
    headers["ETag"] = etag
    headers["Keylane-Position"] = str(record.position)
    headers["Keylane-Timestamp"] = str(record.timestamp_ms)
    if 0 < record.timestamp_ms <= _LAST_HTTP_DATE_MS:
        headers["Last-Modified"] = http_date(min(record.timestamp_ms, now_ms))
    if if_none_match is not None and matches(if_none_match, etag):
        return Response(304, None, "", headers)
    if envelope:
        return Response(200, JSON, _envelope(answer, record, now_ms), headers)
    if record.left_in_kafka_bytes is not None:
        left = ValueLeftInKafka(str(record.position), record.left_in_kafka_bytes)
        headers["Keylane-Value-Bytes"] = str(left.size_bytes)
        return problems.problem(problems.kind_of(left), str(left), request_id, headers=headers)
    content_type, text = sniff(record.value)
    return Response(200, content_type, record.value if text is None else text, headers)


def _envelope(answer: Answer, record: Record, now_ms: int) -> str:
    key, key_format = _key(record.key)
    freshness = {"building": True} if answer.is_building else {"age_ms": answer.age_ms(now_ms)}
    fields = {
        "topic": answer.layout.topic,
        "partition": record.partition,
        "offset": record.offset,
        "position": str(record.position),
        "timestamp": record.timestamp_ms,
        "key": key,
        "key_format": key_format,
        "watermark": _watermark(answer),
        **freshness,
        **({"incomplete": True} if answer.watermark.incomplete else {}),
    }
    if answer.layout.options.headers:
        fields["headers"] = [_header(name, value) for name, value in record.headers]
    if record.left_in_kafka_bytes is not None:
        left = {"value": None, "value_format": "left-in-kafka", "value_bytes": record.left_in_kafka_bytes}
        return json.dumps(fields | left)
    value, value_format = _value(record.value)
    return f'{json.dumps(fields)[:-1]}, "value_format": "{value_format}", "value": {value}}}'


def _value(value: bytes) -> tuple[str, str]:
    """Spell a value as JSON, and name its format."""
    content_type, text = sniff(value)
    if text is None:
        return json.dumps(base64.b64encode(value).decode()), _FORMATS[content_type]
    return text if content_type == JSON else json.dumps(text), _FORMATS[content_type]


def _header(name: str, value: bytes | None) -> dict[str, str | None]:
    """Headers are text by custom: none is taken for JSON, whatever it looks like."""
    if value is None:
        return {"name": name, "value": None, "value_format": "null"}
    text, value_format = _key(value)
    return {"name": name, "value": text, "value_format": value_format}


def _watermark(answer: Answer) -> str:
    return f"{answer.partition}:{answer.watermark.next_offset}"


def _key(key: bytes) -> tuple[str, str]:
    try:
        return key.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(key).decode(), "base64"


def sniff(value: bytes) -> tuple[str, str | None]:
    """Content type of a value and, where it is UTF-8, its text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return BYTES, None
    try:
        _json.decode(text)
    except (ValueError, RecursionError):
        return TEXT, text
    return JSON, text


def matches(if_none_match: str, etag: str) -> bool:
    """Weak comparison of RFC 9110 with a list of tags or `*`."""
    tags = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return if_none_match.strip() == "*" or etag in tags


def http_date(milliseconds: int) -> str:
    """`Tue, 01 Jan 2013 10:00:00 GMT`, whatever the locale."""
    moment = time.gmtime(milliseconds // 1000)
    day, month = _DAYS[moment.tm_wday], _MONTHS[moment.tm_mon - 1]
    clock = f"{moment.tm_hour:02}:{moment.tm_min:02}:{moment.tm_sec:02}"
    return f"{day}, {moment.tm_mday:02} {month} {moment.tm_year:04} {clock} GMT"


def of_position(position: Position, status: int) -> Response[str]:
    """Answer a write: where the record stands, for a read to wait for."""
    fields = {"partition": position.partition, "offset": position.offset, "position": str(position)}
    headers = {"Keylane-Position": str(position), "Cache-Control": "no-store"}
    return Response(status, JSON, json.dumps(fields), headers)
