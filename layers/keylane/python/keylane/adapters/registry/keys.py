"""Keys by the schemas of a registry: encoders for all versions of a subject.

A new version is found within LISTED_MS. While the registry does not answer, the versions that are known stay:
it registers none at that time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.adapters.registry.client import AVRO, JSON, PROTOBUF
from keylane.adapters.registry.compiled import one_at_a_time, size_of
from keylane.errors import RegistryUnavailable
from keylane.formats import confluent
from keylane.formats.avro_schema import NotOfSchema
from keylane.formats.connect_keys import quote
from keylane.ports import Deadline, KeyEncoder, SchemaRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.adapters.registry.client import RegisteredSchema, RegistryClient
    from keylane.adapters.registry.compiled import CompiledSchemas

LISTED_MS = 10_000
"""How long a subject's list of versions counts as current; then the registry is asked again."""
VERSIONS_LIMIT = 50
"""The newest versions of a subject: a key is looked for by each of them."""
CHARACTERS_LIMIT = 32 * 1024
"""Of the schema of a key with all that it refers to: each version of a subject is compiled."""
_VERSION_BYTES = 1_000
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "number": (int, float),
    "null": (type(None),),
}


class SubjectKeys(NamedTuple):
    """What is known of a subject: of each version its encoder, or why it has none, and what that takes.

    `until_s`: when the registry is asked again, in monotonic seconds. `refusal`: why there are no versions.
    """

    encoders: Mapping[int, tuple[KeyEncoder | str, int]]
    until_s: float
    refusal: str = "its subject has no schema"


class RegistryKeys:
    """Encoders of one registry's keys. `known`: what is known, for all threads of a process."""

    def __init__(self, client: RegistryClient, known: CompiledSchemas[SubjectKeys]) -> None:
        self._client = client
        self._known = known

    def encoders(self, subject: str, deadline: Deadline) -> Sequence[KeyEncoder]:
        """See `Schemas.key_encoders` of ports."""
        known, now_s = self._known.get(subject), deadline.clock.monotonic_s()
        if known is None or known.until_s <= now_s:
            known = self._read(subject, known, deadline)
            size_bytes = _VERSION_BYTES + sum(size for _, size in known.encoders.values())
            self._known.keep(subject, known, size_bytes)
        versions = [each for each, _ in known.encoders.values()]
        found = {each.schema_id: each for each in versions if isinstance(each, KeyEncoder)}
        if not found:
            reasons = (each for each in versions if isinstance(each, str))
            raise SchemaRefused(next(reasons, known.refusal))
        return tuple(found.values())

    def _read(self, subject: str, known: SubjectKeys | None, deadline: Deadline) -> SubjectKeys:
        until_s = deadline.clock.monotonic_s() + LISTED_MS / 1000
        before = known.encoders if known is not None else {}
        try:
            versions = sorted(self._client.versions(subject, deadline), reverse=True)[:VERSIONS_LIMIT]
            found = {
                version: before[version] if version in before else self._encoder(subject, version, deadline)
                for version in versions
            }
        except SchemaRefused as error:
            return SubjectKeys({}, until_s, str(error))
        except RegistryUnavailable:
            if known is None or not known.encoders:
                raise
            return known._replace(until_s=until_s)
        return SubjectKeys(found, until_s)

    def _encoder(self, subject: str, version: int, deadline: Deadline) -> tuple[KeyEncoder | str, int]:
        try:
            schema_id, schema = self._client.version(subject, version, deadline)
            references = [] if schema.kind == JSON else self._client.referenced(schema, deadline)
            fields, encode = _keys_of(schema, references)
        except ValueError as error:
            return f"version {version} of subject {subject!r} makes no keys: {error}", _VERSION_BYTES
        size_bytes = size_of(schema.text, references) + _VERSION_BYTES
        return KeyEncoder(
            schema_id, fields, lambda value: confluent.join(schema_id, encode(value))
        ), size_bytes


