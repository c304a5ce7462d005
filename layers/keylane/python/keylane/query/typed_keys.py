"""The keys of records, from what clients ask for: the values in them.

A key of one field is asked for by its value, any other by a JSON object of its fields. Its bytes are those
that the topic's producer writes: Connect's JSON converter (see `formats.connect_keys`), or a serializer of a
Schema Registry. A registry's key begins with the id of its schema: it has other bytes by each schema that its
subject has, and so there are several keys to look for.
"""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from keylane.errors import BadRequest
from keylane.formats.connect_keys import ConnectKeys, keys_with_schema, quote
from keylane.formats.json_text import BOOLEANS, INTEGER
from keylane.model.records import KeyFields, Layout, Options
from keylane.ports import Schemas, WaitBudget
from keylane.query.span import Span
from keylane.query.store import Reading

_SPANS = "give bytes, with key_format=base64, or find records by the fields of their values"


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
            raise BadRequest(f"{what}: {_SPANS}", "from" if span.low else "to")
        if form is None:
            raise BadRequest(f"keys of this topic begin with the id of their schema: {_SPANS}", "prefix")
        return Span.of_prefix(encode_prefix(form, span.low))

    def _keys_by_schemas(self, layout: Layout, keys: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        from keylane.query.registry_keys import encode_by_schemas, subject_of  # noqa: PLC0415 (few topics)

        subject = subject_of(layout.topic)
        try:
            with self.registry_wait.asking() as deadline:
                encoders = self.schemas().key_encoders(subject, deadline)
        except ValueError as error:
            what = f"keys of this topic are encoded by a Schema Registry, but {error}"
            raise BadRequest(what, "key") from error
        return [encode_by_schemas(subject, encoders, key) for key in keys]


@lru_cache(maxsize=1_000)
def json_keys(options: Options) -> ConnectKeys | None:
    """Return how a topic's JSON keys are written; None where keys are asked for by their bytes.

    The schema was checked when it was configured.
    """
    if options.key_schema:
        return keys_with_schema(options.key_schema)
    return ConnectKeys(options.key_fields) if options.key_fields else None


def record_key(options: Options, key: bytes) -> bytes:
    """Return the bytes of the one key that a client's key means: the topic's are not of a Schema Registry.

    Raises BadRequest.
    """
    if not (options.key_fields or options.key_schema):
        return key
    form = json_keys(options)
    return key if form is None else encode_json(form, key)


def encode_json(form: ConnectKeys, key: bytes) -> bytes:
    """Return the bytes of a key.

    `key` is a JSON object of its fields, or the value of the only one. Raises BadRequest.
    """
    fields = form.fields
    text = _decode(fields, key)
    if text.startswith("{") and not form.is_bare:
        values = _parse_object(fields, text)
    elif len(fields) == 1:
        [(name, kind)] = fields
        values = {name: _parse_value(kind, text)}
    else:
        raise _fault(fields, "is not a JSON object")
    if form.is_bare:
        [(name, kind)] = fields
        written = _write(fields, name, kind, values[name])
    else:
        members = (f"{quote(name)}:{_write(fields, name, kind, values[name])}" for name, kind in fields)
        written = f"{{{','.join(members)}}}"
    return f"{form.head}{written}{form.tail}".encode()


def encode_prefix(form: ConnectKeys, prefix: bytes) -> bytes:
    """Return the bytes that the keys with a prefix begin with.

    `prefix` begins the JSON object that answers show, or the text of the only field. Raises BadRequest.
    """
    text = prefix.decode(errors="replace")
    if not form.is_bare and text.startswith("{"):
        return form.head.encode() + prefix
    (name, kind), *others = form.fields
    if others or kind != "string" or text.encode() != prefix:
        raise BadRequest(f"the prefix does not begin {_example(form.fields)}: {_SPANS}", "prefix")
    opening = "" if form.is_bare else f"{{{quote(name)}:"
    return f"{form.head}{opening}{quote(text)[:-1]}".encode()


def _decode(fields: KeyFields, key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise _fault(fields, "is not UTF-8") from error


def _parse_object(fields: KeyFields, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _fault(fields, "is not valid JSON") from error
    if values.keys() != {name for name, _ in fields}:
        raise _fault(fields, "has other fields")
    found: dict[str, Any] = values
    return found


def _parse_value(kind: str, text: str) -> Any:
    """Return the value that a text stands for; the text itself where it stands for none of this kind."""
    if kind == "integer" and INTEGER.fullmatch(text):
        return int(text)
    return BOOLEANS.get(text, text) if kind == "boolean" else text


def _write(fields: KeyFields, name: str, kind: str, value: Any) -> str:
    if kind == "string" and isinstance(value, str):
        return quote(value)
    if kind == "boolean" and isinstance(value, bool):
        return str(value).lower()
    if kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    article = "an" if kind == "integer" else "a"
    raise _fault(fields, f"has a field {name!r} that is not {article} {kind}")


def _fault(fields: KeyFields, what: str) -> BadRequest:
    return BadRequest(f"the key {what}: keys of this topic are {_example(fields)}", "key")


def _example(fields: KeyFields) -> str:
    members = ", ".join(f'"{name}": ...' for name, _ in fields)
    return f"{{{members}}}"
