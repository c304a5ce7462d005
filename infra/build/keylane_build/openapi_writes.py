"""Schemas of the produce function's responses, and their headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane_build.openapi_terms import COUNT, FLAG, MAYBE_COUNT, MAYBE_TEXT, TEXT, an_object

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFLICT, TOO_MANY = "409", "429"
_RESULT = {
    "index": {**COUNT, "description": "index of a failed record in the request"},
    "field": {**MAYBE_TEXT, "description": "the field of the record that caused the error"},
    "code": {**TEXT, "description": "Kafka's name for the error"},
    "retriable": FLAG,
    "uncertain": {**FLAG, "description": "the record may have been written in spite of the error"},
    "path": {**TEXT, "description": "JSON Pointer to the part of the value that its schema rejects"},
}
_ID = {"type": "string", "description": "id of a queued record, in Kafka its header keylane-id"}
SCHEMAS: dict[str, Any] = {
    "Written": an_object(("partition", "offset", "position"), partition=COUNT, offset=COUNT, position=TEXT),
    "Accepted": an_object(("status", "id"), status={"enum": ["queued"]}, id=_ID),
    "Pushed": an_object(
        ("status", "errors", "positions"),
        status={"enum": ["ok", "err"]},
        errors={
            "type": "array",
            "description": "empty, or one entry per record",
            "items": an_object(
                ("status", "error", "message"),
                status={"enum": ["ok", "queued", "error"]},
                error=FLAG,
                message=MAYBE_TEXT,
                **_RESULT,
            ),
        },
        positions={"type": "array", "items": MAYBE_TEXT},
        queued={
            "type": "array",
            "description": "ids of the records in the write-ahead log, null for the others",
            "items": MAYBE_TEXT,
        },
    ),
    "Offsets": an_object(
        ("offsets", "key_schema_id", "value_schema_id"),
        offsets={
            "type": "array",
            "items": an_object(
                ("partition", "offset", "error_code", "error"),
                partition=MAYBE_COUNT,
                offset=MAYBE_COUNT,
                error_code={
                    "enum": [None, 40301, 50002, 50003],
                    "description": "40301: access denied; 50002: permanent; 50003: try again",
                },
                error=MAYBE_TEXT,
                status={"enum": ["queued"], "description": "the record is in the write-ahead log"},
                id=_ID,
                **_RESULT,
            ),
        },
        key_schema_id=MAYBE_COUNT,
        value_schema_id=MAYBE_COUNT,
    ),
}
_COUNT = {"schema": {"type": "integer", "minimum": 0}}
_LIMITS = {
    "RateLimit-Limit": {"description": "requests, records or bytes allowed per minute", **_COUNT},
    "RateLimit-Remaining": {"description": "how much of it is left", **_COUNT},
    "RateLimit-Reset": {"description": "seconds until all of it is available again", **_COUNT},
    "RateLimit-Policy": {
        "description": 'limit, window in seconds, burst and unit: 600;w=60;burst=60;comment="records"',
        "schema": {"type": "string"},
    },
}
_RETRY_AFTER = {"Retry-After": {"description": "seconds to wait before a retry", **_COUNT}}
_REPLAYED = {
    "Idempotency-Replayed": {
        "description": "the saved response of an earlier request with this Idempotency-Key",
        "schema": {"const": "true"},
    }
}


def with_headers(responses: Mapping[str, Any], status: int, problem: Mapping[str, Any]) -> dict[str, Any]:
    """Return a write's responses with their headers; `status`: of success, `problem`: the common response."""
    found = dict(responses)
    found[str(status)] = found[str(status)] | {"headers": _LIMITS | _REPLAYED}
    for each, headers in ((CONFLICT, _RETRY_AFTER), (TOO_MANY, _RETRY_AFTER | _LIMITS)):
        described = problem if "$ref" in found[each] else found[each]
        found[each] = {**described, "headers": headers}
    return found
