"""Projection: some fields of a JSON object, with each number's digits unchanged."""

import json
from typing import Any

from keylane.formats.json_text import Digits, parse_verbatim

Fields = tuple[tuple[str, ...], ...]
"""Paths of fields, as in (("a",), ("b", "c"))."""


Wanted = dict[str, "Wanted | None"]
"""Paths by their names, level by level; None: all that is there."""
_NOTHING: Any = object()


def project(value: bytes, fields: Fields) -> str | None:
    """JSON text of the object with these fields alone, in their order; None if the value is not an object.

    Fields that the object does not have are left out. Of an array a path picks from each object in it, `{}`
    from one without the field; what else is in the array is left out.
    """
    try:
        found = parse_verbatim(value.decode())
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    picked = _pick(found, _by_names(fields))
    return "{}" if picked is _NOTHING else _text(picked)


def _by_names(fields: Fields) -> Wanted:
    wanted: Wanted = {}
    for path in fields:
        level = wanted
        for name in path[:-1]:
            below = level.setdefault(name, {})
            if below is None:
                break
            level = below
        else:
            level[path[-1]] = None
    return wanted


def _pick(found: Any, wanted: Wanted) -> Any:
    """Return what is wanted of an object or array, _NOTHING where there is none of it.

    One call for each level: MAX_NESTING of them are within Python's limit.
    """
    if isinstance(found, list):
        elements = []
        for each in found:
            if isinstance(each, dict | list):
                picked = _pick(each, wanted)
                elements.append({} if picked is _NOTHING else picked)
        return _NOTHING if found and not elements else elements
    own = {}
    for name, below in wanted.items():
        if name not in found:
            continue
        value = found[name]
        if below is not None:
            value = _pick(value, below) if isinstance(value, dict | list) else _NOTHING
        if value is not _NOTHING:
            own[name] = value
    return own or _NOTHING


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
