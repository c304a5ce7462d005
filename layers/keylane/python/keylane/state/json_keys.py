"""Keys that are JSON: the bytes of what a client asks for, or writes, by the values in them."""

import json
from functools import lru_cache
from typing import Any

from keylane.errors import BadRequest
from keylane.formats.connect_keys import ConnectKeys, is_other_object, keys_with_schema, quote
from keylane.formats.json_text import BOOLEANS, INTEGER
from keylane.model.records import KeyFields, Options

SPANS = "give bytes, with key_format=base64, or find records by the fields of their values"
"""What to do instead of a span of such keys."""


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
    if text.startswith("{") and not form.is_bare and not _is_value(fields, text):
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
    try:
        return f"{form.head}{written}{form.tail}".encode()
    except UnicodeEncodeError as error:  # half a surrogate pair, which JSON can spell
        raise _fault(fields, "is not valid Unicode") from error


def encode_prefix(form: ConnectKeys, prefix: bytes) -> bytes:
    """Return the bytes that the keys with a prefix begin with.

    `prefix` begins the JSON object that answers show, or the text of the only field. Raises BadRequest.
    """
    text = prefix.decode(errors="replace")
    if not form.is_bare and text.startswith("{"):
        return form.head.encode() + prefix
    (name, kind), *others = form.fields
    if others or kind != "string" or text.encode() != prefix:
        raise BadRequest(f"the prefix does not begin {_example(form.fields)}: {SPANS}", "prefix")
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


def _is_value(fields: KeyFields, text: str) -> bool:
    """Whether a JSON object is the text of the only field, as MongoDB's `{"$oid": "..."}` is."""
    return len(fields) == 1 and fields[0][1] == "string" and is_other_object(text, fields[0][0])


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
