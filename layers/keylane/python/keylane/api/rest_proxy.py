"""`POST /topics/{topic}` and `.../partitions/{partition}` as Confluent's REST Proxy v2 has them: requests.

    {"records": [{"key": "N14228", "value": {"dest": "SFO"}, "partition": 3}]}

With `application/vnd.kafka.json.v2+json` key and value are any JSON, and written as compact JSON in UTF-8: a
text keeps its quotes, in keys too, unless `key_format=text` asks for the text alone. Numbers with a fraction
are 64 bit ones, as there. With `application/vnd.kafka.binary.v2+json` both are base64; `rest_avro` tells of
`application/vnd.kafka.avro.v2+json`. Null is no key, and a tombstone.
Ours has more: `timestamp` (milliseconds since 1970, or ISO 8601) and `headers`, [{"name": ..., "value": ...,
"value_format": ...}] as reads show them; `value_format` is text for JSON and base64 for binary if it isn't
given. A field that nobody knows is refused: with a misspelt `value` a record would be a tombstone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.api.event import from_base64, headers_of, query_of, topic_of
from keylane.api.parameters import LAST_MS, choice, read_moment
from keylane.api.record_bodies import LAST_PARTITION, RECORDS_LIMIT, document_of, kind_of, records_in
from keylane.api.rest_proxy_avro import MEDIA_TYPE as AVRO
from keylane.errors import BadField, BadRequest, UnsupportedMediaType
from keylane.model.records import NewRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.api.event import Event
    from keylane.api.record_bodies import Given
    from keylane.api.rest_proxy_avro import Encoders, Part

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
_BY_SCHEMA = ("jsonschema", "protobuf")
HEADERS_LIMIT = 100
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

KEY_FORMAT = choice(
    "key_format",
    "how a key that is a JSON text is written: with its quotes, as REST Proxy does, or the text alone",
    ("json", "text"),
)
_KNOWN = frozenset({"key", "value", "partition", "timestamp", "headers"})
# Those of formats with schemas are ignored, as they are there, but for a misspelt one.
_KNOWN_OUTSIDE = frozenset({"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"})


def _body(content: dict[str, Any]) -> dict[str, Any]:
    header = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "value": {"type": ["string", "null"]},
            "value_format": {"enum": ["text", "base64"]},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    fields = {
        "key": content,
        "value": content,
        "partition": {"type": ["integer", "null"], "minimum": 0, "maximum": LAST_PARTITION},
        "timestamp": {"type": ["integer", "null"], "minimum": 1, "maximum": LAST_MS},
        "headers": {"type": ["array", "null"], "items": header, "maxItems": HEADERS_LIMIT},
    }
    record = {"type": "object", "properties": fields, "additionalProperties": False}
    records = {"type": "array", "minItems": 1, "maxItems": RECORDS_LIMIT, "items": record}
    return {
        "type": "object",
        "properties": {"records": records},
        "required": ["records"],
        "additionalProperties": False,
    }


def _by_schema(body: dict[str, Any]) -> dict[str, Any]:
    for field in ("key_schema", "value_schema"):
        body["properties"][field] = {"type": ["string", "null"], "description": "an Avro schema's text"}
        body["properties"][f"{field}_id"] = {"type": ["integer", "null"], "minimum": 1, "maximum": 2**31 - 1}
    return body


BODIES: dict[str, Any] = {
    JSON: _body({"description": "any JSON; null: none"}),
    BINARY: _body({"type": ["string", "null"], "contentEncoding": "base64"}),
    AVRO: _by_schema(_body({"description": "in Avro's JSON encoding; null: none"})),
}
"""Media type -> JSON schema of the body."""


class Asked(NamedTuple):
    """The records of a request, and the ids of the schemas that they are written by, if they are."""

    records: list[NewRecord]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


def request_of(
    event: Event,
    topic: str,
    partition: str | None = None,
    encoders_of: Callable[[], Encoders | None] = lambda: None,
) -> Asked:
    """What is to be written; `topic` and `partition` are the raw parts of the path.

    `encoders_of` gives None where no Schema Registry is set up; asked by those who write by schemas.
    Raises BadRequest, BadField, SchemaFault, UnsupportedMediaType, TooLarge, RegistryUnavailable.
    """
    name = topic_of(topic)
    number = None if partition is None else _partition_of(partition)
    media_type = _media_type(event)
    encoders = encoders_of() if media_type == AVRO else None
    if media_type == AVRO and encoders is None:
        raise UnsupportedMediaType(f"{AVRO} needs a Schema Registry, and none is set up here")
    is_binary = media_type == BINARY
    as_text = KEY_FORMAT.of(query_of(event)) == "text" and media_type == JSON
    document = document_of(event)
    for field in document.keys() - _KNOWN_OUTSIDE:
        raise BadField("is no field of this request", field[:100])
    reader = _Reader(name, number, is_binary=is_binary, key_as_text=as_text)
    records = records_in(document, 1)
    if encoders is not None:
        key, value = reader.parts = encoders.parts(document, name, records)
        return Asked([reader.record(given) for given in records], key.schema_id, value.schema_id)
    return Asked([reader.record(given) for given in records])


def _partition_of(raw: str) -> int:
    if not (raw.isascii() and raw.isdigit() and len(raw) <= len(str(LAST_PARTITION))):
        raise BadRequest(f"partition is {raw[:50]!r}, not a whole number of 0 or more", "partition")
    return min(int(raw), LAST_PARTITION)


def _media_type(event: Event) -> str:
    given = headers_of(event).get("content-type", "")
    media_type = given.partition(";")[0].strip().lower()
    if media_type not in BODIES:
        found = f"is {given[:100]!r}" if given else "is missing"
        is_by_schema = any(f".{name}." in media_type for name in _BY_SCHEMA)
        more = "; formats with other schemas are not written here" if is_by_schema else ""
        raise UnsupportedMediaType(f"Content-Type {found}: {', '.join(BODIES)} are taken{more}")
    return media_type


class _Reader:
    """Reads the records of one request."""

    def __init__(self, topic: str, partition: int | None, *, is_binary: bool, key_as_text: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._is_binary = is_binary
        self._key_as_text = key_as_text
        self.parts: tuple[Part, Part] | None = None

    def record(self, given: Given) -> NewRecord:
        """Raises BadField."""
        if not given.fields.keys() <= _KNOWN:
            field = min(given.fields.keys() - _KNOWN)
            raise given.refuse(field[:100], "is no field of a record")
        return NewRecord(
            self._topic,
            self._content(given, "key"),
            self._content(given, "value"),
            self._partition_of(given),
            _timestamp_ms(given),
            self._headers(given) if given.fields.get("headers") is not None else (),
        )

    def _partition_of(self, given: Given) -> int | None:
        own = given.whole("partition", 0, LAST_PARTITION)
        if own is not None and self._partition is not None and own != self._partition:
            raise given.refuse("partition", f"is not the path's, {self._partition}")
        return self._partition if own is None else own

    def _content(self, given: Given, field: str) -> bytes | None:
        found = given.fields.get(field)
        if found is None:
            return None
        if self.parts is not None:
            return self.parts[field == "value"].bytes_of(given)
        if self._is_binary:
            return _from_base64(given, field, given.needed(field))
        if field == "key" and self._key_as_text and isinstance(found, str):
            return given.utf8(field, found)
        try:
            text = _compact(found)
        except RecursionError as error:
            raise given.refuse(field, "is nested too deep") from error
        return given.utf8(field, text)

    def _headers(self, given: Given) -> tuple[tuple[str, bytes | None], ...]:
        found = given.fields["headers"]
        if not isinstance(found, list) or len(found) > HEADERS_LIMIT:
            raise given.refuse("headers", f"is no list of at most {HEADERS_LIMIT} headers")
        return tuple(self._header(given, f"headers[{number}]", each) for number, each in enumerate(found))

    def _header(self, given: Given, place: str, header: Any) -> tuple[str, bytes | None]:
        if not isinstance(header, dict) or not header.keys() <= {"name", "value", "value_format"}:
            raise given.refuse(place, "is no object of name, value and value_format")
        name, value = header.get("name"), header.get("value")
        value_format = header.get("value_format", "base64" if self._is_binary else "text")
        if not isinstance(name, str):
            raise given.refuse(f"{place}.name", f"is {kind_of(name)}, not a text")
        given.utf8(f"{place}.name", name)
        if not isinstance(value, str | None):
            raise given.refuse(f"{place}.value", f"is {kind_of(value)}, not a text")
        if value_format not in ("text", "base64"):
            raise given.refuse(f"{place}.value_format", "is neither text nor base64")
        if value is None:
            return name, None
        data = given.utf8(f"{place}.value", value)
        return name, data if value_format == "text" else _from_base64(given, f"{place}.value", data)


def _from_base64(given: Given, field: str, data: bytes) -> bytes:
    try:
        return from_base64(data, field)
    except BadRequest as error:
        raise given.refuse(field, "is not base64") from error


def _timestamp_ms(given: Given) -> int | None:
    found = given.fields.get("timestamp")
    if found is None:
        return None
    if not isinstance(found, str):
        # To the client library 0 means now.
        return given.whole("timestamp", 1, LAST_MS)
    try:
        moment = read_moment(found)
    except ValueError as error:
        raise given.refuse("timestamp", f"is {error}") from error
    if not moment:
        raise given.refuse("timestamp", f"is not a time from 1 to {LAST_MS} ms since 1970")
    return moment
