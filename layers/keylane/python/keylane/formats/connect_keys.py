"""Keys that Connect's JSON converter writes: without a schema, and with one (`schemas.enable`).

    {"region":"eu","number":7}                     no white space, the fields in the order of the primary key
    {"schema":{...},"payload":{"region":"eu",...}} the same schema in each key of a topic

Source: `JsonConverter` of Kafka Connect, which writes with Jackson.
"""

import json
from functools import lru_cache
from typing import Any, NamedTuple

from keylane.formats.json_text import is_json, members

_KINDS = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "integer"),
    "string": "string",
    "bytes": "string",
    "boolean": "boolean",
}
"""By the type of a schema; bytes are base64 in JSON."""
_ESCAPES = {number: f"\\u{number:04X}" for number in range(0x20)}
_ESCAPES |= {ord(raw): f"\\{short}" for raw, short in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)}


class ConnectKeys(NamedTuple):
    """How the keys of a topic are written: `head`, an object of the fields, `tail`.

    `fields`: names and kinds. With `is_bare` it is the value of the only field, without an object.
    """

    fields: tuple[tuple[str, str], ...]
    head: str = ""
    tail: str = ""
    is_bare: bool = False

    def show(self, key: bytes) -> str | None:
        """Return the JSON in a key, digit by digit as it was written; None where it is another key."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return None
        inner = text[len(self.head) : len(text) - len(self.tail)]
        is_framed = text.startswith(self.head) and text.endswith(self.tail)
        if not is_framed or not (self.is_bare or inner.startswith("{")):
            return None
        return inner if is_json(inner) else None


@lru_cache(maxsize=1_000)
def keys_with_schema(schema: str) -> ConnectKeys:
    """Return how the converter writes keys of a schema, which is that of any key's `schema`, as JSON.

    Raises ValueError, whose sentence says why no key of it can be asked for by its values.
    """
    try:
        found = json.loads(schema)
        # As Jackson writes it: the members stay in their order.
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        text.encode()  # half a surrogate pair is in no key
    except (ValueError, RecursionError) as error:
        raise ValueError("is not valid JSON") from error
    head, tail = f'{{"schema":{text},"payload":', "}"
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise ValueError("is not a schema: it has no type")  # noqa: TRY004 (as all faults of a schema)
    if found["type"] != "struct":
        return ConnectKeys((("key", _kind_of(found, "key")),), head, tail, is_bare=True)
    fields = found.get("fields")
    if not isinstance(fields, list) or not fields or not all(isinstance(each, dict) for each in fields):
        raise ValueError("is not a schema: it has no fields")
    names = [each.get("field") for each in fields]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("is not a schema: a field has no name")
    kinds = tuple((str(name), _kind_of(each, str(name))) for name, each in zip(names, fields, strict=True))
    return ConnectKeys(kinds, head, tail)


def _kind_of(schema: dict[str, Any], name: str) -> str:
    kind = _KINDS.get(str(schema.get("type")))
    if kind is None:
        raise ValueError(f"has a field {name!r} of type {str(schema.get('type'))[:50]!r}: no key can have it")
    return kind


def is_other_object(text: str, name: str) -> bool:
    """Return whether a text is a JSON object that has fields, and none of this name."""
    try:
        found = members(text)
    except ValueError:
        return False
    return bool(found) and name not in found


def quote(text: str) -> str:
    """Return a string as Jackson writes it: its hexadecimal digits are capitals."""
    return f'"{text.translate(_ESCAPES)}"'
