"""Records of Confluent's REST Proxy v3, as objects of JSON.

    {"partition_id": 1, "headers": [{"name": "a", "value": "SGk="}], "timestamp": "2021-02-05T19:14:42Z",
     "key": {"type": "STRING", "data": "N14228"}, "value": {"type": "JSON", "data": {"dest": "SFO"}}}

`type` is BINARY (base64), JSON or STRING; see `v3_schemas` for data with a schema. Headers are
base64. Data that are null or missing are no key, and a tombstone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from keylane.api.http.parameters import read_moment
from keylane.api.http.request import from_base64
from keylane.api.rest_proxy.v2_records import HEADERS_LIMIT
from keylane.api.rest_proxy.v2_scalars import read_integer
from keylane.api.rest_proxy.v3_schemas import SCHEMA_FIELDS, TYPES, DataForm, RecordSchemas
from keylane.api.writes.record_bodies import kind_of
from keylane.errors import BadRequest, RecordMalformed, RecordRejected
from keylane.formats.json_text import compact
from keylane.model.records import NewRecord

BINARY, JSON_DATA, STRING = FORMATS = ("BINARY", "JSON", "STRING")
NO_PARTITION = 40402
RECORD_FIELDS = frozenset({"partition_id", "headers", "key", "value", "timestamp"})
_CONTENT_FIELDS = frozenset({"type", "data", *SCHEMA_FIELDS})


class StreamedRecord(NamedTuple):
    """A record, and the forms of its key and value; None where the request has none."""

    record: NewRecord
    key_form: DataForm | None
    value_form: DataForm | None


@dataclass(frozen=True, slots=True)
class RecordParser:
    """Parses the records of one request. `now_ms`: the timestamp of a record without one."""

    schemas: RecordSchemas
    now_ms: int

    def parse(
        self, document: Any, topic: str, fields: frozenset[str] = RECORD_FIELDS
    ) -> StreamedRecord | RecordRejected:
        """Return the record, or why it is invalid. `fields`: those that it may have."""
        try:
            return self._parse(document, topic, fields)
        except RecordRejected as error:
            return error

    def _parse(self, document: Any, topic: str, fields: frozenset[str]) -> StreamedRecord:
        if not isinstance(document, dict):
            raise RecordMalformed(f"the record is {kind_of(document)}, not an object")
        for field in document.keys() - fields:
            raise RecordMalformed(f"{field[:100]!r} is not a field of a record")
        partition = _parse_partition(document.get("partition_id"))
        timestamp_ms = _parse_timestamp_ms(document.get("timestamp"))
        headers = tuple(_parse_headers(document.get("headers")))
        key_form, key = self._parse_content(document, "key")
        value_form, value = self._parse_content(document, "value")
        at_ms = self.now_ms if timestamp_ms is None else timestamp_ms
        return StreamedRecord(NewRecord(topic, key, value, partition, at_ms, headers), key_form, value_form)

    def _parse_content(self, document: Mapping[str, Any], field: str) -> tuple[DataForm | None, bytes | None]:
        """Return the form and the bytes of a key or value."""
        found = document.get(field)
        if found is None:
            return None, None
        if not isinstance(found, dict):
            raise RecordMalformed(f"{field} is {kind_of(found)}, not an object")
        for name in found.keys() - _CONTENT_FIELDS:
            raise RecordMalformed(f"{name[:100]!r} is not a field of a {field}")
        kind = found.get("type")
        if kind is None or (isinstance(kind, str) and kind in TYPES):
            return self.schemas.encode(found, field)
        if kind not in FORMATS:
            raise RecordMalformed(f"{field}.type is not one of {', '.join((*FORMATS, *TYPES))}")
        for name in SCHEMA_FIELDS:
            if found.get(name) is not None:
                raise RecordMalformed(f"{field}: 'type={kind}' cannot be used with {name!r}")
        return DataForm(kind), _encode(kind, found.get("data"), f"{field}.data")


def _encode(kind: str, data: Any, where: str) -> bytes | None:
    if data is None:
        return None
    if kind == BINARY:
        return _decode_base64(where, data)
    if kind == JSON_DATA:
        return _to_utf8(where, compact(data))
    if not isinstance(data, str):
        raise RecordRejected(f"{where} is {kind_of(data)}, not a string")
    return _to_utf8(where, data)


def _parse_partition(found: Any) -> int | None:
    try:
        partition = read_integer(found)
    except ValueError as error:
        raise RecordMalformed(f"partition_id {error}") from error
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
        raise RecordMalformed("timestamp is not a time of ISO 8601 since 1970, as in 2021-02-05T19:14:42Z")
    return moment


def _parse_headers(found: Any) -> Iterator[tuple[str, bytes | None]]:
    if not isinstance(found, list | None) or len(found or ()) > HEADERS_LIMIT:
        raise RecordMalformed(f"headers is not an array of at most {HEADERS_LIMIT} headers")
    for index, header in enumerate(found or ()):
        where = f"headers[{index}]"
        if not isinstance(header, dict) or not header.keys() <= {"name", "value"}:
            raise RecordMalformed(f"{where} is not an object of name and value")
        name, value = header.get("name"), header.get("value")
        if not isinstance(name, str):
            raise RecordMalformed(f"{where}.name is {kind_of(name)}, not a string")
        _to_utf8(f"{where}.name", name)
        yield name, None if value is None else _header_value(f"{where}.value", value)


def _header_value(where: str, found: Any) -> bytes:
    try:
        return _decode_base64(where, found)
    except RecordRejected as error:
        raise RecordMalformed(str(error)) from error


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
