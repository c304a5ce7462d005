r"""Keys and values with registered schemas, as Confluent's REST Proxy v2 takes them.

    {"value_schema": "{\"type\": \"record\", ...}", "records": [{"value": {"dest": {"string": "SFO"}}}]}

The type of the schemas is that of the media type: `application/vnd.kafka.avro.v2+json`, `jsonschema`,
`protobuf`. The request gives one schema for all keys (`key_schema`, its text, or `key_schema_id`) and one for
all values. A text is registered under the topic's subject, `TOPIC-key` or `TOPIC-value`; the response has the
schema's id, which the next request can give instead. An id must be that of a version of this subject. Values
are Avro's JSON encoding, JSON, or Protobuf's, and are written in Confluent's wire format.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from keylane.api.rest_proxy.v2_scalars import read_integer, read_string
from keylane.api.writes.record_bodies import RecordFields
from keylane.errors import BadRequest, BadValue, SchemaFault, ValueInvalid
from keylane.formats import confluent
from keylane.formats.avro_schema import NotOfSchema
from keylane.model.schema_rules import default_subject
from keylane.ports import Deadline, SchemaEncoder, SchemaRefused, SchemaWriter, WaitBudget

Scalar = TypeVar("Scalar")
AVRO, JSON, PROTOBUF = KINDS = ("AVRO", "JSON", "PROTOBUF")
MEDIA_TYPES = {
    "application/vnd.kafka.avro.v2+json": AVRO,
    "application/vnd.kafka.jsonschema.v2+json": JSON,
    "application/vnd.kafka.protobuf.v2+json": PROTOBUF,
}
"""Media type of v2 -> the type of its schemas, as registries call it."""
CHECKS_MS = 5_000
"""How long all checks of a request by JSON Schemas may take: any writer may register one."""
MISSING = {"key": 42201, "value": 42202}
NOT_OF_SCHEMA, NO_SCHEMA, NO_REGISTRY, REFUSED = 42203, 42205, 42206, 42207


@dataclass(frozen=True, slots=True)
class FieldEncoder:
    """Encodes the keys, or the values, of one request; `schema` is None if the request gives none."""

    field: str
    schema: SchemaEncoder | None = None
    checks: Deadline | None = None

    @property
    def schema_id(self) -> int | None:
        """The id of the schema."""
        return self.schema.schema_id if self.schema else None

    def encode(self, fields: RecordFields) -> bytes | None:
        """A record's key or value in Confluent's wire format, None if it is null.

        Raises SchemaFault, RegistryUnavailable.
        """
        found = fields.by_name.get(self.field)
        if found is None or self.schema is None:
            return None
        try:
            return encode(self.schema, found, self.checks)
        except NotOfSchema as error:
            where = error.path_below(self.field)
            raise SchemaFault(f"{error}", where, NOT_OF_SCHEMA, fields.index) from None


class RequestSchemas:
    """The schemas of one request; `wait` bounds what it waits for the registry."""

    def __init__(self, registry: Callable[[], SchemaWriter], wait: WaitBudget) -> None:
        """`registry` makes the client when the first schema is needed."""
        self._registry = registry
        self.wait = wait

    def encoders(
        self, kind: str, document: Mapping[str, Any], topic: str, records: Sequence[RecordFields]
    ) -> tuple[FieldEncoder, FieldEncoder]:
        """The encoders of keys and of values, by schemas of one type.

        Raises SchemaFault, RegistryUnavailable.
        """
        choice = _SchemaChoice(kind, document, self.open(), self.wait, self.checks_deadline())
        # Both are read before the registry is asked for one of them: it may take its time.
        asked = {field: choice.read(records, field) for field in ("key", "value")}
        key, value = (
            choice.encoder(default_subject(topic, field), field, each) for field, each in asked.items()
        )
        return key, value

    def encode_value(self, topic: str, schema_id: int | None, value: Any) -> bytes:
        """JSON as readers see it, in Confluent's wire format, by a schema of the topic's subject.

        `schema_id` None: by its latest one. Raises ValueInvalid, BadRequest, RegistryUnavailable.
        """
        subject = default_subject(topic, "value")
        checks = self.checks_deadline()
        try:
            registry = self.open()
            with self.wait.asking() as deadline:
                number = registry.id_of(subject, None, deadline) if schema_id is None else schema_id
                schema = registry.encoder(subject, number, deadline, as_shown=True)
        except ValueError as error:
            raise BadRequest(f"the schema can't be used: {error}", "schema") from error
        try:
            return encode(schema, value, checks)
        except NotOfSchema as error:
            where = error.path_below("value")
            raise ValueInvalid(topic, "", f"{where} {error}", schema.schema_id) from None

    def open(self) -> SchemaWriter:
        """The registry; one client is made for all requests."""
        return self._registry()

    def checks_deadline(self) -> Deadline:
        """The end of the request's time for the registry and the checks by its JSON Schemas."""
        return Deadline.after_ms(self.wait.left_s * 1000 + CHECKS_MS, self.wait.clock)


