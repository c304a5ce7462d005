"""Requests: API Gateway REST proxy events (v1) as the arguments of the use cases."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

from keylane.errors import BadRequest, NullKey
from keylane.model import is_topic_name
from keylane.parameters import (
    FIELD_CHARACTERS,
    FIELDS_LIMIT,
    Parameter,
    choice,
    position,
    read_as_of,
    read_fields,
    switch,
    text,
    whole,
)

if TYPE_CHECKING:
    from keylane.fields import Fields
    from keylane.model import Position
    from keylane.settings import QuerySettings

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BYTES = "application/octet-stream"
_Q_VALUE = re.compile(r"[01](\.\d{0,3})?")
_WAIT = re.compile(r"\d{1,9}(\.\d{1,9})?")

_CONDITIONS = {"if-match": "If-Match", "if-none-match": "If-None-Match"}

KEY_FORMAT = choice(
    "key_format", "how keys are written in the request: as text, or as base64", ("text", "base64")
)
MIN_OFFSET = whole("min_offset", "an offset of the key's partition that the state must have", 0, 10**18 - 1)
ENVELOPE = switch("envelope", "answer with one JSON document of value and metadata")
PARTIAL = switch("partial", "answer from lanes that are still being built, too")
MAX_AGE_MS = whole("max_age_ms", "refuse a state that may be older, in milliseconds", 0, 10**12)
FIELDS = Parameter(
    "fields",
    "of values that are JSON objects these fields alone, as in a,b.c",
    {"type": "string", "maxLength": FIELDS_LIMIT * (FIELD_CHARACTERS + 1)},
    read_fields,
)
AS_OF = Parameter(
    "as_of",
    "the record that was in force then: a time (ms since 1970 or ISO 8601) or a position",
    {"type": "string", "examples": ["2026-11-21T10:00:00Z", "3:1042"]},
    read_as_of,
)
MIN_POSITION = position("Keylane-Min-Position", "a position that the state must have", place="header")
PREFER = text("Prefer", "wait=SECONDS: how long may be waited", 1000, place="header")
PREFER_ASYNC = text(
    "Prefer", "respond-async: answer once the records are safe, in the write-ahead log", 1000, place="header"
)
ASYNC_APPLIED = {"Preference-Applied": "respond-async"}
IF_NONE_MATCH = text(
    "If-None-Match",
    "ETags that the client has; with Prefer: wait it is told of a change",
    4_000,
    place="header",
)
_CHOICES = (ENVELOPE, PARTIAL, MAX_AGE_MS, FIELDS, AS_OF)
_NO_CHOICE = [each.default for each in _CHOICES]
READ = (
    *(KEY_FORMAT, MIN_OFFSET, ENVELOPE, PARTIAL, MAX_AGE_MS, FIELDS, AS_OF),
    *(MIN_POSITION, PREFER, IF_NONE_MATCH),
)
"""What a read of one key takes."""

Event = Mapping[str, Any]


class ReadRequest(NamedTuple):
    """A read of one key, as its client asked for it."""

    topic: str
    key: bytes
    min_position: Position | int | None
    wait_ms: float
    envelope: bool
    partial: bool
    if_none_match: str | None
    is_wait_asked: bool = False
    max_age_ms: int | None = None
    fields: Fields | None = None
    as_of: int | Position | None = None
    as_bytes: bool = False

    @property
    def preference_applied(self) -> str | None:
        """What `Preference-Applied` tells, None where there was nothing to wait for."""
        if not self.is_wait_asked:
            return None
        asked = (self.min_position, self.max_age_ms, self.if_none_match)
        waits = self.as_of is None and any(each is not None for each in asked)
        return f"wait={self.wait_ms / 1000:g}" if waits else None


def read_request(event: Event, topic: str, key: str, settings: QuerySettings) -> ReadRequest:
    """Parse a GET or HEAD of a key. Raises BadRequest, which names the parameter at fault.

    `topic` and `key` are the raw parts of the path, still percent-encoded.
    Query: `key_format`, `min_offset`, `envelope`, `partial`, `max_age_ms`, `fields`,
    `as_of`. Headers: `Keylane-Min-Position`, `Prefer: wait=SECONDS`, `If-None-Match`, `Accept`.
    """
    query = query_of(event)
    headers = headers_of(event)
    wait_ms = _wait_ms(PREFER.of(headers))
    min_position = _min_position(query, headers)
    # Most reads have no query: nothing is looked up for them.
    envelope, partial, max_age_ms, fields, as_of = (
        [each.of(query) for each in _CHOICES] if query else _NO_CHOICE
    )
    if as_of is not None and min_position is not None:
        raise BadRequest("as_of asks for the past: no position is waited for", "as_of")
    return ReadRequest(
        topic_of(topic),
        key_of(key, query),
        min_position,
        settings.wait_default_ms if wait_ms is None else min(wait_ms, settings.wait_max_ms),
        envelope,
        partial,
        IF_NONE_MATCH.of(headers),
        wait_ms is not None,
        max_age_ms,
        fields,
        as_of,
        as_bytes=prefers_bytes(headers.get("accept")),
    )


def write_request(event: Event, topic: str, key: str) -> tuple[str, bytes]:
    """Parse topic and key of a PUT or DELETE, as `read_request` does.

    Raises BadRequest for a condition too: whether a key is there is in the state, which lags behind what is
    written, so no write can promise to depend on it.
    """
    for name in headers_of(event).keys() & _CONDITIONS.keys():
        raise BadRequest(
            f"writes take no {_CONDITIONS[name]}: a topic with insert_once keeps each key's first record; "
            "read the key from the position of this write on to see whose it is",
            _CONDITIONS[name],
        )
    return topic_of(topic), key_of(key, query_of(event))


def query_of(event: Event) -> dict[str, str]:
    """Query parameters; of one that came several times the last."""
    query: dict[str, str] = event.get("queryStringParameters") or {}
    return query


def headers_of(event: Event) -> dict[str, str]:
    """Headers by lower-case name; of one that came in several lines the list."""
    several = event.get("multiValueHeaders")
    if several:
        return {name.lower(): ", ".join(values) for name, values in several.items()}
    return {name.lower(): value for name, value in (event.get("headers") or {}).items()}


def topic_of(raw: str) -> str:
    """Give the topic's name. Raises BadRequest for what Kafka would not take as one."""
    return topic_name(unquote_to_bytes(raw).decode(errors="replace"), "topic")


