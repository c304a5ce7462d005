"""The port `Schemas`: a Schema Registry's schemas as decoders, each made once in the life of a function.

Imported when the first value needs a schema, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.formats.json_text import is_json
from keylane.ports import Decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.registry.client import RegisteredSchema, RegistryClient
    from keylane.adapters.registry.keys import SubjectKeys
    from keylane.ports import Deadline, KeyEncoder


class RegistryDecoders:
    """Decoders of one registry's schemas. `known`: the subjects of keys, shared between threads."""

    def __init__(self, client: RegistryClient, known: dict[str, SubjectKeys] | None = None) -> None:
        self._client = client
        self._decoders: dict[int, Decoder] = {}
        self._known = {} if known is None else known

    def decoder(self, schema_id: int, deadline: Deadline) -> Decoder:
        """See `ports.Schemas`."""
        found = self._decoders.get(schema_id)
        if found is None:
            schema = self._client.schema(schema_id, deadline)
            found = self._decoders[schema_id] = make_decoder(self._client, schema, deadline)
        return found

    def key_encoders(self, subject: str, deadline: Deadline) -> Sequence[KeyEncoder]:
        """See `ports.Schemas`."""
        from keylane.adapters.registry.keys import RegistryKeys  # noqa: PLC0415 (few topics have such keys)

        return RegistryKeys(self._client, self._known).encoders(subject, deadline)


def make_decoder(client: RegistryClient, schema: RegisteredSchema, deadline: Deadline) -> Decoder:
    """The decoder of a schema; each format is imported when it is met.

    Raises RegistryUnavailable; ValueError for a schema that cannot be used.
    """
    if schema.kind == "JSON":
        return Decoder(schema.kind, _decode_json)
    if schema.kind == "AVRO":
        from keylane.formats import avro_reader  # noqa: PLC0415

        references = [text for _, text in client.referenced(schema, deadline)]
        return Decoder(schema.kind, avro_reader.decoder(schema.text, references))
    if schema.kind == "PROTOBUF":
        from keylane.adapters.registry import protobuf  # noqa: PLC0415

        return Decoder(schema.kind, protobuf.decoder(schema.text, client.referenced(schema, deadline)))
    raise ValueError(f"the schema's type {schema.kind[:50]!r} is not one of AVRO, PROTOBUF and JSON")


def _decode_json(payload: bytes) -> str:
    """The value's text, digit by digit as it was written."""
    text = payload.decode()
    if not is_json(text):
        raise ValueError("the value is not valid JSON")
    return text
