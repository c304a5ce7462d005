"""The port `SchemaWriter`: a Schema Registry's schemas as encoders of JSON.

Imported when the first request needs it, not before.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keylane.adapters.registry.client import (
    AVRO,
    JSON,
    KINDS,
    PROTOBUF,
    SCHEMA_CHARACTERS_LIMIT,
    RegistryClient,
)
from keylane.ports import Deadline, SchemaEncoder, SchemaRefused

CACHE_LIMIT = 1_000
"""Entries of each cache, which is then emptied: clients can send any number of schemas."""


class RegistryEncoders:
    """Encoders by one registry's schemas; each is fetched, or registered, once in the life of a function."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._by_id: dict[tuple[str, int], SchemaEncoder] = {}
        self._by_text: dict[tuple[str, str, str], SchemaEncoder] = {}

    def registered(self, subject: str, kind: str, schema: str, deadline: Deadline) -> SchemaEncoder:
        """See `ports.SchemaWriter`."""
        found = self._by_text.get((subject, kind, schema))
        if found is None:
            if len(schema) > SCHEMA_CHARACTERS_LIMIT:
                raise ValueError(f"it has more than {SCHEMA_CHARACTERS_LIMIT} characters")
            encode = make_encoder(kind, schema)
            schema_id = self._client.register(subject, kind, schema, deadline)
            found = SchemaEncoder(kind, schema_id, self._version_of(subject, schema_id, deadline), encode)
            _make_room(self._by_text)
            self._by_text[subject, kind, schema] = found
        return found

    def encoder(self, subject: str, schema_id: int, deadline: Deadline) -> SchemaEncoder:
        """See `ports.SchemaWriter`."""
        found = self._by_id.get((subject, schema_id))
        if found is None:
            schema = self._client.schema(schema_id, deadline)
            version = self._version_of(subject, schema_id, deadline)
            encode = make_encoder(schema.kind, schema.text, self._client.referenced(schema, deadline))
            found = SchemaEncoder(schema.kind, schema_id, version, encode)
            _make_room(self._by_id)
            self._by_id[subject, schema_id] = found
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
    kind: str, schema: str, references: Sequence[tuple[str, str]] = ()
) -> Callable[[Any], bytes]:
    """The encoder by a schema; each format is imported when it is met.

    `references`: names and texts. Raises ValueError for a schema that cannot be used.
    """
    try:
        if kind == AVRO:
            from keylane.formats import avro_writer  # noqa: PLC0415

            return avro_writer.encoder(schema, [text for _, text in references])
        if kind == JSON:
            from keylane.adapters.registry import json_schema_writer  # noqa: PLC0415

            return json_schema_writer.encoder(schema, references)
        if kind == PROTOBUF:
            from keylane.adapters.registry import protobuf_writer  # noqa: PLC0415

            return protobuf_writer.encoder(schema, references)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    raise ValueError(f"its type {kind[:50]!r} is not one of {', '.join(KINDS)}")


def _make_room(cache: dict[Any, Any]) -> None:
    if len(cache) >= CACHE_LIMIT:
        cache.clear()
