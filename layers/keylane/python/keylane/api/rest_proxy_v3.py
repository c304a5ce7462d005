"""`POST /v3/clusters/{cluster}/topics/{topic}/records` of Confluent's REST Proxy: a stream of records.

    {"partition_id": 1, "headers": [{"name": "a", "value": "SGk="}], "timestamp": "2021-02-05T19:14:42Z",
     "key": {"type": "STRING", "data": "N14228"}, "value": {"type": "JSON", "data": {"dest": "SFO"}}}

The body is one such object, or several one after another. `type` is BINARY (base64), JSON or STRING; headers
are base64. Data that are null or missing are no key, and a tombstone. A record that is invalid does not hold
up the others; behind text that is not JSON nothing is read. The cluster's id is returned in the reports, and
not checked. See `rest_proxy_v3_reports` for the response.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.api.event import body_of, cluster_of, from_base64, headers_of, topic_of
from keylane.api.parameters import read_moment
from keylane.api.record_bodies import BODY_LIMIT_BYTES, RECORDS_LIMIT, kind_of
from keylane.api.rendering import JSON
from keylane.api.rest_proxy import HEADERS_LIMIT
from keylane.api.rest_proxy_answers import UNPROCESSABLE
from keylane.api.rest_proxy_scalars import read_integer
from keylane.errors import BadField, BadRequest, RecordRejected, TooLarge, UnsupportedMediaType
from keylane.formats import json_text
from keylane.model.records import NewRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from keylane.api.event import Event

BINARY, JSON_DATA, STRING = FORMATS = ("BINARY", "JSON", "STRING")
WITH_SCHEMA = ("AVRO", "JSONSCHEMA", "PROTOBUF")
NO_PARTITION = 40402
BODIES: dict[str, Any] = {
    JSON: {"description": "records, one object after another: partition_id, headers, key, value, timestamp"}
}
_RECORD_FIELDS = frozenset({"partition_id", "headers", "key", "value", "timestamp"})
_SCHEMA_FIELDS = ("subject", "subject_name_strategy", "schema_id", "schema_version", "schema")
_CONTENT_FIELDS = frozenset({"type", "data", *_SCHEMA_FIELDS})
_CHARSETS = ("utf-8", "iso-8859-1")
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class StreamedRecord(NamedTuple):
    """A record of the stream, and the formats of its key and value; None where the request has none."""

    record: NewRecord
    key_format: str | None
    value_format: str | None


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The records of a request, each in its place, or why it is invalid."""

    cluster: str
    topic: str
    entries: list[StreamedRecord | RecordRejected]

    @property
    def records(self) -> list[NewRecord]:
        """Those that are valid."""
        return [each.record for each in self.entries if isinstance(each, StreamedRecord)]


def parse_stream(event: Event, cluster: str, topic: str, now_ms: int) -> StreamRequest:
    """Parse a request. `now_ms`: the timestamp of a record without one.

    Raises BadRequest, BadField where the body is empty, UnsupportedMediaType, TooLarge.
    """
    name = topic_of(topic)
    _check_media_type(event)
    body = body_of(event)
    if len(body) > BODY_LIMIT_BYTES:
        raise TooLarge("body", len(body), BODY_LIMIT_BYTES)
    if not body.strip():
        raise BadField("is empty: it must be a JSON object", "body")
    return StreamRequest(cluster_of(cluster), name, list(_entries(body, name, now_ms)))


def _check_media_type(event: Event) -> None:
    given = headers_of(event).get("content-type", "")
    media_type, *parameters = (part.strip().lower() for part in given.split(";"))
    if media_type != JSON:
        raise UnsupportedMediaType(f"Content-Type is {given[:100]!r}: it must be {JSON}")
    for parameter in parameters:
        if parameter.startswith("charset=") and parameter[8:].strip('"') not in _CHARSETS:
            raise BadRequest(f"{parameter[:50]!r} is not supported: the body must be UTF-8", "Content-Type")


def _entries(body: bytes, topic: str, now_ms: int) -> Iterator[StreamedRecord | RecordRejected]:
    try:
        for index, document in enumerate(json_text.parse_stream(body)):
            if index == RECORDS_LIMIT:
                raise BadField(f"has more than {RECORDS_LIMIT} records", "body")
            yield _parse_entry(document, topic, now_ms)
    except json_text.NestedTooDeeply as error:
        yield RecordRejected(f"the record {error}; what follows was not read")
    except ValueError:
        yield RecordRejected("the text is not valid JSON; what follows was not read")


