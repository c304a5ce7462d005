"""What commands print: for people a line each, with --json a document each.

Whoever may write chooses keys, values and the texts of errors, and a terminal obeys what it prints: an escape
sequence changes its title or its past lines, CR LF looks like the next line, U+202E turns a line around. So
what is not printable is printed as its escape.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import click

from keylane_client import Position
from keylane_client.json_text import render_exactly

LINES = "\n\t"
"""What is not printable, and stays where a text has several lines."""
_NOT_SHOWN = frozenset({"raw", "document"})


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(render_json(to_json(value)))


def render_json(value: Any) -> str:
    """Return JSON in which numbers have their digits, and what is not printable is escaped."""
    return render_exactly(value, _quoted)


def _quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(map(_escaped_in_json, text))


def _escaped_in_json(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def printable(text: str, kept: str = "") -> str:
    """Return a text with escapes, as Python writes them, for what is not printable; of `kept` as it is."""
    if text.isprintable():
        return text
    return "".join(each if each in kept or each.isprintable() else repr(each)[1:-1] for each in text)


def printable_bytes(data: bytes) -> str:
    """Return bytes as lines of text for a terminal; what is not UTF-8 is escaped too."""
    return printable(data.decode(errors="backslashreplace"), LINES)


def without_login(url: str) -> str:
    """Return a URL as it is shown: credentials that it has are left out."""
    head, found, tail = url.partition("//")
    host, slash, path = tail.partition("/")
    return f"{head}{found}{host.rpartition('@')[2]}{slash}{path}"


def to_json(value: Any) -> Any:
    """Return an answer as JSON has it: positions as strings, ages in ms, bytes as base64."""
    if isinstance(value, Position):
        return str(value)
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if is_dataclass(value) and not isinstance(value, type):
        shown = (each.name for each in fields(value) if each.name not in _NOT_SHOWN)
        value = {_name(name, getattr(value, name)): getattr(value, name) for name in shown}
    # Loops, as in `render_exactly`.
    if isinstance(value, Mapping):
        document: dict[str, Any] = {}
        for name, each in value.items():
            document[str(name)] = to_json(each)
        return document
    if not isinstance(value, (list, tuple)):
        return value
    items: list[Any] = []
    for each in value:
        items.append(to_json(each))  # noqa: PERF401
    return items


def text_of(value: Any) -> str:
    """Return a key, a value or a position as people read it, in one line."""
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    return printable(str(value)) if isinstance(value, (str, Position)) else render_json(value)


def line_of(*cells: Any) -> str:
    """Return cells as one line, with tabs between them."""
    return "\t".join(map(text_of, cells))


def _name(field: str, value: Any) -> str:
    return "age_ms" if field == "age" and isinstance(value, timedelta) else field
