"""Answers as HTTP: a record as its own bytes or in an envelope, an absent one, a written position.

Headers of a read, on 200, 304, 404 `key-absent` and 422 alike (`value-left-in-kafka`,
`value-not-decodable`), and on 503 `registry-unavailable`:

    ETag                "partition-offset" of the record (not on 404)
    Last-Modified       the record's timestamp (not on 404, nor where the record has none)
    Keylane-Position    partition:offset of the record (not on 404)
    Keylane-Timestamp   the record's timestamp in ms since 1970 (not on 404)
    Keylane-Watermark   partition:next_offset of the lane: everything below it is in this answer
    Keylane-Age-Ms      a bound on staleness: nothing acknowledged longer ago than this is missing
    Keylane-Building    `true`, and no age, where `?partial=true` asked a lane that isn't whole yet
    Keylane-Value-Bytes size of a value that is left in Kafka (on 422 alone)
    Keylane-Incomplete  `true` where the topic's retention has removed records that the state never saw
    Vary                Accept: with application/octet-stream the value's bytes come as they are in Kafka

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
One of a Schema Registry has `schema_id` and `schema_type` (AVRO, PROTOBUF or JSON); one that could not be
decoded is shown in base64, and `undecoded` tells why.
"""

from __future__ import annotations

import base64
import json
import time
from functools import lru_cache
from json.encoder import encode_basestring_ascii as spell
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import Response

from keylane import problems, spelling
from keylane.api import ASYNC_APPLIED
from keylane.errors import KeyAbsent, KeylaneError, NoJsonObject, ValueLeftInKafka
from keylane.metrics import METER
from keylane.model import Position
from keylane.spelling import JSON

if TYPE_CHECKING:
    from keylane.decoding import Values
    from keylane.fields import Fields
    from keylane.model import Answer, Queued, Record, Watermark

