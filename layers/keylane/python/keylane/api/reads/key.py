"""The latest record of a key, or its record as of a moment: the request, and the response.

The response is the record's own bytes, or a JSON document. Headers of 200, 304, 404 `key-absent`, 422
(`value-left-in-kafka`, `value-not-decodable`), and 503 `registry-unavailable`:

    ETag                "partition-offset@incarnation" of the record (not on 404); with
                        application/octet-stream "partition-offset@incarnation-bytes"; weak with an
                        envelope, whose age changes
    Last-Modified       the record's timestamp (not on 404, nor where the record has none)
    Keylane-Position    partition:offset of the record (not on 404)
    Keylane-Timestamp   the record's timestamp in ms since 1970 (as Last-Modified)
    Keylane-Watermark   partition:next_offset of the lane: everything below it is in this answer
    Keylane-Age-Ms      a bound on staleness: nothing acknowledged longer ago than this is missing
    Keylane-Building    `true`, and no age, where `?partial=true` read a lane that is still building
    Keylane-Value-Bytes size of a value that is left in Kafka (on 422 alone)
    Keylane-Incomplete  `true` if the topic's retention removed records before the lane read them
    Vary                Accept: with application/octet-stream the value's bytes come as they are in Kafka

`?envelope=true` gives JSON instead:

    {"topic": "flights", "partition": 3, "offset": 1042, "position": "3:1042", "timestamp": 1357034400000,
     "key": "N14228", "key_format": "text", "value": {...}, "value_format": "json",
     "watermark": "3:2077", "age_ms": 212}

`key_format` is `text` or, where the key is not UTF-8, `base64`. `value` is the JSON itself, digit by digit as
it was written (`value_format` `json`), or else its text (`text`), or else base64 (`base64`).
`incomplete` and `building` are there, and true, where the headers would be; `age_ms` where it is known.
Where the topic keeps them there are `headers`, [{"name": ..., "value": ..., "value_format": ...}, ...].
With `?fields=` the value of an object has these alone; any other value has `no_fields` and is shown as it is.
A value that is left in Kafka is null, its `value_format` `left-in-kafka`, with `value_bytes`.
A value of a Schema Registry has `schema_id` and `schema_type` (AVRO, PROTOBUF or JSON); one that could not be
decoded is shown in base64, and `undecoded` says why.
"""

from typing import Any, NamedTuple, Self

from keylane.api.http import problems, rendering
from keylane.api.http.common_parameters import (
    AS_OF,
    ENVELOPE,
    EVENT,
    FIELDS,
    IF_NONE_MATCH,
    KEY_FORMAT,
    MAX_AGE_MS,
    MIN_OFFSET,
    MIN_POSITION,
    PARTIAL,
    has_base64_keys,
    parse_key,
)
from keylane.api.http.conditions import CONDITIONS, Conditions
from keylane.api.http.http_date import LAST_HTTP_DATE_MS, http_date
from keylane.api.http.preferences import PREFER, accepts, bounded_wait_ms, preferred_wait_ms, prefers_bytes
from keylane.api.http.rendering import BYTES, JSON
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, FLAG, KEY, POSITION, TEXT, UNSURE, VALUE, Schema
from keylane.api.reads.envelope import Envelopes, render_watermark
from keylane.config.functions import QuerySettings
from keylane.errors import (
    BadRequest,
    KeyAbsent,
    KeylaneError,
    NoJsonObject,
    NotAcceptable,
    ValueLeftInKafka,
)
from keylane.formats.projection import Fields
from keylane.model.records import Answer, Position, Record
from keylane.query.decoding import ValueDecoder
from keylane.query.latest import NO_WAIT, Wait
from keylane.query.store import ReadTerms

READ = (
    *(KEY_FORMAT, MIN_OFFSET, ENVELOPE, PARTIAL, MAX_AGE_MS, FIELDS, AS_OF, EVENT),
    *(MIN_POSITION, PREFER, IF_NONE_MATCH, *CONDITIONS),
)
"""What a read of one key takes."""
RECORD_SCHEMA = Schema.of(
    "Record",
    optional=(*UNSURE, *(VALUE.keys() - {"value", "value_format"})),
    topic=TEXT,
    watermark=TEXT,
    age_ms=COUNT,
    building=FLAG,
    incomplete=FLAG,
    **POSITION,
    **KEY,
    **VALUE,
)
"""With `envelope=true`; else the body is the value itself."""
_NO_TERMS = ReadTerms(0)
_CHOICES = (ENVELOPE, PARTIAL, MAX_AGE_MS, FIELDS, AS_OF, EVENT)
_NO_CHOICE = [each.default for each in _CHOICES]


