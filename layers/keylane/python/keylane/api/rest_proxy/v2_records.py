"""Requests of `POST /topics/{topic}` and `.../partitions/{partition}`, as in Confluent's REST Proxy v2.

    {"records": [{"key": "N14228", "value": {"dest": "SFO"}, "partition": 3}]}

With `application/vnd.kafka.json.v2+json` a key or value is any JSON, written as compact JSON in UTF-8: a
string keeps its quotes, in keys too, unless `key_format=text` asks for the bare string. Numbers with a
fraction are 64-bit floats, as in REST Proxy. With `application/vnd.kafka.binary.v2+json` both are base64,
with Strimzi's `application/vnd.kafka.text.v2+json` strings that are written as they are; see `v2_schemas` for
the formats with schemas. A record with a null key has no key; one with a null value is a tombstone. Scalars
are read as REST Proxy's parser does, see `v2_scalars`.

Keylane adds `timestamp` (milliseconds since 1970, or ISO 8601) and `headers`, [{"name": ..., "value": ...,
"value_format": ...}] as reads show them; `value_format` is base64 for binary by default, else text. Strimzi's
and Karapace's headers, [{"key": ..., "value": ...}], are base64 by default.
An unknown field is rejected: with a misspelt `value` the record would be a tombstone.
"""

from dataclasses import dataclass, replace
from typing import Any

from keylane.api.http.parameters import LAST_MS, choice, read_moment
from keylane.api.http.request import Request, from_base64, topic_of
from keylane.api.http.schemas import Schema, a_closed_object
from keylane.api.rest_proxy.v2_scalars import INT32_MOST, INTEGER_TEXT, read_integer
from keylane.api.rest_proxy.v2_schemas import MEDIA_TYPES, NO_REGISTRY, FieldEncoder, RequestSchemas
from keylane.api.writes.record_bodies import (
    LAST_PARTITION,
    RECORDS_LIMIT,
    RecordFields,
    kind_of,
    parse_document,
    parse_records,
)
from keylane.errors import BadField, BadRequest, SchemaFault, UnsupportedMediaType
from keylane.formats.json_text import compact
from keylane.model.records import NewRecord

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
TEXT = "application/vnd.kafka.text.v2+json"
HEADERS_LIMIT = 100

KEY_FORMAT = choice(
    "key_format",
    "how a key that is a JSON string is written: with its quotes, as REST Proxy does, or without",
    ("json", "text"),
)
_RECORD_FIELDS = frozenset({"key", "value", "partition", "timestamp", "headers"})
# JSON and binary ignore the fields of schemas, as REST Proxy does; a misspelt one is rejected.
_BODY_FIELDS = frozenset({"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"})


def _integer(least: int, **more: Any) -> dict[str, Any]:
    kinds = ["integer", "string", "null"]
    return {"type": kinds, "minimum": least, "maximum": INT32_MOST, "pattern": INTEGER_TEXT, **more}


def _header_schema(of: str, field: str, described: str) -> Schema:
    """Return the schema of a header whose name is in a field."""
    fields = {
        field: {"type": "string", "description": described},
        "value": {"type": ["string", "null"]},
        "value_format": {"enum": ["text", "base64"]},
    }
    return Schema(f"V2{of}Header", a_closed_object(optional=("value", "value_format"), **fields))


_HEADER = {
    "oneOf": [
        _header_schema("Named", "name", "the name; the value is text by default, in a binary body base64"),
        _header_schema("Keyed", "key", "the name; the value is base64 then by default"),
    ]
}


def _body_schema(kind: str, content: dict[str, Any], **more: Any) -> Schema:
    """Return the schema of bodies with records of this content; `more`: properties beside them."""
    fields = {
        "key": content,
        "value": content,
        "partition": _integer(0),
        "timestamp": {"type": ["integer", "null"], "minimum": 1, "maximum": LAST_MS},
        "headers": {"type": ["array", "null"], "items": _HEADER, "maxItems": HEADERS_LIMIT},
    }
    record = Schema(
        f"V2{kind}Record", {"type": "object", "properties": fields, "additionalProperties": False}
    )
    records = {"type": "array", "minItems": 1, "maxItems": RECORDS_LIMIT, "items": record}
    return Schema(f"V2{kind}Records", a_closed_object(optional=more, records=records, **more))