def _keys_of(
    schema: RegisteredSchema, references: Sequence[tuple[str, str]]
) -> tuple[tuple[str, ...] | None, Callable[[Any], bytes]]:
    """The fields of a schema's keys, and what encodes them. Raises ValueError for a schema without keys."""
    if len(schema.text) + sum(len(text) for _, text in references) > CHARACTERS_LIMIT:
        raise ValueError(f"it has more than {CHARACTERS_LIMIT} characters, with all it refers to")
    if schema.kind == AVRO:
        from keylane.formats import avro_keys  # noqa: PLC0415

        return one_at_a_time(avro_keys.keys_of, schema.text, references, [text for _, text in references])
    if schema.kind == PROTOBUF:
        return one_at_a_time(_protobuf_keys, schema.text, references, references)
    if schema.kind == JSON:
        return _json_keys(schema.text)
    raise ValueError(f"its type {schema.kind[:50]!r} is not one of AVRO, PROTOBUF and JSON")


def _protobuf_keys(
    schema: str, references: Sequence[tuple[str, str]]
) -> tuple[tuple[str, ...], Callable[[Any], bytes]]:
    from keylane.adapters.registry import protobuf, protobuf_writer  # noqa: PLC0415

    encode_message = protobuf_writer.encoder(schema, references)
    file, pool, _ = protobuf.compile_schema(schema, references)
    name = f"{file.package}.{file.message_type[0].name}".removeprefix(".")
    fields = pool.FindMessageTypeByName(name).fields
    # One that is left out would have its default value, unless it may be missing: keys are shown without it.
    required = [{each.name, each.json_name} for each in fields if not each.has_presence]

    def encode(value: Any) -> bytes:
        if isinstance(value, dict) and not all(each & value.keys() for each in required):
            raise NotOfSchema(f"is not an object of {', '.join(each.name for each in fields)}"[:300])
        return encode_message(value)

    return tuple(each.name for each in fields), encode


def _json_keys(text: str) -> tuple[tuple[str, ...] | None, Callable[[Any], bytes]]:
    """Keys as Java's serializer and Connect's converter write them: fields in the schema's order."""
    try:
        schema = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(schema, dict):
        raise ValueError("it takes any key")  # noqa: TRY004 (as all faults of a schema)
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        types = _types_of(schema)
        return None, lambda value: _to_utf8(_write_scalar(types, value))
    places = {name: each.get("connect.index") for name, each in properties.items()}
    names = sorted(properties, key=lambda name: places[name] if isinstance(places[name], int) else 0)
    kinds = [(name, _types_of(properties[name])) for name in names]
    # Where the schema does not say which may be missing, as Connect's does not, no key lacks one.
    required = (
        set(map(str, given)) if isinstance(given := schema.get("required"), list) else properties.keys()
    )

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict) or not required <= value.keys() <= properties.keys():
            raise NotOfSchema(f"is not an object of {', '.join(names)}"[:300])
        members = (_write_member(name, types, value[name]) for name, types in kinds if name in value)
        return _to_utf8(f"{{{','.join(members)}}}")

    return tuple(names), encode


def _types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """The types that a value may have, of Connect's optional ones too; empty: any."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset((kind,))
    if isinstance(kind, list):
        return frozenset(map(str, kind))
    choices = schema.get("oneOf")
    found = (
        [_types_of(each) for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
    )
    return frozenset().union(*found) if all(found) else frozenset()


def _write_member(name: str, types: frozenset[str], value: Any) -> str:
    try:
        return f"{quote(name)}:{_write_scalar(types, value)}"
    except NotOfSchema as error:
        error.path = name
        raise


def _to_utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotOfSchema("has characters that are not valid Unicode") from None


def _write_scalar(types: frozenset[str], value: Any) -> str:
    if isinstance(value, dict | list):
        raise NotOfSchema("is an object or an array")
    allowed = [kind for name in types or _TYPES for kind in _TYPES.get(name, ())]
    if type(value) not in allowed:
        raise NotOfSchema(f"is not one of {', '.join(sorted(types or _TYPES))}")
    return quote(value) if isinstance(value, str) else json.dumps(value)
