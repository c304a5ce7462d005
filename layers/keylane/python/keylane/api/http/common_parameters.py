"""The parameters that several routes take, and how reads are parsed from them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from keylane.api.http import cursors
from keylane.api.http.parameters import (
    FIELD_CHARACTERS,
    FIELDS_LIMIT,
    FIELDS_PATTERN,
    HEADER,
    TIME_PATTERN,
    Parameter,
    choice,
    header,
    integer,
    position,
    read_as_of,
    read_fields,
    switch,
    text,
)
from keylane.api.http.preferences import prefers_bytes
from keylane.api.http.request import Request, from_base64, key_of
from keylane.config.functions import QuerySettings
from keylane.errors import BadRequest, NullKey
from keylane.formats.projection import Fields
from keylane.query.store import ReadTerms

KEY_CHARACTERS = 90_000
"""A key of 64 KiB in base64."""
TOPIC_PATTERN = r"[a-zA-Z0-9._-]{1,249}"

KEY_FORMAT = choice(
    "key_format", "how keys are written in the request: as text, or as base64", ("text", "base64")
)
MIN_OFFSET = integer(
    "min_offset", "an offset of the key's partition that the state must have reached", 0, 10**18 - 1
)
MIN_POSITION = position("Keylane-Min-Position", "a position that the state must have reached", place=HEADER)
ENVELOPE = switch("envelope", "answer with one JSON document of value and metadata")
PARTIAL = switch("partial", "answer from lanes that are still being built, too")
MAX_AGE_MS = integer("max_age_ms", "refuse a state that may be older, in milliseconds", 0, 10**12)
PAGE_RECORDS, MOST_PAGE_RECORDS = 100, 1000
"""How many records a page has, unless the request says, and at most."""
LIMIT = integer("limit", "the most records of a page", 1, MOST_PAGE_RECORDS, PAGE_RECORDS)
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
EVENT = switch("event", "of a topic with an envelope the change event, instead of its row")
RAW = switch("raw", "write what readers of the topic can't read, too")
TERMS_OF_LISTS = (PARTIAL, MAX_AGE_MS, FIELDS, EVENT)
"""What all reads of several records take."""


class ValueOptions(NamedTuple):
    """How a client wants values: these fields of JSON objects alone; or bytes, as they are in Kafka.

    `events`: change events instead of their rows. `raw_keys`: keys as they are in Kafka, not as JSON.
    """

    fields: Fields | None = None
    as_bytes: bool = False
    events: bool = False
    raw_keys: bool = False


def parse_terms(request: Request, settings: QuerySettings) -> ReadTerms:
    """Parse what the answer must meet. Raises BadRequest."""
    partial, max_age_ms = PARTIAL.of(request), MAX_AGE_MS.of(request)
    return ReadTerms(settings.state_timeout_ms, max_age_ms, partial)


def parse_value_options(request: Request) -> ValueOptions:
    """Parse `fields`, `Accept`, `event` and `key_format`. Raises BadRequest."""
    as_bytes = prefers_bytes(request.headers.get("accept"))
    return ValueOptions(FIELDS.of(request), as_bytes, EVENT.of(request), has_base64_keys(request))


def parse_key(request: Request, raw: str) -> bytes:
    """Return the key in the request's path. Raises BadRequest, NullKey."""
    key = key_of(raw)
    if request.query and has_base64_keys(request):
        key = from_base64(key, "key")
    if not key:
        raise NullKey
    return key


def has_base64_keys(request: Request) -> bool:
    """Return whether keys are in base64: `key_format`. Raises BadRequest."""
    return bool(KEY_FORMAT.of(request) == "base64")


def bounds_of(request: Request, *bounds: object) -> bytes:
    """Return what a page's cursor holds of its request: these bounds, and the scope of its caller."""
    return cursors.digest(*bounds) if request.scope is None else cursors.digest(request.scope, *bounds)


def parse_cursor(
    request: Request, topic: str, bounds: bytes, earlier: cursors.Earlier | None = None
) -> bytes | None:
    """Return where the page begins; None at the first one. As `cursors.decode`. Raises BadRequest."""
    cursor = CURSOR.of(request)
    return None if cursor is None else cursors.decode(cursor, topic, bounds, earlier)


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
