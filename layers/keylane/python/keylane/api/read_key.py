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

from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.config.functions import QuerySettings
    from keylane.formats.projection import Fields
    from keylane.model.records import Position
from typing import TYPE_CHECKING

from keylane.api import problems, rendering
from keylane.api.rendering import JSON
from keylane.api.response import Response
from keylane.errors import KeyAbsent, KeylaneError, NoJsonObject, ValueLeftInKafka

if TYPE_CHECKING:
    from keylane.formats.projection import Fields
    from keylane.model.records import Answer, Record
    from keylane.query.decoding import Values
from keylane.api.common_parameters import (
    AS_OF,
    ENVELOPE,
    FIELDS,
    IF_NONE_MATCH,
    MAX_AGE_MS,
    MIN_OFFSET,
    MIN_POSITION,
    PARTIAL,
)
from keylane.api.envelope import Envelopes, _watermark
from keylane.api.event import KEY_FORMAT, Event, headers_of, key_of, query_of, topic_of
from keylane.api.http_date import http_date
from keylane.api.preferences import PREFER, _wait_ms, prefers_bytes

_CHOICES = (ENVELOPE, PARTIAL, MAX_AGE_MS, FIELDS, AS_OF)


_NO_CHOICE = [each.default for each in _CHOICES]


READ = (
    *(KEY_FORMAT, MIN_OFFSET, ENVELOPE, PARTIAL, MAX_AGE_MS, FIELDS, AS_OF),
    *(MIN_POSITION, PREFER, IF_NONE_MATCH),
)
"""What a read of one key takes."""


class ReadRequest(NamedTuple):
    """A read of one key, as its client asked for it."""

    topic: str
    key: bytes
    min_position: Position | int | None
    wait_ms: float
    envelope: bool
    partial: bool
    if_none_match: str | None
    is_wait_asked: bool = False
    max_age_ms: int | None = None
    fields: Fields | None = None
    as_of: int | Position | None = None
    as_bytes: bool = False

    @property
    def preference_applied(self) -> str | None:
        """What `Preference-Applied` tells, None where there was nothing to wait for."""
        if not self.is_wait_asked:
            return None
        asked = (self.min_position, self.max_age_ms, self.if_none_match)
        waits = self.as_of is None and any(each is not None for each in asked)
        return f"wait={self.wait_ms / 1000:g}" if waits else None


def read_request(event: Event, topic: str, key: str, settings: QuerySettings) -> ReadRequest:
    """Parse a GET or HEAD of a key. Raises BadRequest, which names the parameter at fault.

    `topic` and `key` are the raw parts of the path, still percent-encoded.
    Query: `key_format`, `min_offset`, `envelope`, `partial`, `max_age_ms`, `fields`,
    `as_of`. Headers: `Keylane-Min-Position`, `Prefer: wait=SECONDS`, `If-None-Match`, `Accept`.
    """
    query = query_of(event)
    headers = headers_of(event)
    wait_ms = _wait_ms(PREFER.of(headers))
    min_position = _min_position(query, headers)
    # Most reads have no query: nothing is looked up for them.
    envelope, partial, max_age_ms, fields, as_of = (
        [each.of(query) for each in _CHOICES] if query else _NO_CHOICE
    )
    if as_of is not None and min_position is not None:
        raise BadRequest("as_of asks for the past: no position is waited for", "as_of")
    return ReadRequest(
        topic_of(topic),
        key_of(key, query),
        min_position,
        settings.wait_default_ms if wait_ms is None else min(wait_ms, settings.wait_max_ms),
        envelope,
        partial,
        IF_NONE_MATCH.of(headers),
        wait_ms is not None,
        max_age_ms,
        fields,
        as_of,
        as_bytes=prefers_bytes(headers.get("accept")),
    )


def _min_position(query: Mapping[str, str], headers: Mapping[str, str]) -> Position | int | None:
    offset: int | None = MIN_OFFSET.of(query)
    wanted: Position | None = MIN_POSITION.of(headers)
    if offset is not None and wanted is not None:
        raise BadRequest("give min_offset or Keylane-Min-Position, not both", "min_offset")
    return wanted if offset is None else offset


ANSWER_LIMIT_BYTES = 6_000_000
"""What a Lambda may answer is 6 MiB of JSON, in which a body is a string: escaped, or in base64."""


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
    age_ms = None if answer.is_building else answer.age_ms(now_ms)
    headers = _freshness(answer, age_ms)
    try:
        record = _record_of(answer)
        etag = etag_of(record)
        headers["ETag"] = etag
        headers["Keylane-Position"] = str(record.position)
        headers["Keylane-Timestamp"] = str(record.timestamp_ms)
        if 0 < record.timestamp_ms <= _LAST_HTTP_DATE_MS:
            headers["Last-Modified"] = http_date(min(record.timestamp_ms, now_ms))
        if if_none_match is not None and matches(if_none_match, etag):
            response: Response[Any] = Response(304, None, "", headers)
        else:
            record = values.read(answer.layout, record) if values else record
            if envelope:
                _fields_of(record, fields)
                response = Response(200, JSON, Envelopes(now_ms, fields).of(answer, record), headers)
            else:
                response = Response(200, *_body_of(record, fields), headers)
    except KeylaneError as error:
        if isinstance(error, ValueLeftInKafka):
            headers["Keylane-Value-Bytes"] = str(error.size_bytes)
        response = problems.response_to(error, request_id, headers)
    if age_ms is not None:
        response.ages = ((answer.layout.topic, age_ms),)
    return response


def _record_of(answer: Answer) -> Record:
    """The record. Raises KeyAbsent."""
    if answer.record is None:
        raise KeyAbsent(answer.layout.topic)
    return answer.record


def _freshness(answer: Answer, age_ms: int | None) -> dict[str, str]:
    """The headers of every answer about a key."""
    headers = {
        "Cache-Control": "no-cache",
        "Vary": "Accept",
        "X-Content-Type-Options": "nosniff",
        "Keylane-Watermark": _watermark(answer),
    }
    if age_ms is None:
        headers["Keylane-Building"] = "true"
    else:
        headers["Keylane-Age-Ms"] = str(age_ms)
    if answer.watermark.incomplete:
        headers["Keylane-Incomplete"] = "true"
    return headers


def _fields_of(record: Record, fields: Fields | None) -> str | None:
    """The fields of a value that is here, None where none are asked for. Raises NoJsonObject."""
    if fields is None or record.left_in_kafka_bytes is not None:
        return None
    found = rendering.picked(record, fields)
    if found is None:
        raise NoJsonObject
    return found


def _body_of(record: Record, fields: Fields | None) -> tuple[str, str | bytes]:
    """Content type and body. Raises NoJsonObject, ValueLeftInKafka."""
    if record.left_in_kafka_bytes is not None:
        raise ValueLeftInKafka(str(record.position), record.left_in_kafka_bytes)
    found = _fields_of(record, fields)
    content_type, text = rendering.content_of(record) if found is None else (JSON, found)
    return content_type, record.value if text is None else text


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