class KnownTags(NamedTuple):
    """The ETags that the client has, from `If-None-Match`.

    `as_bytes`: as in `etag_of`. `decoder`: of a caller to whom rules apply, as in `render_record`.
    """

    tags: frozenset[str]
    is_any: bool
    as_bytes: bool
    decoder: ValueDecoder | None = None

    @classmethod
    def parse(cls, header: str, *, as_bytes: bool = False) -> Self:
        """Parse a list of tags or `*`; the comparison of RFC 9110 is weak here."""
        tags = frozenset(tag.strip().removeprefix("W/") for tag in header.split(","))
        return cls(tags, header.strip() == "*", as_bytes)

    def has_answer(self, answer: Answer) -> bool:
        """Return whether the client has the answer's record already; it has no absent one."""
        record = answer.record
        if record is None:
            return False
        if self.is_any:
            return True
        layout = answer.layout
        incarnation = self.decoder.incarnation(layout) if self.decoder else layout.incarnation
        return etag_of(record, incarnation, as_bytes=self.as_bytes) in self.tags


class ReadKeyRequest(NamedTuple):
    """A read of one key. `as_of`: a time in ms since 1970, or a position; None for the latest record.

    `preference_applied`: the value of the header, None where there was nothing to wait for. `events`,
    `raw_keys`: as of ValueOptions.
    """

    topic: str
    key: bytes
    terms: ReadTerms
    wait: Wait
    as_of: int | Position | None = None
    known: KnownTags | None = None
    envelope: bool = False
    fields: Fields | None = None
    as_bytes: bool = False
    preference_applied: str | None = None
    request_id: str = ""
    conditions: Conditions | None = None
    accept: str | None = None
    events: bool = False
    raw_keys: bool = False

    def shown_by(self, decoder: ValueDecoder) -> Self:
        """Return the read of a caller to whom rules apply: tags are of what these show."""
        if self.known is None:
            return self
        known = self.known._replace(decoder=decoder)
        wait = self.wait._replace(is_known=known.has_answer) if self.wait.is_known else self.wait
        return self._replace(known=known, wait=wait)


def parse_read_key(request: Request, topic: str, key: str, settings: QuerySettings) -> ReadKeyRequest:
    """Parse a GET or HEAD of a key; `topic` and `key` are percent-encoded. Raises BadRequest."""
    headers = request.headers
    preferred_ms = preferred_wait_ms(PREFER.of(request)) if "prefer" in headers else None
    # Most reads have no query, and wait for nothing: nothing is looked up for them.
    wanted = _parse_min_position(request) if request.query or MIN_POSITION.key in headers else None
    envelope, partial, max_age_ms, fields, as_of, events = (
        [each.of(request) for each in _CHOICES] if request.query else _NO_CHOICE
    )
    if as_of is not None and wanted is not None:
        raise BadRequest("as_of reads the history: it can't wait for a position", "as_of")
    name, data = topic_of(topic), parse_key(request, key)
    if_none_match = headers.get("if-none-match")
    accept = headers.get("accept")
    as_bytes = prefers_bytes(accept)
    known = KnownTags.parse(if_none_match, as_bytes=as_bytes) if if_none_match else None
    wait, applied = NO_WAIT, None
    if as_of is None and (wanted, max_age_ms, if_none_match) != (None, None, None):
        wait_ms = bounded_wait_ms(request, preferred_ms, settings)
        has_answer = known.has_answer if known else None
        wait = Wait(wanted, wait_ms, has_answer, 0 if preferred_ms is None else wait_ms)
        applied = None if preferred_ms is None else f"wait={wait_ms / 1000:g}"
    return ReadKeyRequest(
        name,
        data,
        ReadTerms(settings.state_timeout_ms, max_age_ms, partial),
        wait,
        as_of,
        known,
        envelope,
        fields,
        as_bytes,
        applied,
        request.id,
        Conditions.parse(headers),
        accept,
        events,
        bool(request.query) and has_base64_keys(request),
    )


def plain_read(topic: str, key: bytes, request_id: str, accept: str | None) -> ReadKeyRequest:
    """Return the read that a GET without a query, and without a header of READ, asks for."""
    return ReadKeyRequest(topic, key, _NO_TERMS, NO_WAIT, request_id=request_id, accept=accept)


def _parse_min_position(request: Request) -> Position | int | None:
    offset: int | None = MIN_OFFSET.of(request)
    position: Position | None = MIN_POSITION.of(request)
    if offset is not None and position is not None:
        raise BadRequest("give min_offset or Keylane-Min-Position, not both", "min_offset")
    return position if offset is None else offset


