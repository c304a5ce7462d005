"""The port `SchemaWriter`: Avro schemas of a registry, for those who write by them.

    POST /subjects/SUBJECT/versions    {"schema": ...} -> {"id": ...}; the same schema has the same id
    GET  /schemas/ids/ID

Imported when the first request asks for it, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from keylane.adapters.registry.http import RegistryHttp
from keylane.adapters.registry.schemas import SchemaRegistry, text_of
from keylane.errors import RegistryUnavailable
from keylane.formats import avro_writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.registry.http import RegistrySettings
    from keylane.ports import Deadline

    Encode = Callable[[Any], bytes]

KEPT_LIMIT = 1_000
"""Schemas, each of them; then all are asked for anew. Clients can make up any number."""


class RegistryWriter:
    """Schemas of one registry; each is asked for, or registered, once in the life of a function."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._http = RegistryHttp(settings)
        self._schemas = SchemaRegistry(settings)
        self._by_id: dict[int, Encode] = {}
        self._by_text: dict[tuple[str, str], tuple[int, Encode]] = {}

    def registered(self, subject: str, schema: str, deadline: Deadline) -> tuple[int, Encode]:
        """See `ports.SchemaWriter`."""
        kept = self._by_text.get((subject, schema))
        if kept is None:
            encode = avro_writer.encoder(schema)
            path = f"/subjects/{quote(subject, safe='')}/versions"
            schema_id = self._http.post(path, {"schema": schema}, deadline).get("id")
            if not isinstance(schema_id, int):
                raise RegistryUnavailable("the Schema Registry answered without an id")
            _make_room(self._by_text)
            kept = self._by_text[subject, schema] = schema_id, encode
        return kept

    def encoder(self, schema_id: int, deadline: Deadline) -> Encode:
        """See `ports.SchemaWriter`."""
        kept = self._by_id.get(schema_id)
        if kept is None:
            document = self._http.get(f"/schemas/ids/{schema_id}", deadline)
            if document is None:
                raise ValueError("the Schema Registry does not have it")
            kind = document.get("schemaType") or "AVRO"
            if kind != "AVRO":
                raise ValueError(f"it is of type {str(kind)[:50]!r}, not AVRO")
            references = [text for _, text in self._schemas.references(document, deadline)]
            kept = avro_writer.encoder(text_of(document), references)
            _make_room(self._by_id)
            self._by_id[schema_id] = kept
        return kept


def _make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= KEPT_LIMIT:
        kept.clear()
