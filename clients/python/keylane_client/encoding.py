"""Keys, values and moments as requests carry them."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from keylane_client.answers import Position

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = str | bytes
"""A key: a string is written as UTF-8."""
Moment = datetime | int | str | Position
"""A time (a datetime, milliseconds since 1970, ISO 8601), or a position."""


def encode_key(key: Key) -> bytes:
    """Return the key's bytes. Raises ValueError for an empty one, TypeError for what is not a key."""
    if not isinstance(key, (str, bytes)):
        raise TypeError(f"a key is a string or bytes, not {type(key).__name__}")
    if not key:
        raise ValueError("the key is empty: records without a key cannot be read by key")
    return key.encode() if isinstance(key, str) else key


def segment(text: str) -> str:
    """Return text as one segment of a path."""
    return quote(text, safe="")


def key_segment(key: Key) -> tuple[str, dict[str, str]]:
    """Return the key as a segment of a path, and the query that belongs to it.

    HTTP clients and proxies resolve `.` and `..`, however they are encoded: base64 hides them.
    """
    data = encode_key(key)
    if data in (b".", b".."):
        return base64.urlsafe_b64encode(data).decode().rstrip("="), {"key_format": "base64"}
    return quote(data, safe=""), {}


def key_bounds(**bounds: Key | None) -> dict[str, str]:
    """Return bounds of a range as a query; all of them are base64 if one is not UTF-8."""
    given = {name: encode_key(key) for name, key in bounds.items() if key}
    try:
        return {name: data.decode() for name, data in given.items()}
    except UnicodeDecodeError:
        coded = {name: base64.urlsafe_b64encode(data).decode() for name, data in given.items()}
        return {**coded, "key_format": "base64"}


def encode_value(value: Any) -> tuple[bytes, str]:
    """Return the value's bytes and their content type: bytes and strings as they are, all else as JSON.

    Raises ValueError for None, which could be JSON's null or a deletion, and for what is not JSON.
    """
    if value is None:
        raise ValueError("None is not a value: delete the key, or write b'null' for JSON's null")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), "application/octet-stream"
    if isinstance(value, str):
        return value.encode(), "text/plain; charset=utf-8"
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(), "application/json"


def encode_moment(moment: Moment) -> str:
    """Return a time or a position as a query has it. A datetime without a zone is local time."""
    if isinstance(moment, datetime):
        return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(moment)


def encode_time_bounds(start: Moment | None, stop: Moment | None) -> dict[str, str]:
    """Return `from` and `to`."""
    given: Iterable[tuple[str, Moment | None]] = (("from", start), ("to", stop))
    return {name: encode_moment(moment) for name, moment in given if moment is not None}


def base64_text(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode()
