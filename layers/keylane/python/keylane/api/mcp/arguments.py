"""The arguments of a tool: what its schema says of each is what is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keylane.errors import BadRequest

LONGEST_TEXT = 90_000
"""Characters: of a key, or of a cursor."""
LONGEST_LIST = 50
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
}


def check_arguments(given: Any, properties: Mapping[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    """Return the arguments that are not null. Raises BadRequest, which says what the tool takes."""
    takes = f"the tool takes {', '.join(properties)}"
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise BadRequest(f"arguments is not an object: {takes}")
    arguments = {name: value for name, value in given.items() if value is not None}
    for name in arguments:
        if name not in properties:
            raise BadRequest(f"{name[:50]!r} is no argument: {takes}", name[:50])
    for name in required:
        if name not in arguments:
            raise BadRequest(f"{name} is missing: {takes}", name)
    for name, value in arguments.items():
        _check(name, value, properties[name])
    return arguments


def _check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    kind = schema.get("type")
    if kind is not None and type(value) not in _TYPES[kind]:
        raise BadRequest(f"{name} is not of the type {kind}", name)
    if (choices := schema.get("enum")) and value not in choices:
        raise BadRequest(f"{name} is none of {', '.join(choices)}", name)
    if kind == "integer" and not schema["minimum"] <= value <= schema["maximum"]:
        raise BadRequest(f"{name} is not from {schema['minimum']} to {schema['maximum']}", name)
    if kind == "string":
        check_text(name, value)


def check_text(name: str, value: str) -> str:
    """Return a text. Raises BadRequest for one that is too long, or that UTF-8 can't encode."""
    if len(value) > LONGEST_TEXT:
        raise BadRequest(f"{name} has {len(value)} characters, and {LONGEST_TEXT} at most are accepted", name)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{name} has characters that are not valid Unicode", name) from error
    return value
