"""The port `SchemaWriter`: a Schema Registry's Avro schemas as encoders.

Imported when the first request needs it, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane.formats import avro_writer
from keylane.ports import SchemaRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.registry.client import RegistryClient
    from keylane.ports import Deadline

    Encode = Callable[[Any], bytes]

CACHE_LIMIT = 1_000
"""Entries of each cache, which is then emptied: clients can send any number of schemas."""


class RegistryEncoders:
    """Encoders by one registry's schemas; each is fetched, or registered, once in the life of a function."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._by_id: dict[tuple[str, int], Encode] = {}
        self._by_text: dict[tuple[str, str], tuple[int, Encode]] = {}

    def registered(self, subject: str, schema: str, deadline: Deadline) -> tuple[int, Encode]:
        """See `ports.SchemaWriter`."""
        found = self._by_text.get((subject, schema))
        if found is None:
            encode = avro_writer.encoder(schema)
            found = self._client.register(subject, schema, deadline), encode
            _make_room(self._by_text)
            self._by_text[subject, schema] = found
        return found

    def encoder(self, subject: str, schema_id: int, deadline: Deadline) -> Encode:
        """See `ports.SchemaWriter`."""
        found = self._by_id.get((subject, schema_id))
        if found is None:
            schema = self._client.schema(schema_id, deadline)
            # The registry's rule of compatibility is the subject's: a schema of another one goes round it.
            if not self._client.is_version(subject, schema_id, deadline):
                raise SchemaRefused(f"schema {schema_id} is not a version of subject {subject!r}")
            if schema.kind != "AVRO":
                raise ValueError(f"the schema's type is {schema.kind[:50]!r}, not AVRO")
            references = [text for _, text in self._client.referenced(schema, deadline)]
            found = avro_writer.encoder(schema.text, references)
            _make_room(self._by_id)
            self._by_id[subject, schema_id] = found
        return found


def _make_room(cache: dict[Any, Any]) -> None:
    if len(cache) >= CACHE_LIMIT:
        cache.clear()
