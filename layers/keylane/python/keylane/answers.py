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
With `?fields=` the value of an object has these alone; any other value is `no_fields` and shown as it is.
A value that is left in Kafka is null, its `value_format` `left-in-kafka`, with `value_bytes`.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import Response

from keylane import problems
from keylane.errors import KeyAbsent, NoJsonObject, ValueLeftInKafka
from keylane.fields import project

if TYPE_CHECKING:
    from keylane.fields import Fields
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
    answer: Answer,
    request_id: str,
    now_ms: int,
    *,
    if_none_match: str | None,
    envelope: bool,
    fields: Fields | None = None,
) -> Response[Any]:
    """200, 304 where the client has this record already, 404 `key-absent`, 422 `value-left-in-kafka`.

    409 `no-json-object` where `fields` are asked for of a value that has none.
    """
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
    etag = etag_of(record)
    headers["ETag"] = etag
    headers["Keylane-Position"] = str(record.position)
    headers["Keylane-Timestamp"] = str(record.timestamp_ms)
    if 0 < record.timestamp_ms <= _LAST_HTTP_DATE_MS:
        headers["Last-Modified"] = http_date(min(record.timestamp_ms, now_ms))
    if if_none_match is not None and matches(if_none_match, etag):
        return Response(304, None, "", headers)
    picked = None
    if fields is not None and record.left_in_kafka_bytes is None:
        picked = project(record.value, fields)
        if picked is None:
            error = NoJsonObject()
            kind = problems.kind_of(error)
            return problems.problem(kind, str(error), request_id, parameter="fields", headers=headers)
    if envelope:
        return Response(200, JSON, envelope_of(answer, record, now_ms, fields), headers)
    if record.left_in_kafka_bytes is not None:
        left = ValueLeftInKafka(str(record.position), record.left_in_kafka_bytes)
        headers["Keylane-Value-Bytes"] = str(left.size_bytes)
        return problems.problem(problems.kind_of(left), str(left), request_id, headers=headers)
    content_type, text = sniff(record.value) if picked is None else (JSON, picked)
    return Response(200, content_type, record.value if text is None else text, headers)


def envelope_of(answer: Answer, record: Record, now_ms: int, fields: Fields | None = None) -> str:
    """The JSON document of one record; `fields` as in `with_value`."""
    freshness = {"building": True} if answer.is_building else {"age_ms": answer.age_ms(now_ms)}
    described = {
        "topic": answer.layout.topic,
        **metadata_of(record),
        "watermark": _watermark(answer),
        **freshness,
        **({"incomplete": True} if answer.watermark.incomplete else {}),
    }
    if answer.layout.options.headers:
        described["headers"] = headers_of(record)
    return with_value(described, record, fields)


def metadata_of(record: Record) -> dict[str, Any]:
    """What a record is, but for its value and headers."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "position": str(record.position),
        "timestamp": record.timestamp_ms,
        **key_of(record.key),
    }


def key_of(key: bytes) -> dict[str, str]:
    """A key and its format."""
    text, key_format = _key(key)
    return {"key": text, "key_format": key_format}


def with_value(described: dict[str, Any], record: Record, fields: Fields | None) -> str:
    """Add the value, or its `fields`; where it has none, `no_fields` and the value as it is."""
    if record.left_in_kafka_bytes is not None:
        left = {"value": None, "value_format": "left-in-kafka", "value_bytes": record.left_in_kafka_bytes}
        return json.dumps(described | left)
    picked = None if fields is None else project(record.value, fields)
    if picked is not None:
        value, value_format = picked, "json"
    else:
        value, value_format = _value(record.value)
        if fields is not None:
            described["no_fields"] = True
    return f'{json.dumps(described)[:-1]}, "value_format": "{value_format}", "value": {value}}}'


def _value(value: bytes) -> tuple[str, str]:
    """Spell a value as JSON, and name its format."""
    content_type, text = sniff(value)
    if text is None:
        return json.dumps(base64.b64encode(value).decode()), _FORMATS[content_type]
    return text if content_type == JSON else json.dumps(text), _FORMATS[content_type]


def headers_of(record: Record) -> list[dict[str, str | None]]:
    """The record's own headers."""
    return [_header(name, value) for name, value in record.headers]


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


def etag_of(record: Record) -> str:
    """The record's strong tag: `"partition-offset"`."""
    return f'"{record.partition}-{record.offset}"'


def is_known(answer: Answer, if_none_match: str) -> bool:
    """Whether the client has this answer's record already."""
    return answer.record is not None and matches(if_none_match, etag_of(answer.record))


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
