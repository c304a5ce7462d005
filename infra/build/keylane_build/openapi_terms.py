"""Building blocks of the schemas in docs/openapi.json: simple types, and the fields of a value."""

from __future__ import annotations

from typing import Any

COUNT = {"type": "integer", "minimum": 0}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
TIME = {"type": "integer"}
MAYBE_TEXT = {"type": ["string", "null"]}


def an_object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return {"type": "object", "required": list(required), "properties": properties}


def a_list(name: str) -> dict[str, Any]:
    """Return the schema of an array of the schema `name`."""
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


MAYBE_COUNT = {"type": ["integer", "null"], "minimum": 0}
HEADER = an_object(("name", "value", "value_format"), name=TEXT, value={}, value_format=TEXT)
VALUE: dict[str, Any] = {
    "value": {"description": "JSON, text or base64, according to value_format"},
    "value_format": {"enum": ["json", "text", "base64", "left-in-kafka"]},
    "value_bytes": COUNT,
    "headers": {"type": "array", "items": HEADER},
    "no_fields": FLAG,
    "schema_id": COUNT,
    "schema_type": {"enum": ["AVRO", "PROTOBUF", "JSON"]},
    "undecoded": {
        "type": "string",
        "description": "why the value could not be decoded and is given as bytes",
    },
}
