"""JSON schemas of answers, for docs/openapi.json: what their shapes are made of.

A schema stands beside the function that renders what it describes. Nothing is validated by it at run time.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Schema:
    """A named schema. A shape that contains another one refers to it by its name."""

    name: str
    shape: dict[str, Any]

    @classmethod
    def of(cls, name: str, /, *, optional: Collection[str] = (), **properties: Any) -> Self:
        """Return the schema of an object: see `an_object`."""
        return cls(name, an_object(optional=optional, **properties))


COUNT = {"type": "integer", "minimum": 0}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
TIME = {"type": "integer"}
MAYBE_TEXT = {"type": ["string", "null"]}
MAYBE_COUNT = {"type": ["integer", "null"], "minimum": 0}


def an_object(*, optional: Collection[str] = (), **properties: Any) -> dict[str, Any]:
    """Return the shape of an object with these properties, all of them required but for `optional`."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def a_closed_object(*, optional: Collection[str] = (), **properties: Any) -> dict[str, Any]:
    """Return the shape of an object as of `an_object` that has no other properties."""
    return {**an_object(optional=optional, **properties), "additionalProperties": False}


def an_array(items: Any) -> dict[str, Any]:
    """Return the shape of an array."""
    return {"type": "array", "items": items}


KEY: dict[str, Any] = {
    "key": {"description": "text, base64 or JSON, according to key_format"},
    "key_format": {"enum": ["text", "base64", "json"]},
}
POSITION = {"partition": COUNT, "offset": COUNT, "position": TEXT, "timestamp": MAYBE_COUNT}
HEADER = an_object(name=TEXT, value={}, value_format=TEXT)
VALUE: dict[str, Any] = {
    "value": {"description": "JSON, text or base64, according to value_format"},
    "value_format": {"enum": ["json", "text", "base64", "left-in-kafka"]},
    "value_bytes": COUNT,
    "headers": an_array(HEADER),
    "no_fields": FLAG,
    "schema_id": COUNT,
    "schema_type": {"enum": ["AVRO", "PROTOBUF", "JSON"]},
    "undecoded": {
        "type": "string",
        "description": "why the value could not be decoded and is given as bytes",
    },
}
FRESHNESS = {
    "watermarks": {
        "type": "object",
        "description": "offset by partition: the answer has every record below it",
        "additionalProperties": COUNT,
    },
    "age_ms": {
        **COUNT,
        "description": "staleness bound: no record that was acknowledged longer ago is missing",
    },
    "building": FLAG,
    "incomplete": FLAG,
}
UNSURE = FRESHNESS.keys() - {"watermarks"}
"""What an answer lacks while its lanes are being built, or that says so."""
PAGE = {"next": {"type": "string", "description": "cursor of the next page; absent on the last page"}}
