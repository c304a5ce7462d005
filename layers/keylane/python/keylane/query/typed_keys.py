"""The keys of records, from what clients ask for: the values in them.

A key of one field is asked for by its value, any other by a JSON object of its fields. Its bytes are those
that the topic's producer writes: Connect's JSON converter (see `formats.connect_keys`), or a serializer of a
Schema Registry. A registry's key begins with the id of its schema: it has other bytes by each schema that its
subject has, and so there are several keys to look for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from keylane.errors import BadRequest
from keylane.model.records import Layout
from keylane.model.schema_rules import default_subject
from keylane.ports import Schemas, WaitBudget
from keylane.query.span import Span
from keylane.query.store import Reading
from keylane.state.json_keys import SPANS, encode_prefix, json_keys, record_key
from keylane.state.scope_keys import is_shown_as


class KeyFinder(NamedTuple):
    """What keys are found with: the schemas of a registry, and how long the request waits for it."""

    schemas: Callable[[], Schemas]
    registry_wait: WaitBudget

    def keys_of(self, reading: Reading, key: bytes) -> tuple[bytes, ...]:
        """Return the keys of records that may be meant by a client's key, those of newer schemas first.

        Raises BadRequest where it can't be a key of the topic; RegistryUnavailable.
        """
        return self.keys_of_all(reading, (key,))[0]

    def keys_of_all(self, reading: Reading, keys: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        """As `keys_of`, for many keys of a topic."""
        layout = reading.layout
        if layout.options.key_format == "registry":
            with reading.paused():
                return self._keys_by_schemas(layout, keys)
        return [(record_key(layout.options, key),) for key in keys]

    def keys_shown_as(self, layout: Layout, text: bytes) -> tuple[bytes, ...]:
        """As `keys_of`, of keys of a Schema Registry: those alone that answers show as the text."""
        from keylane.formats import confluent  # noqa: PLC0415 (as for the schemas)

        def show(key: bytes) -> str | None:
            schema_id, payload = confluent.split(key)
            try:
                with self.registry_wait.asking() as deadline:
                    return self.schemas().decoder(schema_id, deadline).decode(payload)
            except ValueError:
                return None

        found = self._keys_by_schemas(layout, (text,))[0]
        return tuple(key for key in found if is_shown_as(show(key), text.decode()))

    def span_of(self, reading: Reading, span: Span) -> Span:
        """Return the span of keys of records that a client's span means.

        Typed keys are in the order of their bytes, not of their values: only a prefix means the same keys
        in both. Raises as `keys_of`.
        """
        options = reading.layout.options
        form = json_keys(options)
        if form is None and options.key_format != "registry":
            return span
        if not span.low or span != Span.of_prefix(span.low):
            what = "keys of this topic are in the order of their bytes, not of their values"
            raise BadRequest(f"{what}: {SPANS}", "from" if span.low else "to")
        if form is None:
            raise BadRequest(f"keys of this topic begin with the id of their schema: {SPANS}", "prefix")
        return Span.of_prefix(encode_prefix(form, span.low))

    def _keys_by_schemas(self, layout: Layout, keys: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        from keylane.query.registry_keys import encode_by_schemas  # noqa: PLC0415 (few topics)

        subject = default_subject(layout.topic, "key")
        try:
            with self.registry_wait.asking() as deadline:
                encoders = self.schemas().key_encoders(subject, deadline)
        except ValueError as error:
            what = f"keys of this topic are encoded by a Schema Registry, but {error}"
            raise BadRequest(what, "key") from error
        return [encode_by_schemas(subject, encoders, key) for key in keys]