@dataclass(frozen=True, slots=True)
class _SchemaChoice:
    """Chooses the schemas that one request names; `kind` is the type that they must have."""

    kind: str
    document: Mapping[str, Any]
    registry: SchemaWriter
    wait: WaitBudget
    checks: Deadline

    def read(self, records: Sequence[RecordFields], field: str) -> tuple[str | None, int | None]:
        """What the request names for keys or values: a schema's text, or its id, or neither.

        Raises BadValue, and SchemaFault where records need one.
        """
        text_field, id_field = f"{field}_schema", f"{field}_schema_id"
        text, schema_id = (
            _scalar(self.document, text_field, read_string),
            _scalar(self.document, id_field, read_integer),
        )
        if (
            text is None
            and schema_id is None
            and any(each.by_name.get(field) is not None for each in records)
        ):
            fault = f"is missing, and so is {id_field}: records have a {field}"
            raise SchemaFault(fault, text_field, MISSING[field])
        if text is not None and schema_id is not None:
            raise BadValue(f"is given beside {id_field}: a request has one of them", text_field)
        return text, schema_id

    def encoder(self, subject: str, field: str, asked: tuple[str | None, int | None]) -> FieldEncoder:
        """The encoder by what `read` has found. Raises SchemaFault, RegistryUnavailable."""
        text, schema_id = asked
        if text is None and schema_id is None:
            return FieldEncoder(field)
        at_fault = f"{field}_schema_id" if text is None else f"{field}_schema"
        try:
            with self.wait.asking() as deadline:
                if schema_id is None:
                    schema = self.registry.registered(subject, self.kind, text or "", deadline)
                else:
                    schema = self.registry.encoder(subject, schema_id, deadline)
            check_kind(schema, self.kind)
            return FieldEncoder(field, schema, self.checks)
        except SchemaRefused as error:
            raise SchemaFault(f"can't be used: {error}", at_fault, REFUSED) from error
        except ValueError as error:
            raise SchemaFault(f"can't be used: {error}", at_fault, NO_SCHEMA) from error


def encode(schema: SchemaEncoder, value: Any, checks: Deadline | None) -> bytes:
    """The value in Confluent's wire format. Raises NotOfSchema, RegistryUnavailable.

    One check by a JSON Schema may take a second: those of a request end with `checks`.
    """
    if schema.kind == JSON and checks is not None and not checks.remaining_s:
        raise NotOfSchema("was not checked: the checks before it took too long, send fewer records")
    return confluent.join(schema.schema_id, schema.encode(value))


def check_kind(schema: SchemaEncoder, kind: str) -> None:
    """Raise ValueError for a schema of another type."""
    if schema.kind != kind:
        raise ValueError(f"the schema's type is {schema.kind[:50]!r}, not {kind}")


def _scalar(document: Mapping[str, Any], field: str, read: Callable[[Any], Scalar]) -> Scalar:
    try:
        return read(document.get(field))
    except ValueError as error:
        raise BadValue(f"{error}", field) from error
