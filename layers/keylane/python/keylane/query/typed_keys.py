"""Keys that are JSON objects, from what clients ask for: the bytes that Connect's JSON converter writes.

    {"region":"eu","number":7}    no white space, the fields in the order of the table's primary key

Source: `JsonConverter` of Kafka Connect, which writes with Jackson.
"""

import json
import re
from typing import Any

from keylane.errors import BadRequest
from keylane.model.records import KeyFields
from keylane.ports import Deadline
from keylane.query.store import Store

_INTEGER = re.compile(r"-?[0-9]{1,40}")
_ESCAPES = {number: f"\\u{number:04X}" for number in range(0x20)}
_ESCAPES |= {ord(raw): f"\\{short}" for raw, short in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)}
_BOOLEANS = {"true": True, "false": False}


def keys_of_topic(store: Store, topic: str, keys: tuple[bytes, ...], timeout_ms: float) -> tuple[bytes, ...]:
    """Return the keys of records, from the texts that a client has for them.

    Raises BadRequest where one can't be the topic's; UnknownTopic, StateUnavailable, CorruptState.
    """
    layout = store.layouts.get(topic, Deadline.after_ms(timeout_ms, store.clock))
    fields = layout.options.key_fields
    return tuple(encode_key(fields, key) for key in keys) if fields else keys


def encode_key(fields: KeyFields, key: bytes) -> bytes:
    """Return the bytes of a key with these fields.

    `key` is a JSON object of them, or the value of the only one. Raises BadRequest.
    """
    try:
        text = key.decode()
    except UnicodeDecodeError as error:
        raise _fault(fields, "is not UTF-8") from error
    if text.startswith("{"):
        values = _parse_object(fields, text)
    elif len(fields) == 1:
        [(name, kind)] = fields
        values = {name: _parse_value(kind, text)}
    else:
        raise _fault(fields, "is not a JSON object")
    written = (f"{_quote(name)}:{_write(fields, name, kind, values[name])}" for name, kind in fields)
    return f"{{{','.join(written)}}}".encode()


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
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    return _BOOLEANS.get(text, text) if kind == "boolean" else text


def _write(fields: KeyFields, name: str, kind: str, value: Any) -> str:
    if kind == "string" and isinstance(value, str):
        return _quote(value)
    if kind == "boolean" and isinstance(value, bool):
        return str(value).lower()
    if kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    article = "an" if kind == "integer" else "a"
    raise _fault(fields, f"has a field {name!r} that is not {article} {kind}")


def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _fault(fields: KeyFields, what: str) -> BadRequest:
    example = ", ".join(f'"{name}": ...' for name, _ in fields)
    return BadRequest(f"the key {what}: keys of this topic are {{{example}}}", "key")