def _schema_fields() -> dict[str, Any]:
    described = "the id of a version of the topic's subject; not beside the schema's text"
    fields: dict[str, Any] = {}
    for field in ("key_schema", "value_schema"):
        fields[field] = {"type": ["string", "null"], "description": "a schema's text"}
        fields[f"{field}_id"] = _integer(1, description=described)
    return fields


BODIES: dict[str, Schema] = {
    JSON: _body_schema("Json", {"description": "any JSON; null: none"}),
    BINARY: _body_schema("Binary", {"type": ["string", "null"], "contentEncoding": "base64"}),
    TEXT: _body_schema("Text", {"type": ["string", "null"]}),
    **{
        media_type: _body_schema(
            f"{kind.title()}Schema",
            {"description": f"JSON that fits a schema ({kind}); null: none"},
            **_schema_fields(),
        )
        for media_type, kind in MEDIA_TYPES.items()
    },
}
"""Media type -> JSON Schema of the body."""


@dataclass(frozen=True, slots=True)
class RestProxyRequest:
    """Where records go, and how their fields are read. `partition` is that of the path, if it names one.

    The schema ids are those of keys and values, None without one.
    """

    topic: str
    partition: int | None
    media_type: str
    key_schema_id: int | None = None
    value_schema_id: int | None = None


def parse_target(request: Request, topic: str, partition: str | None = None) -> RestProxyRequest:
    """Parse all but the body; `topic` and `partition` are the raw parts of the path.

    Raises BadRequest, UnsupportedMediaType.
    """
    name = topic_of(topic)
    number = None if partition is None else _parse_partition(partition)
    return RestProxyRequest(name, number, _parse_media_type(request))


def parse_body(
    request: Request, target: RestProxyRequest, schemas: RequestSchemas | None
) -> tuple[RestProxyRequest, list[NewRecord]]:
    """Parse the body; return the target with the ids of its schemas, and the records.

    `schemas`: for a body of a type with schemas, None without a Schema Registry.
    Raises BadRequest, BadField, SchemaFault, UnsupportedMediaType, TooLarge, RegistryUnavailable.
    """
    kind = MEDIA_TYPES.get(target.media_type)
    if kind and schemas is None:
        fault = f"is {target.media_type}, which needs a Schema Registry: the service has none"
        raise SchemaFault(fault, "Content-Type", NO_REGISTRY)
    key_as_text = KEY_FORMAT.of(request) == "text" and target.media_type == JSON
    document = parse_document(request)
    for field in document.keys() - _BODY_FIELDS:
        raise BadField("is not a field of this request", field[:100])
    fields = parse_records(document, 1)
    parser = _RecordParser(target, key_as_text=key_as_text)
    if kind and schemas is not None:
        key, value = schemas.encoders(kind, document, target.topic, fields)
        target = replace(target, key_schema_id=key.schema_id, value_schema_id=value.schema_id)
        parser.encoders = {"key": key, "value": value}
    return target, [parser.parse(each) for each in fields]


def _parse_partition(raw: str) -> int:
    if not (raw.isascii() and raw.isdigit() and len(raw) <= len(str(LAST_PARTITION))):
        raise BadRequest(f"partition is {raw[:50]!r}, not an integer of 0 or more", "partition")
    return min(int(raw), LAST_PARTITION)


def _parse_media_type(request: Request) -> str:
    given = request.headers.get("content-type", "")
    media_type = given.partition(";")[0].strip().lower()
    if media_type not in BODIES:
        found = f"is {given[:100]!r}" if given else "is missing"
        raise UnsupportedMediaType(f"Content-Type {found}: it must be one of {', '.join(BODIES)}")
    return media_type


