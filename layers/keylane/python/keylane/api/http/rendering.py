"""A record's value as a client gets it: its content type, its text, the fields that were asked for."""

import base64
import json

from keylane.formats.json_text import is_json
from keylane.formats.projection import Fields, project
from keylane.model.records import Record

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
_FORMATS = {JSON: "json", TEXT: "text", BYTES: "base64"}
_CONTENT_TYPES = {name: content_type for content_type, name in _FORMATS.items()}


def content_of(record: Record) -> tuple[str, str | None]:
    """Return the content type of the value and its text; None for a value that is rendered as bytes."""
    if record.form is None:
        return _guess_content(record.value)
    content_type = _CONTENT_TYPES[record.form.name]
    return content_type, None if content_type == BYTES else record.value.decode()


def as_json(record: Record) -> tuple[str, str]:
    """Return the value as JSON text, and its format."""
    content_type, text = _guess_content(record.value) if record.form is None else content_of(record)
    if content_type == JSON and text is not None:
        return text, "json"
    if text is None:
        text = base64.b64encode(record.value).decode()
    return json.dumps(text), _FORMATS[content_type]


def pick_fields(record: Record, fields: Fields | None) -> str | None:
    """Return the value's fields as JSON; None if `fields` is None or the value is not a JSON object."""
    if fields is None or (record.form is not None and record.form.name != "json"):
        return None
    return project(record.value, fields)


def _guess_content(value: bytes) -> tuple[str, str | None]:
    """Return the content type of a value by its bytes, and its text; None where it is not UTF-8."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return BYTES, None
    return (JSON if is_json(text) else TEXT), text