def render_record(
    answer: Answer, request: ReadKeyRequest, decoder: ValueDecoder, now_ms: int
) -> Response[Any]:
    """Render 200, 304 where the client has this record already, 404 `key-absent`, 422 `value-left-in-kafka`.

    Render 406 and 412 as the request's headers demand, and 409 `no-json-object` if the request names `fields`
    and the value is not a JSON object. An error of `decoder` becomes its problem.
    """
    age_ms = None if answer.is_building else answer.age_ms(now_ms)
    headers = _freshness(answer, age_ms)
    try:
        record = answer.record
        if record is None:
            raise KeyAbsent(answer.layout.topic, was_absent=request.as_of is not None)
        tag = etag_of(record, decoder.incarnation(answer.layout), as_bytes=request.as_bytes)
        headers["ETag"] = f"W/{tag}" if request.envelope else tag
        headers["Keylane-Position"] = f"{record.partition}:{record.offset}"
        if record.timestamp_ms:
            headers["Keylane-Timestamp"] = str(record.timestamp_ms)
        modified_ms: int | None = None
        if 0 < record.timestamp_ms <= LAST_HTTP_DATE_MS:
            modified_ms = min(record.timestamp_ms, now_ms) // 1000 * 1000
            headers["Last-Modified"] = http_date(modified_ms)
        is_known = request.known is not None and request.known.has_answer(answer)
        conditions = request.conditions
        if is_known and not conditions:
            response: Response[Any] = Response(304, None, "", headers)
        else:
            decoded = decoder.decode(answer.layout, record)
            content_type, body = _render_found(answer, decoded, request, decoder, now_ms)
            has_record = False
            if conditions:
                # They count for an answer that would be a success without them (RFC 9110, 13.2.1).
                at_position = etag_of(record, 0, as_bytes=request.as_bytes)
                conditions.check((headers["ETag"], at_position), modified_ms)
                shown_since_ms = decoder.shown_since_ms(answer.layout)
                has_record = is_known or conditions.has_record(modified_ms, shown_since_ms)
            response = (
                Response(304, None, "", headers) if has_record else Response(200, content_type, body, headers)
            )
    except KeylaneError as error:
        if isinstance(error, ValueLeftInKafka):
            headers["Keylane-Value-Bytes"] = str(error.size_bytes)
        response = problems.response_to(error, request.request_id, headers)
    if age_ms is not None:
        response.ages = ((answer.layout.topic, age_ms),)
    response.headers |= _applied(request)
    return response


def render_refusal(error: KeylaneError, request: ReadKeyRequest) -> Response[str]:
    """Render what a read has waited for, as long as the client prefers, and has not met: 412."""
    return problems.response_to(error, request.request_id, _applied(request))


def _applied(request: ReadKeyRequest) -> dict[str, str]:
    """Return the header that says which preference was applied."""
    return {"Preference-Applied": request.preference_applied} if request.preference_applied else {}


def _render_found(
    answer: Answer, record: Record, request: ReadKeyRequest, decoder: ValueDecoder, now_ms: int
) -> tuple[str, str | bytes]:
    """Return a decoded record's content type and body.

    Raises ValueLeftInKafka, NoJsonObject, NotAcceptable.
    """
    fields = None if request.fields is None else _pick_fields(record, request.fields)
    if request.envelope:
        body: str | bytes = Envelopes(now_ms, request.fields, decoder).render(answer, record, fields)
        content_type = JSON
    else:
        content_type, body = _content_of(record, fields)
    if request.accept and not request.as_bytes and not accepts(request.accept, content_type):
        if request.envelope or fields is not None or not accepts(request.accept, BYTES):
            raise NotAcceptable(request.accept, f"{content_type}, or application/octet-stream")
        content_type = BYTES
    return content_type, body


def _freshness(answer: Answer, age_ms: int | None) -> dict[str, str]:
    """Return the headers of every response about a key."""
    headers = {
        "Cache-Control": "no-cache",
        "Vary": "Accept",
        "X-Content-Type-Options": "nosniff",
        "Keylane-Watermark": render_watermark(answer),
    }
    if age_ms is None:
        headers["Keylane-Building"] = "true"
    else:
        headers["Keylane-Age-Ms"] = str(age_ms)
    if answer.watermark.incomplete:
        headers["Keylane-Incomplete"] = "true"
    return headers


def _pick_fields(record: Record, fields: Fields) -> str | None:
    """Return the requested fields as JSON; None without a value. Raises NoJsonObject."""
    if record.left_in_kafka_bytes is not None:
        return None
    found = rendering.pick_fields(record, fields)
    if found is None:
        raise NoJsonObject
    return found


def _content_of(record: Record, fields: str | None) -> tuple[str, str | bytes]:
    """Return content type and body: `fields` where they are given. Raises ValueLeftInKafka."""
    if record.left_in_kafka_bytes is not None:
        raise ValueLeftInKafka(str(record.position), record.left_in_kafka_bytes)
    if fields is not None:
        return JSON, fields
    content_type, text = rendering.content_of(record)
    return content_type, record.value if text is None else text


def etag_of(record: Record, incarnation: int, *, as_bytes: bool) -> str:
    """Return the record's tag. `as_bytes`: of the bytes in Kafka, which may differ from the decoded value.

    A topic that is created again has other records at the same positions, and another incarnation.
    """
    suffix = "-bytes" if as_bytes else ""
    if incarnation:
        suffix = f"@{incarnation}{suffix}"
    return f'"{record.partition}-{record.offset}{suffix}"'
