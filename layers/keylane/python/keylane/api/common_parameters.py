"""The parameters that several routes take, and how reads are parsed from them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from keylane.api import cursors
from keylane.api.event import from_base64, headers_of, query_of
from keylane.api.parameters import (
    FIELD_CHARACTERS,
    FIELDS_LIMIT,
    FIELDS_PATTERN,
    TIME_PATTERN,
    Parameter,
    header,
    integer,
    position,
    read_as_of,
    read_fields,
    switch,
    text,
)
from keylane.api.preferences import prefers_bytes
from keylane.errors import BadRequest
from keylane.query.store import ReadTerms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane.api.event import Event
    from keylane.config.functions import QuerySettings
    from keylane.formats.projection import Fields

KEY_CHARACTERS = 90_000
"""A key of 64 KiB in base64."""
TOPIC_PATTERN = r"[a-zA-Z0-9._-]{1,249}"

MIN_OFFSET = integer(
    "min_offset", "an offset of the key's partition that the state must have reached", 0, 10**18 - 1
)
MIN_POSITION = position("Keylane-Min-Position", "a position that the state must have reached", place="header")
ENVELOPE = switch("envelope", "answer with one JSON document of value and metadata")
PARTIAL = switch("partial", "answer from lanes that are still being built, too")
MAX_AGE_MS = integer("max_age_ms", "refuse a state that may be older, in milliseconds", 0, 10**12)
LIMIT = integer("limit", "the most records of a page", 1, 1000, 100)
CURSOR = text(
    "cursor",
    "`next` of the page before; the bounds must be the same",
    cursors.LONGEST_CHARACTERS,
    "[A-Za-z0-9_-]{22,}",
)
FIELDS = Parameter(
    "fields",
    "of values that are JSON objects these fields alone, as in a,b.c",
    {"type": "string", "maxLength": FIELDS_LIMIT * (FIELD_CHARACTERS + 1), "pattern": f"^{FIELDS_PATTERN}$"},
    read_fields,
)
AS_OF = Parameter(
    "as_of",
    "the record as of a time (ms since 1970 or ISO 8601) or of a position",
    {"type": "string", "pattern": f"^{TIME_PATTERN}$", "examples": ["2026-11-21T10:00:00Z", "3:1042"]},
    read_as_of,
)
IF_NONE_MATCH = header(
    "If-None-Match", "ETags of records that the client has; with Prefer: wait the answer waits for a change"
)
READ_TERMS = (PARTIAL, MAX_AGE_MS, FIELDS)
"""What all reads of several records take."""


class ValueOptions(NamedTuple):
    """How a client wants values: these fields of JSON objects alone; or bytes, as they are in Kafka."""

    fields: Fields | None = None
    as_bytes: bool = False


def parse_terms(query: Mapping[str, str], settings: QuerySettings) -> ReadTerms:
    """Parse what the answer must meet. Raises BadRequest."""
    partial, max_age_ms = PARTIAL.of(query), MAX_AGE_MS.of(query)
    return ReadTerms(max_age_ms, partial, settings.state_timeout_ms)


def parse_value_options(event: Event) -> ValueOptions:
    """Parse `fields` and `Accept`. Raises BadRequest."""
    return ValueOptions(FIELDS.of(query_of(event)), prefers_bytes(headers_of(event).get("accept")))


def parse_cursor(query: Mapping[str, str], topic: str, bounds: bytes) -> bytes | None:
    """Return where the page begins; None at the first one. `bounds`: `cursors.digest`. Raises BadRequest."""
    cursor = CURSOR.of(query)
    return None if cursor is None else cursors.decode(cursor, topic, bounds)


def parse_key_text(given: str, parameter: str, *, is_base64: bool) -> bytes:
    """Return the bytes of a key, or of a part of one. Raises BadRequest."""
    try:
        data = given.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{parameter} contains characters that are not valid Unicode", parameter) from error
    return from_base64(data, parameter) if is_base64 else data


def parse_key_texts(given: Sequence[str], parameter: str, *, is_base64: bool) -> tuple[bytes, ...]:
    """Return the bytes of many keys. Raises BadRequest."""
    if not is_base64:
        with suppress(UnicodeEncodeError):
            return tuple([key.encode() for key in given])
    return tuple([parse_key_text(key, parameter, is_base64=is_base64) for key in given])