def topic_name(topic: str, parameter: str) -> str:
    """Give the name back. Raises BadRequest for what Kafka would not take as one."""
    if not is_topic_name(topic):
        raise BadRequest(
            f"{topic[:250]!r} can't be a topic's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'", parameter
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
    if query and KEY_FORMAT.of(query) == "base64":
        key = from_base64(key, "key")
    if not key:
        raise NullKey
    return key


_STANDARD = bytes.maketrans(b"-_+/", b"+/  ")


def from_base64(given: bytes, parameter: str) -> bytes:
    """Decode the standard or the URL-safe alphabet, padded or not, and nothing that merely looks like it."""
    digits = given.rstrip(b"=")
    padded = digits + b"=" * (-len(digits) % 4)
    if b"-" in given or b"_" in given:
        # Both alphabets at once are none: what both have in common is left.
        padded = padded.translate(_STANDARD)
    try:
        data = binascii.a2b_base64(padded, strict_mode=True)
    except binascii.Error:
        data = None
    # Spare bits that aren't 0 would be a second spelling of the same key.
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


def _min_position(query: Mapping[str, str], headers: Mapping[str, str]) -> Position | int | None:
    offset: int | None = MIN_OFFSET.of(query)
    wanted: Position | None = MIN_POSITION.of(headers)
    if offset is not None and wanted is not None:
        raise BadRequest("give min_offset or Keylane-Min-Position, not both", "min_offset")
    return wanted if offset is None else offset


def _wait_ms(prefer: str | None) -> float | None:
    """Give the bound on waiting, `wait` of RFC 7240, None without one; other preferences aren't ours."""
    for name, seconds in _preferences(prefer):
        if name == "wait":
            if not _WAIT.fullmatch(seconds):
                raise BadRequest(f"wait is {seconds[:50]!r}, not a number of seconds", "Prefer")
            return float(seconds) * 1000
    return None


def _preferences(prefer: str | None) -> list[tuple[str, str]]:
    """Names in lower case, and values, of a `Prefer` header."""
    pairs = [preference.partition(";")[0].partition("=") for preference in (prefer or "").split(",")]
    return [(name.strip().lower(), value.strip().strip('"')) for name, _, value in pairs]


def wants_async(event: Event) -> bool:
    """Whether the client need not wait for the outcome: `Prefer: respond-async` of RFC 7240."""
    prefer = PREFER.of(headers_of(event))
    return prefer is not None and any(name == "respond-async" for name, _ in _preferences(prefer))


def prefers_bytes(accept: str | None) -> bool:
    """Whether the client would rather have bytes than JSON: it names them, and with the higher weight."""
    if not accept or _BYTES not in accept.lower():
        return False
    weights: dict[str, float] = {}
    for media_range in accept.split(","):
        name, *parameters = media_range.split(";")
        weights[name.strip().lower()] = min([1.0, *map(_weight, parameters)])
    return weights.get(_BYTES, 0) > weights.get("application/json", 0)


def _weight(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    # What is no weight is none of ours: RFC 9110 lets a server take Accept as a hint.
    return float(value) if name.strip().lower() == "q" and _Q_VALUE.fullmatch(value.strip()) else 1.0


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
