"""Requests: API Gateway REST proxy events (v1) as the arguments of the use cases."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from keylane.errors import BadRequest, NullKey
from keylane.model import Position, is_topic_name

if TYPE_CHECKING:
    from keylane.settings import QuerySettings

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_WAIT = re.compile(r"\d{1,9}(\.\d{1,9})?")
_OFFSET_DIGITS = 18

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A read of one key, as its client asked for it."""

    topic: str
    key: bytes
    min_position: Position | int | None
    wait_ms: float
    envelope: bool
    partial: bool
    if_none_match: str | None


def read_request(event: Event, topic: str, key: str, settings: QuerySettings) -> ReadRequest:
    """Parse a GET or HEAD of a key. Raises BadRequest, which names the parameter at fault.

    `topic` and `key` are the raw parts of the path, still percent-encoded.
    Query: `key_format`, `min_offset`, `envelope`, `partial`. Headers: `Keylane-Min-Position`,
    `Prefer: wait=SECONDS`, `If-None-Match`.
    """
    query = event.get("queryStringParameters") or {}
    headers = headers_of(event)
    return ReadRequest(
        topic_of(topic),
        key_of(key, query),
        _min_position(query, headers),
        _wait_ms(headers.get("prefer"), settings),
        _switch(query, "envelope"),
        _switch(query, "partial"),
        headers.get("if-none-match"),
    )


def write_request(event: Event, topic: str, key: str) -> tuple[str, bytes]:
    """Parse topic and key of a PUT or DELETE, as `read_request` does."""
    return topic_of(topic), key_of(key, event.get("queryStringParameters") or {})


def headers_of(event: Event) -> dict[str, str]:
    """Headers by lower-case name; of one that came in several lines the list."""
    several = event.get("multiValueHeaders")
    if several:
        return {name.lower(): ", ".join(values) for name, values in several.items()}
    return {name.lower(): value for name, value in (event.get("headers") or {}).items()}


def topic_of(raw: str) -> str:
    """Give the topic's name. Raises BadRequest for what Kafka would not take as one."""
    topic = unquote_to_bytes(raw).decode(errors="replace")
    if not is_topic_name(topic):
        raise BadRequest(
            f"{topic[:250]!r} can't be a topic's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'", "topic"
        )
    return topic


def key_of(raw: str, query: Mapping[str, str]) -> bytes:
    """Give the key's bytes: percent-decoded (`+` stays a plus), or with `key_format=base64` decoded again."""
    broken = _BAD_ESCAPE.search(raw)
    if broken:
        raise BadRequest(
            f"the key's percent-encoding is broken at character {broken.start() + 1}: "
            "two hexadecimal digits follow a %, and a % itself is written %25",
            "key",
        )
    try:
        key = unquote_to_bytes(raw)
    except UnicodeEncodeError as error:
        raise BadRequest("the key holds characters that are no Unicode text", "key") from error
    key_format = query.get("key_format", "text")
    if key_format == "base64":
        key = _from_base64(key)
    elif key_format != "text":
        raise BadRequest(f"key_format is {key_format[:50]!r}, neither text nor base64", "key_format")
    if not key:
        raise NullKey
    return key


def _from_base64(text: bytes) -> bytes:
    """Decode the standard or the URL-safe alphabet, padded or not, and nothing that merely looks like it."""
    digits = text.rstrip(b"=")
    padded = digits + b"=" * (-len(digits) % 4)
    for altchars in (b"+/", b"-_"):
        try:
            data = base64.b64decode(padded, altchars, validate=True)
        except binascii.Error:
            continue
        # Spare bits that aren't 0 would be a second spelling of the same key.
        if text in {digits, padded} and base64.b64encode(data, altchars) == padded:
            return data
    raise BadRequest("the key is not base64 (standard or URL-safe alphabet, padding optional)", "key")


def _min_position(query: Mapping[str, str], headers: Mapping[str, str]) -> Position | int | None:
    offset, position = query.get("min_offset"), headers.get("keylane-min-position")
    if offset is not None and position is not None:
        raise BadRequest("give min_offset or Keylane-Min-Position, not both", "min_offset")
    if offset is not None:
        if not (offset.isascii() and offset.isdigit() and len(offset) <= _OFFSET_DIGITS):
            raise BadRequest(f"min_offset is {offset[:50]!r}, not a whole number of 0 or more", "min_offset")
        return int(offset)
    if position is not None:
        try:
            return Position.parse(position.strip())
        except ValueError as error:
            raise BadRequest(str(error), "Keylane-Min-Position") from error
    return None


def _wait_ms(prefer: str | None, settings: QuerySettings) -> float:
    """Give the bound on waiting: `wait` of RFC 7240, up to the settings' maximum; others aren't ours."""
    for preference in (prefer or "").split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            seconds = value.strip().strip('"')
            if not _WAIT.fullmatch(seconds):
                raise BadRequest(f"wait is {seconds[:50]!r}, not a number of seconds", "Prefer")
            return min(float(seconds) * 1000, settings.wait_max_ms)
    return settings.wait_default_ms


def _switch(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "false")
    if value not in {"true", "false"}:
        raise BadRequest(f"{name} is {value[:50]!r}, neither true nor false", name)
    return value == "true"


def body_of(event: Event) -> bytes:
    """Give the body's bytes; none at all is an empty one."""
    body: str = event.get("body") or ""
    try:
        return base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except ValueError as error:
        raise BadRequest("the body can't be decoded", "body") from error


def request_id_of(event: Event) -> str:
    """Give the id that API Gateway gave the request: it is in its logs and in the client's answer."""
    return str((event.get("requestContext") or {}).get("requestId") or "unknown")
