"""The port `Schemas`: a Schema Registry's schemas as decoders, each made once in the life of a function.

Imported when the first value needs a schema, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.adapters.registry.compiled import CompiledSchemas, one_at_a_time, size_of
from keylane.formats.json_text import is_json
from keylane.ports import Decoder, SchemaRefused, SubjectVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.registry.client import RegisteredSchema, RegistryClient
    from keylane.adapters.registry.keys import SubjectKeys
    from keylane.ports import Deadline, KeyEncoder


class RegistryDecoders:
    """Decoders of one registry's schemas.

    `known`: the subjects of keys, `compiled`: the decoders that are kept; shared between threads.
    """

    def __init__(
        self,
        client: RegistryClient,
        known: CompiledSchemas[SubjectKeys] | None = None,
        compiled: CompiledSchemas[Decoder] | None = None,
    ) -> None:
        self._client = client
        self._compiled = CompiledSchemas() if compiled is None else compiled
        self._known = CompiledSchemas() if known is None else known

    def decoder(self, schema_id: int, deadline: Deadline) -> Decoder:
        """See `ports.Schemas`."""
        found = self._compiled.get(schema_id)
        if found is None:
            found = make_decoder(self._client, self._client.schema(schema_id, deadline), deadline)
            self._compiled.keep(schema_id, found, found.size_bytes)
        return found

    def newest_versions(self, subject: str, limit: int, deadline: Deadline) -> Sequence[SubjectVersion]:
        """See `ports.Schemas`."""
        try:
            numbers = sorted(self._client.versions(subject, deadline), reverse=True)[:limit]
            found = [(number, *self._client.version(subject, number, deadline)) for number in numbers]
        except SchemaRefused:
            return ()
        return [SubjectVersion(number, each, schema.kind, schema.text) for number, each, schema in found]

    def key_encoders(self, subject: str, deadline: Deadline) -> Sequence[KeyEncoder]:
        """See `ports.Schemas`."""
        from keylane.adapters.registry.keys import RegistryKeys  # noqa: PLC0415 (few topics have such keys)

        return RegistryKeys(self._client, self._known).encoders(subject, deadline)


def make_decoder(client: RegistryClient, schema: RegisteredSchema, deadline: Deadline) -> Decoder:
    """The decoder of a schema; each format is imported when it is met.

    Raises RegistryUnavailable; ValueError for a schema that cannot be used.
    """
    if schema.kind == "JSON":
        return Decoder(schema.kind, _decode_json, size_of(schema.text, ()), schema.text)
    if schema.kind == "AVRO":
        from keylane.formats import avro_reader  # noqa: PLC0415

        references = client.referenced(schema, deadline)
        texts = [text for _, text in references]
        decode = one_at_a_time(avro_reader.decoder, schema.text, references, texts)
        return Decoder(schema.kind, decode, size_of(schema.text, references), schema.text)
    if schema.kind == "PROTOBUF":
        from keylane.adapters.registry import protobuf  # noqa: PLC0415

        references = client.referenced(schema, deadline)
        decode = one_at_a_time(protobuf.decoder, schema.text, references, references)
        return Decoder(schema.kind, decode, size_of(schema.text, references))
    raise ValueError(f"the schema's type {schema.kind[:50]!r} is not one of AVRO, PROTOBUF and JSON")


def _decode_json(payload: bytes) -> str:
    """The value's text, digit by digit as it was written."""
    text = payload.decode()
    if not is_json(text):
        raise ValueError("the value is not valid JSON")
    return text