def _parse_entry(document: Any, topic: str, now_ms: int) -> StreamedRecord | RecordRejected:
    try:
        return _parse_record(document, topic, now_ms)
    except RecordRejected as error:
        return error


def _parse_record(document: Any, topic: str, now_ms: int) -> StreamedRecord:
    if not isinstance(document, dict):
        raise RecordRejected(f"the record is {kind_of(document)}, not an object")
    for field in document.keys() - _RECORD_FIELDS:
        raise RecordRejected(f"{field[:100]!r} is not a field of a record")
    key_format, key = _parse_content(document, "key")
    value_format, value = _parse_content(document, "value")
    timestamp_ms = _parse_timestamp_ms(document.get("timestamp"))
    record = NewRecord(
        topic,
        key,
        value,
        _parse_partition(document.get("partition_id")),
        now_ms if timestamp_ms is None else timestamp_ms,
        tuple(_parse_headers(document.get("headers"))),
    )
    return StreamedRecord(record, key_format, value_format)


def _parse_partition(found: Any) -> int | None:
    try:
        partition = read_integer(found)
    except ValueError as error:
        raise RecordRejected(f"partition_id {error}") from error
    if partition is not None and partition < 0:
        raise RecordRejected(f"partition_id is {partition}: Partition not found.", NO_PARTITION)
    return partition


def _parse_timestamp_ms(found: Any) -> int | None:
    if found is None:
        return None
    try:
        # A number would be seconds to REST Proxy, and milliseconds to all other routes here.
        moment = read_moment(found) if isinstance(found, str) and "T" in found else 0
    except ValueError:
        moment = 0
    if not moment:
        raise RecordRejected("timestamp is not a time of ISO 8601, as in 2021-02-05T19:14:42Z")
    return moment


def _parse_headers(found: Any) -> Iterator[tuple[str, bytes | None]]:
    if not isinstance(found, list | None) or len(found or ()) > HEADERS_LIMIT:
        raise RecordRejected(f"headers is not an array of at most {HEADERS_LIMIT} headers")
    for index, header in enumerate(found or ()):
        where = f"headers[{index}]"
        if not isinstance(header, dict) or not header.keys() <= {"name", "value"}:
            raise RecordRejected(f"{where} is not an object of name and value")
        name, value = header.get("name"), header.get("value")
        if not isinstance(name, str):
            raise RecordRejected(f"{where}.name is {kind_of(name)}, not a string")
        _to_utf8(f"{where}.name", name)
        yield name, None if value is None else _decode_base64(f"{where}.value", value)


def _parse_content(document: Mapping[str, Any], field: str) -> tuple[str | None, bytes | None]:
    """Return the format and the bytes of a key or value."""
    found = document.get(field)
    if found is None:
        return None, None
    if not isinstance(found, dict):
        raise RecordRejected(f"{field} is {kind_of(found)}, not an object")
    for name in found.keys() - _CONTENT_FIELDS:
        raise RecordRejected(f"{name[:100]!r} is not a field of a {field}")
    data_format, data = _parse_format(found, field), found.get("data")
    where = f"{field}.data"
    if data is None:
        return data_format, None
    if data_format == BINARY:
        return data_format, _decode_base64(where, data)
    if data_format == JSON_DATA:
        return data_format, _to_utf8(where, _compact(data))
    if not isinstance(data, str):
        raise RecordRejected(f"{where} is {kind_of(data)}, not a string")
    return data_format, _to_utf8(where, data)


def _parse_format(content: Mapping[str, Any], field: str) -> str:
    found = content.get("type")
    if found is None or found in WITH_SCHEMA:
        fault = f"{field}.type is not one of {', '.join(FORMATS)}: this route takes no data with a schema"
        raise RecordRejected(fault, UNPROCESSABLE)
    if found not in FORMATS:
        raise RecordRejected(f"{field}.type is not one of {', '.join(FORMATS)}")
    for name in _SCHEMA_FIELDS:
        if content.get(name) is not None:
            raise RecordRejected(f"{field}: 'type={found}' cannot be used with {name!r}")
    return str(found)


def _decode_base64(where: str, found: Any) -> bytes:
    try:
        return from_base64(found.encode(), where)
    except (AttributeError, BadRequest, UnicodeEncodeError) as error:
        raise RecordRejected(f"{where} is not a string in base64") from error


def _to_utf8(where: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RecordRejected(f"{where} holds characters that are not valid Unicode") from error
