r"""`application/vnd.kafka.avro.v2+json` of Confluent's REST Proxy: keys and values with registered schemas.

    {"value_schema": "{\"type\": \"record\", ...}", "records": [{"value": {"dest": {"string": "SFO"}}}]}

The request gives one schema for all keys (`key_schema`, its text, or `key_schema_id`) and one for all values.
A text is registered under the topic's subject, `TOPIC-key` or `TOPIC-value`; the response has the schema's
id, which the next request can give instead. An id must be that of a version of this subject. Keys and values
are in Avro's JSON encoding, and are written in Confluent's wire format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from keylane.api.rest_proxy_scalars import read_integer, read_string
from keylane.errors import BadValue, SchemaFault
from keylane.formats import confluent
from keylane.formats.avro_writer import NotOfSchema
from keylane.ports import Deadline, SchemaRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.api.record_bodies import RecordFields
    from keylane.ports import Clock, SchemaWriter

    Encode = Callable[[Any], bytes]

Scalar = TypeVar("Scalar")
MEDIA_TYPE = "application/vnd.kafka.avro.v2+json"
MISSING = {"key": 42201, "value": 42202}
NOT_OF_SCHEMA, NO_SCHEMA, NO_REGISTRY, REFUSED = 42203, 42205, 42206, 42207


@dataclass(frozen=True, slots=True)
class FieldEncoder:
    """Encodes the keys, or the values, of one request; both are None if the request gives no schema."""

    field: str
    schema_id: int | None = None
    to_avro: Encode | None = None

    def encode(self, fields: RecordFields) -> bytes | None:
        """A record's key or value in Confluent's wire format, None if it is null. Raises SchemaFault."""
        found = fields.by_name.get(self.field)
        if found is None or self.to_avro is None or self.schema_id is None:
            return None
        try:
            return confluent.join(self.schema_id, self.to_avro(found))
        except NotOfSchema as error:
            path = f"{self.field}.{error.path}" if error.path else self.field
            raise SchemaFault(f"{error}", path.replace(".[", "["), NOT_OF_SCHEMA, fields.index) from None


class AvroSchemas:
    """The schemas of requests; all that one request asks of the registry is bounded by `timeout_ms`."""

    def __init__(self, registry: Callable[[], SchemaWriter], clock: Clock, timeout_ms: float) -> None:
        """`registry` makes the client when the first schema is needed."""
        self._registry = registry
        self._clock = clock
        self._timeout_ms = timeout_ms

    def encoders(
        self, document: Mapping[str, Any], topic: str, records: Sequence[RecordFields]
    ) -> tuple[FieldEncoder, FieldEncoder]:
        """The encoders of keys and of values. Raises SchemaFault, RegistryUnavailable."""
        deadline = Deadline.after_ms(self._timeout_ms, self._clock)
        key = self._encoder(document, topic, records, "key", deadline)
        return key, self._encoder(document, topic, records, "value", deadline)

    def _encoder(
        self,
        document: Mapping[str, Any],
        topic: str,
        records: Sequence[RecordFields],
        field: str,
        deadline: Deadline,
    ) -> FieldEncoder:
        text_field, id_field = f"{field}_schema", f"{field}_schema_id"
        text, schema_id = (
            _scalar(document, text_field, read_string),
            _scalar(document, id_field, read_integer),
        )
        if text is None and schema_id is None:
            if any(record.by_name.get(field) is not None for record in records):
                fault = f"is missing, and so is {id_field}: records have a {field}"
                raise SchemaFault(fault, text_field, MISSING[field])
            return FieldEncoder(field)
        if text is not None and schema_id is not None:
            raise BadValue(f"is given beside {id_field}: a request has one of them", text_field)
        at_fault = id_field if text is None else text_field
        subject = f"{topic}-{field}"
        try:
            if schema_id is not None:
                return FieldEncoder(field, schema_id, self._registry().encoder(subject, schema_id, deadline))
            return FieldEncoder(field, *self._registry().registered(subject, text or "", deadline))
        except SchemaRefused as error:
            raise SchemaFault(f"can't be used: {error}", at_fault, REFUSED) from error
        except ValueError as error:
            raise SchemaFault(f"can't be used: {error}", at_fault, NO_SCHEMA) from error


def _scalar(document: Mapping[str, Any], field: str, read: Callable[[Any], Scalar]) -> Scalar:
    try:
        return read(document.get(field))
    except ValueError as error:
        raise BadValue(f"{error}", field) from error