ANSWER_LIMIT_BYTES = 6_000_000
"""What a Lambda may answer is 6 MiB of JSON, in which a body is a string: escaped, or in base64."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LAST_HTTP_DATE_MS = 253_402_300_799_999


def of_record(
    answer: Answer,
    request_id: str,
    now_ms: int,
    *,
    if_none_match: str | None,
    envelope: bool,
    fields: Fields | None = None,
    values: Values | None = None,
) -> Response[Any]:
    """200, 304 where the client has this record already, 404 `key-absent`, 422 `value-left-in-kafka`.

    409 `no-json-object` where `fields` are asked for of a value that has none; what `values` raises as the
    problem that it is.
    """
    record = answer.record
    headers = _freshness(answer, now_ms)
    if record is None:
        return problems.response_to(KeyAbsent(answer.layout.topic), request_id, headers)
    etag = etag_of(record)
    headers["ETag"] = etag
    headers["Keylane-Position"] = str(record.position)
    headers["Keylane-Timestamp"] = str(record.timestamp_ms)
    if 0 < record.timestamp_ms <= _LAST_HTTP_DATE_MS:
        headers["Last-Modified"] = http_date(min(record.timestamp_ms, now_ms))
    if if_none_match is not None and matches(if_none_match, etag):
        return Response(304, None, "", headers)
    try:
        record = values.read(answer.layout, record) if values else record
        if envelope:
            _fields_of(record, fields)
            return Response(200, JSON, Envelopes(now_ms, fields).of(answer, record), headers)
        content_type, body = _body_of(record, fields)
    except KeylaneError as error:
        if isinstance(error, ValueLeftInKafka):
            headers["Keylane-Value-Bytes"] = str(error.size_bytes)
        return problems.response_to(error, request_id, headers)
    return Response(200, content_type, body, headers)


def _freshness(answer: Answer, now_ms: int) -> dict[str, str]:
    """The headers of every answer about a key."""
    headers = {
        "Cache-Control": "no-cache",
        "Vary": "Accept",
        "X-Content-Type-Options": "nosniff",
        "Keylane-Watermark": _watermark(answer),
    }
    if answer.is_building:
        headers["Keylane-Building"] = "true"
    else:
        age_ms = answer.age_ms(now_ms)
        METER.observe("AnswerAge", age_ms, answer.layout.topic)
        headers["Keylane-Age-Ms"] = str(age_ms)
    if answer.watermark.incomplete:
        headers["Keylane-Incomplete"] = "true"
    return headers


def _fields_of(record: Record, fields: Fields | None) -> str | None:
    """The fields of a value that is here, None where none are asked for. Raises NoJsonObject."""
    if fields is None or record.left_in_kafka_bytes is not None:
        return None
    found = spelling.picked(record, fields)
    if found is None:
        raise NoJsonObject
    return found


def _body_of(record: Record, fields: Fields | None) -> tuple[str, str | bytes]:
    """Content type and body. Raises NoJsonObject, ValueLeftInKafka."""
    if record.left_in_kafka_bytes is not None:
        raise ValueLeftInKafka(str(record.position), record.left_in_kafka_bytes)
    found = _fields_of(record, fields)
    content_type, text = spelling.content_of(record) if found is None else (JSON, found)
    return content_type, record.value if text is None else text


class Envelopes:
    """The JSON documents of one request's records; `fields` as in `with_value`.

    Spelled by hand: a page has up to a thousand of these, and json.dumps takes three times as long. What the
    records of a lane have in common is spelled once.
    """

    def __init__(self, now_ms: int, fields: Fields | None) -> None:
        self._now_ms = now_ms
        self._fields = fields
        self._common: dict[int, tuple[Watermark, str, str]] = {}

    def of(self, answer: Answer, record: Record) -> str:
        """The document of one record."""
        # By identity: to hash a watermark takes as long as to spell it. It is kept, so that its id is too.
        common = self._common.get(id(answer.watermark))
        if common is None:
            common = answer.watermark, spell(answer.layout.topic), self._freshness(answer)
            self._common[id(answer.watermark)] = common
        _, topic, freshness = common
        key, key_format = _key(record.key)
        partition, offset = record.partition, record.offset
        head = (
            f'{{"topic": {topic}, "partition": {partition}, "offset": {offset}, '
            f'"position": "{partition}:{offset}", "timestamp": {record.timestamp_ms}, '
            f'"key": {spell(key)}, "key_format": "{key_format}", {freshness}'
        )
        if answer.layout.options.headers:
            head += f', "headers": {json.dumps(headers_of(record))}'
        return with_value(head, record, self._fields)

    def _freshness(self, answer: Answer) -> str:
        text = f'"watermark": "{_watermark(answer)}", '
        text += '"building": true' if answer.is_building else f'"age_ms": {answer.age_ms(self._now_ms)}'
        return text + ', "incomplete": true' if answer.watermark.incomplete else text


def key_of(key: bytes) -> dict[str, str]:
    """A key and its format."""
    text, key_format = _key(key)
    return {"key": text, "key_format": key_format}


def with_value(head: str, record: Record, fields: Fields | None) -> str:
    """A JSON object, given without its last brace, with the value or its `fields` added.

    Where it has none of these, `no_fields` and the value as it is.
    """
    if fields is None and record.form is None and record.left_in_kafka_bytes is None:
        value, value_format = spelling.as_json(record)
        return f'{head}, "value_format": "{value_format}", "value": {value}}}'
    if record.left_in_kafka_bytes is not None:
        left = {"value": None, "value_format": "left-in-kafka", "value_bytes": record.left_in_kafka_bytes}
        return f"{head}, {json.dumps(left)[1:]}"
    picked = spelling.picked(record, fields)
    if picked is not None:
        value, value_format = picked, "json"
    else:
        value, value_format = spelling.as_json(record)
        if fields is not None:
            head += ', "no_fields": true'
    if record.form is not None:
        for name in ("schema_id", "schema_type", "undecoded"):
            if (found := getattr(record.form, name)) is not None:
                head += f', "{name}": {json.dumps(found)}'
    return f'{head}, "value_format": "{value_format}", "value": {value}}}'


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
    day, seconds = divmod(milliseconds // 1000, 86_400)
    minutes, second = divmod(seconds, 60)
    return f"{_http_day(day)} {minutes // 60:02}:{minutes % 60:02}:{second:02} GMT"


@lru_cache(maxsize=1024)
def _http_day(days: int) -> str:
    """`Tue, 01 Jan 2013`: the date so many days after 1970 began."""
    moment = time.gmtime(days * 86_400)
    return f"{_DAYS[moment.tm_wday]}, {moment.tm_mday:02} {_MONTHS[moment.tm_mon - 1]} {moment.tm_year:04}"


def of_write(written: Position | Queued, status: int, *, is_async: bool) -> Response[str]:
    """Answer a write: where the record stands, for a read to wait for; 202 for one that is queued.

    `is_async`: the client asked not to wait.
    """
    if isinstance(written, Position):
        return of_position(written, status)
    headers = {"Cache-Control": "no-store", **(ASYNC_APPLIED if is_async else {})}
    return Response(202, JSON, json.dumps({"status": "queued", "id": written.id}), headers)


def of_position(position: Position, status: int) -> Response[str]:
    """Answer a write: where the record stands, for a read to wait for."""
    fields = {"partition": position.partition, "offset": position.offset, "position": str(position)}
    headers = {"Keylane-Position": str(position), "Cache-Control": "no-store"}
    return Response(status, JSON, json.dumps(fields), headers)
