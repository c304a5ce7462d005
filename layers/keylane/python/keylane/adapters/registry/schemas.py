"""The Schema Registry: schemas by id, each made a decoder once and kept for as long as the function lives.

Confluent's API, as Apicurio, Karapace and Redpanda have it too:

    GET /schemas/ids/ID                          {"schema": ..., "schemaType": ..., "references": [...]}
    GET /subjects/SUBJECT/versions/VERSION       of each reference

A Protobuf schema is the text of a .proto, or its descriptor in base64, as it was registered: not every
registry can turn the one into the other.

Imported when the first value needs a schema, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from keylane.adapters.registry.http import RegistryHttp
from keylane.errors import RegistryUnavailable
from keylane.formats.json_text import is_json
from keylane.ports import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.registry.http import RegistrySettings
    from keylane.ports import Deadline

REFERENCES_LIMIT = 200
_NONSENSE = "the Schema Registry answered with something that is no schema"


class SchemaRegistry:
    """Schemas of one registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._http = RegistryHttp(settings)
        self._decoders: dict[int, Decoder] = {}

    def decoder(self, schema_id: int, deadline: Deadline) -> Decoder:
        """See `ports.Schemas`."""
        found = self._decoders.get(schema_id)
        if found is None:
            found = self._decoders[schema_id] = self._made(schema_id, deadline)
        return found

    def _made(self, schema_id: int, deadline: Deadline) -> Decoder:
        document = self._http.get(f"/schemas/ids/{schema_id}", deadline)
        if document is None:
            raise ValueError("the Schema Registry does not have it")
        schema_type, schema = document.get("schemaType") or "AVRO", text_of(document)
        if schema_type == "JSON":
            return Decoder(schema_type, _json)
        if schema_type == "AVRO":
            from keylane.formats import avro_reader  # noqa: PLC0415 (each format is imported when it is met)

            references = self.references(document, deadline)
            return Decoder(schema_type, avro_reader.decoder(schema, [text for _, text in references]))
        if schema_type == "PROTOBUF":
            references = self.references(document, deadline)
            return Decoder(schema_type, _protobuf()(schema, references))
        raise ValueError(f"it is of type {str(schema_type)[:50]!r}, which is none of AVRO, PROTOBUF and JSON")

    def references(self, document: dict[str, Any], deadline: Deadline) -> list[tuple[str, str]]:
        """Names and texts of all that the schema leads to, each behind what it leads to itself.

        Raises RegistryUnavailable; ValueError for what the registry does not have.
        """
        found: dict[str, str] = {}
        seen: set[tuple[str, int]] = set()

        def visit(document: dict[str, Any]) -> None:
            for name, subject, version in _named_in(document):
                if (subject, version) in seen:
                    continue
                seen.add((subject, version))
                if len(seen) > REFERENCES_LIMIT:
                    raise ValueError(f"it leads to more than {REFERENCES_LIMIT} other schemas")
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
                referenced = self._http.get(path, deadline)
                if referenced is None:
                    raise ValueError(f"the Schema Registry does not have {name[:100]!r}, to which it refers")
                visit(referenced)
                found[name] = text_of(referenced)

        visit(document)
        return list(found.items())


def text_of(document: dict[str, Any]) -> str:
    """The schema's text. Raises RegistryUnavailable."""
    schema = document.get("schema")
    if not isinstance(schema, str):
        raise RegistryUnavailable(_NONSENSE)
    return schema


def _named_in(document: dict[str, Any]) -> list[tuple[str, str, int]]:
    try:
        return [
            (str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in document.get("references") or ()
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryUnavailable(_NONSENSE) from error


def _protobuf() -> Callable[[str, list[tuple[str, str]]], Callable[[bytes], str]]:
    from keylane.adapters.registry import protobuf  # noqa: PLC0415 (as above)

    return protobuf.decoder


def _json(payload: bytes) -> str:
    """The text is the value: what was written is passed on digit by digit."""
    text = payload.decode()
    if not is_json(text):
        raise ValueError("it is no JSON")
    return text
