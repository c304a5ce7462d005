"""Projection: some fields of a JSON object, with each number's digits unchanged."""

import json
from collections.abc import Iterator
from typing import Any

from keylane.formats.json_text import no_constant

Fields = tuple[tuple[str, ...], ...]
"""Paths of fields, as in (("a",), ("b", "c"))."""


class _Verbatim(str):
    """JSON that is written as it is, such as a number's digits."""

    __slots__ = ()


_END = object()
_decoder = json.JSONDecoder(parse_float=_Verbatim, parse_int=_Verbatim, parse_constant=no_constant)


def project(value: bytes, fields: Fields) -> str | None:
    """JSON text of the object with these fields alone, in their order; None if the value is not an object.

    Fields that the object does not have are left out. A path leads through objects, not into arrays.
    """
    try:
        found = _decoder.decode(value.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    picked = _pick(found, fields)
    try:
        return _text(picked)
    except RecursionError:
        return _deep_text(picked)


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


def _deep_text(value: Any) -> str:
    """As `_text`, for values of any depth: a stack of iterators replaces the calls."""
    written: list[str] = []
    left = [iter((value,))]
    while left:
        item = next(left[-1], _END)
        if item is _END:
            left.pop()
        elif isinstance(item, dict | list) and item:
            left.append(_parts(item))
        else:
            written.append(_text(item))
    return "".join(written)


def _parts(item: dict[str, Any] | list[Any]) -> Iterator[Any]:
    """Return what an object or array is written as: its values, and the JSON around them."""
    if isinstance(item, dict):
        for number, (name, each) in enumerate(item.items()):
            yield _Verbatim(f"{', ' if number else '{'}{json.dumps(name)}: ")
            yield each
        yield _Verbatim("}")
    else:
        for number, each in enumerate(item):
            yield _Verbatim(", " if number else "[")
            yield each
        yield _Verbatim("]")


def _text(value: Any) -> str:
    if isinstance(value, _Verbatim):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value)
