"""The parameters that several routes take."""

from __future__ import annotations

from keylane.api.parameters import (
    FIELD_CHARACTERS,
    FIELDS_LIMIT,
    Parameter,
    position,
    read_as_of,
    read_fields,
    switch,
    text,
    whole,
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


IF_NONE_MATCH = text(
    "If-None-Match",
    "ETags that the client has; with Prefer: wait it is told of a change",
    4_000,
    place="header",
)
