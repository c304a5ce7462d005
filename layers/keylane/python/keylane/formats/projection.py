"""Projection: some fields of a JSON object, with each number's digits unchanged."""

import json
from typing import Any

from keylane.formats.json_text import Digits, parse_verbatim

Fields = tuple[tuple[str, ...], ...]
"""Paths of fields, as in (("a",), ("b", "c"))."""


def project(value: bytes, fields: Fields) -> str | None:
    """JSON text of the object with these fields alone, in their order; None if the value is not an object.

    Fields that the object does not have are left out. A path leads through objects, not into arrays.
    """
    try:
        found = parse_verbatim(value.decode())
    except ValueError:
        return None
    return _text(_pick(found, fields)) if isinstance(found, dict) else None


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
    """Return the JSON of a value. One call for each level: MAX_NESTING of them are within Python's limit."""
    if isinstance(value, Digits):
        return str(value)
    parts: list[str] = []
    if isinstance(value, dict):
        for name, each in value.items():
            parts.append(f"{json.dumps(name)}: {_text(each)}")
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        for each in value:
            parts.append(_text(each))  # noqa: PERF401
        return f"[{', '.join(parts)}]"
    return json.dumps(value)
