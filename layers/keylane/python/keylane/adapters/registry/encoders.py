"""The port `SchemaWriter`: a Schema Registry's schemas as encoders of JSON.

Imported when the first request needs it, not before.
"""

from collections.abc import Sequence

from keylane.adapters.registry.client import (
    AVRO,
    JSON,
    KINDS,
    PROTOBUF,
    SCHEMA_CHARACTERS_LIMIT,
    RegistryClient,
)
from keylane.adapters.registry.compiled import CompiledSchemas, Encoder, one_at_a_time, size_of
from keylane.ports import Deadline, SchemaEncoder, SchemaRefused


class RegistryEncoders:
    """Encoders by one registry's schemas; each is fetched, or registered, once as long as it is used.

    `compiled`: what is kept, for all threads of an application.
    """

    def __init__(
        self, client: RegistryClient, compiled: CompiledSchemas[SchemaEncoder] | None = None
    ) -> None:
        self._client = client
        self._compiled: CompiledSchemas[SchemaEncoder] = CompiledSchemas() if compiled is None else compiled

    def registered(self, subject: str, kind: str, schema: str, deadline: Deadline) -> SchemaEncoder:
        """See `ports.SchemaWriter`."""
        key = subject, kind, schema
        found = self._compiled.get(key)
        if found is None:
            if len(schema) > SCHEMA_CHARACTERS_LIMIT:
                raise ValueError(f"it has more than {SCHEMA_CHARACTERS_LIMIT} characters")
            made = make_encoder(kind, schema)
            schema_id = self._client.register(subject, kind, schema, deadline)
            version = self._version_of(subject, schema_id, deadline)
            found = SchemaEncoder(kind, schema_id, version, made.encode)
            self._compiled.keep(key, found, made.size_bytes)
        return found

    def encoder(
        self, subject: str, schema_id: int, deadline: Deadline, *, as_shown: bool = False
    ) -> SchemaEncoder:
        """See `ports.SchemaWriter`."""
        found = self._compiled.get((subject, schema_id, as_shown))
        if found is None:
            schema = self._client.schema(schema_id, deadline)
            version = self._version_of(subject, schema_id, deadline)
            references = self._client.referenced(schema, deadline)
            made = make_encoder(schema.kind, schema.text, references, as_shown=as_shown)
            found = SchemaEncoder(schema.kind, schema_id, version, made.encode)
            self._compiled.keep((subject, schema_id, as_shown), found, made.size_bytes)
        return found

    def id_of(self, subject: str, version: int | None, deadline: Deadline) -> int:
        """See `ports.SchemaWriter`."""
        return self._client.id_of(subject, version, deadline)

    def _version_of(self, subject: str, schema_id: int, deadline: Deadline) -> int:
        version = self._client.version_of(subject, schema_id, deadline)
        # The registry's rule of compatibility is the subject's: a schema of another one goes round it.
        if version is None:
            raise SchemaRefused(f"schema {schema_id} is not a version of subject {subject!r}")
        return version


def make_encoder(
    kind: str, schema: str, references: Sequence[tuple[str, str]] = (), *, as_shown: bool = False
) -> Encoder:
    """The encoder by a schema; each format is imported when it is met.

    `references`: names and texts. `as_shown`: of JSON as readers see it; else Avro has its own.
    Raises ValueError for a schema that cannot be used, RegistryUnavailable where others keep the processes
    busy that compile what takes long.
    """
    try:
        if kind == JSON:
            from keylane.adapters.registry import json_schema_writer  # noqa: PLC0415

            return json_schema_writer.encoder(schema, references)
        if kind == AVRO:
            from keylane.formats import avro_keys, avro_writer  # noqa: PLC0415

            make = avro_keys.encoder if as_shown else avro_writer.encoder
            encode = one_at_a_time(make, schema, references, [text for _, text in references])
            return Encoder(encode, size_of(schema, references))
        if kind == PROTOBUF:
            from keylane.adapters.registry import protobuf_writer  # noqa: PLC0415

            encode = one_at_a_time(protobuf_writer.encoder, schema, references, references)
            return Encoder(encode, size_of(schema, references))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    raise ValueError(f"its type {kind[:50]!r} is not one of {', '.join(KINDS)}")