class _RecordParser:
    """Parses the records of one request. `encoders`: of keys and values with schemas."""

    def __init__(self, request: RestProxyRequest, *, key_as_text: bool) -> None:
        self._topic = request.topic
        self._partition = request.partition
        self._is_binary = request.media_type == BINARY
        self._is_text = request.media_type == TEXT
        self._key_as_text = key_as_text
        self.encoders: dict[str, FieldEncoder] | None = None

    def parse(self, fields: RecordFields) -> NewRecord:
        """Raises BadField."""
        if not fields.by_name.keys() <= _RECORD_FIELDS:
            field = min(fields.by_name.keys() - _RECORD_FIELDS)
            raise fields.fault(field[:100], "is not a field of a record")
        return NewRecord(
            self._topic,
            self._content(fields, "key"),
            self._content(fields, "value"),
            self._parse_partition(fields),
            _parse_timestamp_ms(fields),
            self._parse_headers(fields),
        )

    def _parse_partition(self, fields: RecordFields) -> int | None:
        try:
            own = read_integer(fields.by_name.get("partition"))
        except ValueError as error:
            raise fields.bad_value("partition", f"{error}") from error
        if own is not None and own < 0:
            raise fields.fault("partition", f"is not an integer from 0 to {LAST_PARTITION}")
        if own is not None and self._partition is not None and own != self._partition:
            raise fields.fault("partition", f"is not that of the path, {self._partition}")
        return self._partition if own is None else own

    def _content(self, fields: RecordFields, field: str) -> bytes | None:
        found = fields.by_name.get(field)
        if found is None:
            return None
        if self.encoders is not None:
            return self.encoders[field].encode(fields)
        if self._is_binary:
            return _decode_base64(fields, field, fields.required_utf8(field))
        if self._is_text:
            return fields.required_utf8(field)
        if field == "key" and self._key_as_text and isinstance(found, str):
            return fields.to_utf8(field, found)
        try:
            text = compact(found)
        except RecursionError as error:
            raise fields.bad_value(field, "is nested too deeply") from error
        return fields.to_utf8(field, text)

    def _parse_headers(self, fields: RecordFields) -> tuple[tuple[str, bytes | None], ...]:
        found = fields.by_name.get("headers")
        if found is None:
            return ()
        if not isinstance(found, list):
            raise fields.bad_value("headers", f"is {kind_of(found)}, not an array")
        if len(found) > HEADERS_LIMIT:
            raise fields.fault("headers", f"has {len(found)} headers: {HEADERS_LIMIT} at most are accepted")
        return tuple(
            self._parse_header(fields, f"headers[{index}]", header) for index, header in enumerate(found)
        )

    def _parse_header(self, fields: RecordFields, where: str, header: Any) -> tuple[str, bytes | None]:
        if not isinstance(header, dict):
            raise fields.bad_value(where, f"is {kind_of(header)}, not an object")
        named = "name" if "name" in header or "key" not in header else "key"
        if not header.keys() <= {named, "value", "value_format"}:
            raise fields.fault(where, "is not an object of name (or key), value and value_format")
        name, value = header.get(named), header.get("value")
        is_binary = self._is_binary or named == "key"
        value_format = header.get("value_format", "base64" if is_binary else "text")
        if name is None:
            raise fields.fault(f"{where}.{named}", "is missing: a string is required")
        if not isinstance(name, str):
            raise fields.bad_value(f"{where}.{named}", f"is {kind_of(name)}, not a string")
        fields.to_utf8(f"{where}.{named}", name)
        if not isinstance(value, str | None):
            raise fields.bad_value(f"{where}.value", f"is {kind_of(value)}, not a string")
        if value_format not in ("text", "base64"):
            raise fields.bad_value(f"{where}.value_format", "is neither text nor base64")
        if value is None:
            return name, None
        data = fields.to_utf8(f"{where}.value", value)
        return name, data if value_format == "text" else _decode_base64(fields, f"{where}.value", data)


def _decode_base64(fields: RecordFields, field: str, data: bytes) -> bytes:
    try:
        return from_base64(data, field)
    except BadRequest as error:
        raise fields.bad_value(field, "is not base64") from error


def _parse_timestamp_ms(fields: RecordFields) -> int | None:
    found = fields.by_name.get("timestamp")
    if found is None:
        return None
    if not isinstance(found, str):
        # To librdkafka 0 means now.
        return fields.integer("timestamp", 1, LAST_MS)
    try:
        moment = read_moment(found)
    except ValueError as error:
        raise fields.bad_value("timestamp", f"is {error}") from error
    if not moment:
        raise fields.fault("timestamp", f"is not a time from 1 to {LAST_MS} ms since 1970")
    return moment
