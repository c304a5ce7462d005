"""Keys by the schemas of a registry: the bytes of what a client asks for, by each schema that can hold it.

Imported when the first such key is asked for.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from keylane.errors import BadRequest
from keylane.formats import json_text
from keylane.formats.avro_schema import NotOfSchema
from keylane.formats.connect_keys import is_other_object
from keylane.formats.json_text import BOOLEANS, INTEGER
from keylane.ports import KeyEncoder

_FLOAT = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")


def encode_by_schemas(subject: str, encoders: Sequence[KeyEncoder], key: bytes) -> tuple[bytes, ...]:
    """Return the bytes of a key by each schema that can hold it. Raises BadRequest where none can."""
    try:
        text = key.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the key is not UTF-8: keys of this topic are values of a schema", "key") from error
    found: list[bytes] = []
    first: str | None = None
    for encoder in encoders:
        try:
            found.append(_encode_text(encoder, text))
        except NotOfSchema as error:
            first = first or f"{error.path_below('key')} {error} (schema {encoder.schema_id})"
    if not found:
        raise BadRequest(f"no schema of subject {subject!r} holds the key: {first}", "key")
    return tuple(found)


def _encode_text(encoder: KeyEncoder, text: str) -> bytes:
    """Return a key's bytes by one schema. Raises NotOfSchema: the fault of the last form that was tried."""
    if encoder.fields is not None and text.startswith("{"):
        try:
            return encoder.encode(_parse_json(text))
        except NotOfSchema:
            if len(encoder.fields) != 1 or not is_other_object(text, encoder.fields[0]):
                raise
        # A document's id of MongoDB is an object, as a text.
        return encoder.encode({encoder.fields[0]: text})
    if encoder.fields is not None and len(encoder.fields) != 1:
        raise NotOfSchema(f"is not a JSON object of {', '.join(encoder.fields)}"[:300])
    fault = NotOfSchema("is empty")
    for value in _scalars(text):
        try:
            return encoder.encode(value if encoder.fields is None else {encoder.fields[0]: value})
        except NotOfSchema as error:
            fault = error
    raise fault


def _scalars(text: str) -> Iterator[str | float | bool]:
    """Yield what a text may stand for: itself first."""
    yield text
    if INTEGER.fullmatch(text):
        yield int(text)
    elif _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        yield number
    elif text in BOOLEANS:
        yield BOOLEANS[text]


def _parse_json(text: str) -> Any:
    try:
        return json_text.parse(text.encode())
    except ValueError as error:
        raise BadRequest(f"the key {json_text.why_not_json(error)}", "key") from error
