"""Projection: some fields of a JSON object, with each number's digits unchanged."""

from __future__ import annotations

import json
from typing import Any

from keylane.formats.json_text import no_constant

Fields = tuple[tuple[str, ...], ...]
"""Paths of fields, as in (("a",), ("b", "c"))."""


class _Number(str):
    """A number's digits."""

    __slots__ = ()


_decoder = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=no_constant)


def project(value: bytes, fields: Fields) -> str | None:
    """JSON text of the object with these fields alone, in their order; None if the value is not an object.

    Fields that the object does not have are left out. A path leads through objects, not into arrays.
    """
    try:
        found = _decoder.decode(value.decode())
        return _text(_pick(found, fields)) if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        return None


def _pick(found: dict[str, Any], fields: Fields) -> dict[str, Any]:
    picked: dict[str, Any] = {}
    for path in fields:
        source: Any = found
        for name in path:
            if not isinstance(source, dict) or name not in source:
                break
            source = source[name]
        else:
            _put(picked, path, source)
    return picked


def _put(picked: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        picked = picked.setdefault(name, {})
    picked[path[-1]] = value


def _text(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value)
