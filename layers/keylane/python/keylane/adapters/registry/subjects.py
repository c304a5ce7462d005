"""A Schema Registry's subjects, for who checks what is written: which schemas are theirs.

GET /schemas/ids/ID/versions             [{"subject": ..., "version": ...}, ...]
GET /subjects/SUBJECT/versions/latest    {"id": ..., "schema": ..., "schemaType": ..., "references": [...]}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from keylane.adapters.registry.http import RegistryHttp
from keylane.adapters.registry.schemas import SchemaRegistry, text_of
from keylane.errors import RegistryUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.registry.http import RegistrySettings
    from keylane.ports import Clock, Deadline

STRANGER_MS = 10_000
"""How long an id that is none of a subject's is taken for that: it may be registered meanwhile."""
STRANGERS_LIMIT = 1_000


class Schema(NamedTuple):
    """A schema's text, and names and texts of those that it refers to; `kind`: AVRO, PROTOBUF or JSON."""

    kind: str
    text: str
    references: list[tuple[str, str]]


class Subjects:
    """Subjects of one registry. All raise RegistryUnavailable, also for what it does not have."""

    def __init__(self, settings: RegistrySettings, clock: Clock) -> None:
        self._http = RegistryHttp(settings)
        self._schemas = SchemaRegistry(settings)
        self._clock = clock
        self._members: set[tuple[str, int]] = set()
        self._strangers: dict[tuple[str, int], int] = {}

    def has(self, subject: str, schema_id: int, deadline: Deadline) -> bool:
        """Whether the schema is a version of the subject: that once, and it is for ever."""
        pair = subject, schema_id
        if pair in self._members:
            return True
        now_ms = self._clock.now_ms()
        if self._strangers.get(pair, 0) > now_ms:
            return False
        versions = self._http.get_list(f"/schemas/ids/{schema_id}/versions", deadline)
        if any(isinstance(each, dict) and each.get("subject") == subject for each in versions or ()):
            self._members.add(pair)
            return True
        if len(self._strangers) >= STRANGERS_LIMIT:
            self._strangers.clear()
        self._strangers[pair] = now_ms + STRANGER_MS
        return False

    def schema(self, schema_id: int, deadline: Deadline) -> Schema:
        """A schema by its id."""
        return self._of(
            self._http.get(f"/schemas/ids/{schema_id}", deadline), f"schema {schema_id}", deadline
        )

    def latest(self, subject: str, deadline: Deadline) -> Schema:
        """The latest version of a subject."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        return self._of(self._http.get(path, deadline), f"subject {subject!r}", deadline)

    def decoder(self, schema_id: int, deadline: Deadline) -> Callable[[bytes], str]:
        """The schema's decoder, which raises ValueError for what is none of its values."""
        try:
            return self._schemas.decoder(schema_id, deadline).decode
        except ValueError as error:
            raise RegistryUnavailable(f"schema {schema_id} can't be used: {error}") from error

    def _of(self, document: dict[str, Any] | None, name: str, deadline: Deadline) -> Schema:
        if document is None:
            raise RegistryUnavailable(f"the Schema Registry does not have {name}")
        try:
            references = self._schemas.references(document, deadline)
        except ValueError as error:
            raise RegistryUnavailable(f"{name} can't be used: {error}") from error
        return Schema(str(document.get("schemaType") or "AVRO"), text_of(document), references)
