"""Reads the parts of a request: API Gateway REST proxy events (v1)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from keylane.api.content_coding import inflate
from keylane.api.parameters import choice
from keylane.errors import BadRequest, NullKey
from keylane.model.records import is_topic_name

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_STANDARD = bytes.maketrans(b"-_+/", b"+/  ")

KEY_FORMAT = choice(
    "key_format", "how keys are written in the request: as text, or as base64", ("text", "base64")
)
Event = Mapping[str, Any]


class LowerCaseHeaders(dict[str, str]):
    """Headers by lower-case name, as `headers_of` returns them: they are read several times for a request."""


def query_of(event: Event) -> dict[str, str]:
    """Return the query parameters by name; of a repeated one the last value."""
    query: dict[str, str] = event.get("queryStringParameters") or {}
    return query


def headers_of(event: Event) -> dict[str, str]:
    """Return the headers by lower-case name; values of a repeated one as a list with commas."""
    several = event.get("multiValueHeaders")
    if several:
        return LowerCaseHeaders({name.lower(): ", ".join(values) for name, values in several.items()})
    headers: dict[str, str] = event.get("headers") or {}
    if isinstance(headers, LowerCaseHeaders):
        return headers
    return LowerCaseHeaders({name.lower(): value for name, value in headers.items()})


def with_headers_read(event: Event) -> Event:
    """Return the event with its headers as `headers_of` returns them, which is then quick."""
    headers = headers_of(event)
    if headers is event.get("headers"):
        return event
    return {**event, "headers": headers, "multiValueHeaders": None}


def topic_of(raw: str) -> str:
    """Return the name of a topic in a path. Raises BadRequest for a name that Kafka does not accept.

    Percent-encoding is refused: rules of IAM and of firewalls compare paths as they are sent, and no name
    needs it.
    """
    if "%" in raw:
        raise BadRequest(
            f"{raw[:250]!r} is percent-encoded: write a topic's name as it is, it needs no encoding", "topic"
        )
    return topic_name(raw, "topic")


def cluster_of(raw: str) -> str:
    """Return the id of a Kafka cluster in a path; which ids there are, Kafka says."""
    return unquote_to_bytes(raw).decode(errors="replace")


def topic_name(topic: str, parameter: str) -> str:
    """Return the name. Raises BadRequest for a name that Kafka does not accept."""
    if not is_topic_name(topic):
        raise BadRequest(
            f"{topic[:250]!r} can't be a topic's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'", parameter
        )
    return topic


def key_of(raw: str, query: Mapping[str, str]) -> bytes:
    """Return the key's bytes: percent-decoded (`+` stays a plus) and, with `key_format=base64`, decoded."""
    broken = _BAD_ESCAPE.search(raw) if "%" in raw else None
    if broken:
        raise BadRequest(
            f"the key's percent-encoding is broken at character {broken.start() + 1}: "
            "two hexadecimal digits follow a %, and a % itself is written %25",
            "key",
        )
    try:
        key = unquote_to_bytes(raw) if "%" in raw else raw.encode()
    except UnicodeEncodeError as error:
        raise BadRequest("the key contains characters that are not valid Unicode", "key") from error
    if query and KEY_FORMAT.of(query) == "base64":
        key = from_base64(key, "key")
    if not key:
        raise NullKey
    return key


def from_base64(given: bytes, parameter: str) -> bytes:
    """Decode base64 of the standard or the URL-safe alphabet, padded or not. Raises BadRequest."""
    digits = given.rstrip(b"=")
    padded = digits + b"=" * (-len(digits) % 4)
    if b"-" in given or b"_" in given:
        # A mix of both alphabets is not valid: only the characters that both share are left.
        padded = padded.translate(_STANDARD)
    try:
        data = binascii.a2b_base64(padded, strict_mode=True)
    except binascii.Error:
        data = None
    # Spare bits that aren't 0 would be a second rendering of the same key.
    last = len(padded) // 4 * 3 - 3
    if (
        data is not None
        and len(given) in {len(digits), len(padded)}
        and binascii.b2a_base64(data[last:], newline=False) == padded[-4:]
    ):
        return data
    raise BadRequest(
        f"{parameter} is not base64 (standard or URL-safe alphabet, padding optional)", parameter
    )


def body_of(event: Event) -> bytes:
    """Return the body's bytes, inflated where the client compressed it; a missing body is empty.

    Raises BadRequest, UnsupportedEncoding, TooLarge.
    """
    body: str | bytes = event.get("body") or ""
    try:
        if isinstance(body, bytes):
            data = body  # the standing server passes it as it came
        else:
            data = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except ValueError as error:
        raise BadRequest(
            "the body is marked as base64 in the event, but is not valid base64", "body"
        ) from error
    coding = headers_of(event).get("content-encoding")
    return inflate(data, coding) if coding else data


def request_id_of(event: Event) -> str:
    """Return API Gateway's id of the request: it is in its logs and in the client's response."""
    return str((event.get("requestContext") or {}).get("requestId") or "unknown")
