"""A record's value as an answer spells it: its content type, its text, the fields that are asked for."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from keylane.formats.json_text import is_json
from keylane.formats.projection import project

if TYPE_CHECKING:
    from keylane.formats.projection import Fields
    from keylane.model.records import Record

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
_FORMATS = {JSON: "json", TEXT: "text", BYTES: "base64"}
_CONTENT_TYPES = {name: content_type for content_type, name in _FORMATS.items()}


def content_of(record: Record) -> tuple[str, str | None]:
    """Content type of the value and, where it isn't shown as bytes, its text."""
    if record.form is None:
        return sniff(record.value)
    content_type = _CONTENT_TYPES[record.form.name]
    return content_type, None if content_type == BYTES else record.value.decode()


def as_json(record: Record) -> tuple[str, str]:
    """Spell the value as JSON, and name its format."""
    content_type, text = content_of(record)
    if content_type == JSON and text is not None:
        return text, "json"
    if text is None:
        return json.dumps(base64.b64encode(record.value).decode()), _FORMATS[content_type]
    return json.dumps(text), _FORMATS[content_type]


def picked(record: Record, fields: Fields | None) -> str | None:
    """JSON of the value's fields, None where none are asked for, or it has none, as text and bytes."""
    if fields is None or (record.form is not None and record.form.name != "json"):
        return None
    return project(record.value, fields)


def sniff(value: bytes) -> tuple[str, str | None]:
    """Content type of a value and, where it is UTF-8, its text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return BYTES, None
    return (JSON if is_json(text) else TEXT), text
