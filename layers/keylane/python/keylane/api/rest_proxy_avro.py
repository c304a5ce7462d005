r"""`application/vnd.kafka.avro.v2+json` of Confluent's REST Proxy: keys and values by schemas of a registry.

    {"value_schema": "{\"type\": \"record\", ...}", "records": [{"value": {"dest": {"string": "SFO"}}}]}

A schema is given once for all keys (`key_schema`, its text, or `key_schema_id`) and once for all values. A
text is registered under the topic's subject, `TOPIC-key` or `TOPIC-value`; the answer has its id, for the
next request. Keys and values are in Avro's JSON encoding, and written in Confluent's wire format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane.errors import SchemaFault
from keylane.formats import confluent
from keylane.formats.avro_writer import NotOfSchema
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.api.record_bodies import Given
    from keylane.ports import Clock, SchemaWriter

MEDIA_TYPE = "application/vnd.kafka.avro.v2+json"
MISSING = {"key": 42201, "value": 42202}
NOT_OF_SCHEMA, NO_SCHEMA = 42203, 42205
_LARGEST_ID = 2**31 - 1


class Part:
    """Keys, or values, of one request; `schema_id` None where none has one."""

    def __init__(self, field: str, schema_id: int | None, encode: Callable[[Any], bytes] | None) -> None:
        self.schema_id = schema_id
        self._field = field
        self._encode = encode

    def bytes_of(self, given: Given) -> bytes | None:
        """A record's; None is none. Raises SchemaFault."""
        found = given.fields.get(self._field)
        if found is None or self._encode is None or self.schema_id is None:
            return None
        try:
            return confluent.join(self.schema_id, self._encode(found))
        except NotOfSchema as error:
            path = f"{self._field}.{error.path}" if error.path else self._field
            raise SchemaFault(f"{error}", path.replace(".[", "["), NOT_OF_SCHEMA, given.index) from None


class Encoders:
    """Schemas for requests of one function; all that one asks of the registry is done in `timeout_ms`."""

    def __init__(self, schemas: Callable[[], SchemaWriter], clock: Clock, timeout_ms: float) -> None:
        self._schemas = schemas
        self._clock = clock
        self._timeout_ms = timeout_ms

    def parts(self, document: Mapping[str, Any], topic: str, records: Sequence[Given]) -> tuple[Part, Part]:
        """Keys and values. Raises SchemaFault, RegistryUnavailable."""
        deadline = Deadline.after_ms(self._timeout_ms, self._clock)
        key, value = (self._part(document, topic, records, field, deadline) for field in ("key", "value"))
        return key, value

    def _part(
        self,
        document: Mapping[str, Any],
        topic: str,
        records: Sequence[Given],
        field: str,
        deadline: Deadline,
    ) -> Part:
        text_field, id_field = f"{field}_schema", f"{field}_schema_id"
        text, schema_id = document.get(text_field), document.get(id_field)
        if text is None and schema_id is None:
            if any(given.fields.get(field) is not None for given in records):
                fault = f"is missing, and so is {id_field}: records have a {field}"
                raise SchemaFault(fault, text_field, MISSING[field])
            return Part(field, None, None)
        at_fault = text_field if text is not None else id_field
        try:
            if text is not None:
                if not isinstance(text, str):
                    raise SchemaFault("is not a text", text_field, NO_SCHEMA)
                schema_id, encode = self._schemas().registered(f"{topic}-{field}", text, deadline)
            else:
                is_whole = isinstance(schema_id, int) and not isinstance(schema_id, bool)
                if schema_id is None or not is_whole or not 0 < schema_id <= _LARGEST_ID:
                    raise SchemaFault(f"is not a whole number of 1 to {_LARGEST_ID}", id_field, NO_SCHEMA)
                encode = self._schemas().encoder(schema_id, deadline)
        except ValueError as error:
            raise SchemaFault(f"can't be used: {error}", at_fault, NO_SCHEMA) from error
        return Part(field, schema_id, encode)
