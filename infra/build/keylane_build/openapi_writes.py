"""Schemas of what the produce function answers, and the headers of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane_build.openapi_terms import COUNT, FLAG, MAYBE_COUNT, MAYBE_TEXT, TEXT, an_object

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFLICT, TOO_MANY = "409", "429"
_RESULT = {
    "index": {**COUNT, "description": "of the record in the request, where it failed"},
    "field": {**MAYBE_TEXT, "description": "of the record, where one is at fault"},
    "code": {**TEXT, "description": "Kafka's name of the error"},
    "retriable": FLAG,
    "uncertain": {**FLAG, "description": "it may have been written all the same"},
    "path": {**TEXT, "description": "a JSON Pointer to the fault in the value, where a schema finds one"},
}
_ID = {"type": "string", "description": "of a queued record; its header keylane-id in Kafka"}
SCHEMAS: dict[str, Any] = {
    "Written": an_object(("partition", "offset", "position"), partition=COUNT, offset=COUNT, position=TEXT),
    "Accepted": an_object(("status", "id"), status={"enum": ["queued"]}, id=_ID),
    "Pushed": an_object(
        ("status", "errors", "positions"),
        status={"enum": ["ok", "err"]},
        errors={
            "type": "array",
            "description": "empty, or one for each record",
            "items": an_object(
                ("status", "error", "message"),
                status={"enum": ["ok", "queued", "error"]},
                error=FLAG,
                message=MAYBE_TEXT,
                **_RESULT,
            ),
        },
        positions={"type": "array", "items": MAYBE_TEXT},
        queued={"type": "array", "description": "ids of those in the log", "items": MAYBE_TEXT},
    ),
    "Offsets": an_object(
        ("offsets", "key_schema_id", "value_schema_id"),
        offsets={
            "type": "array",
            "items": an_object(
                ("partition", "offset", "error_code", "error"),
                partition=MAYBE_COUNT,
                offset=MAYBE_COUNT,
                error_code={"enum": [None, 1, 2], "description": "1: for good; 2: try again"},
                error=MAYBE_TEXT,
                status={"enum": ["queued"], "description": "it is in the write-ahead log"},
                id=_ID,
                **_RESULT,
            ),
        },
        key_schema_id={"type": "null"},
        value_schema_id={"type": "null"},
    ),
}
_COUNT = {"schema": {"type": "integer", "minimum": 0}}
_LIMITS = {
    "RateLimit-Limit": {"description": "what a minute lets through", **_COUNT},
    "RateLimit-Remaining": {"description": "what is left now", **_COUNT},
    "RateLimit-Reset": {"description": "seconds until all of it is there again", **_COUNT},
    "RateLimit-Policy": {
        "description": 'limit, window, what may come at once, unit: 600;w=60;burst=60;comment="records"',
        "schema": {"type": "string"},
    },
}
_RETRY_AFTER = {"Retry-After": {"description": "seconds", **_COUNT}}
_REPLAYED = {
    "Idempotency-Replayed": {
        "description": "the answer is that of an earlier request with this Idempotency-Key",
        "schema": {"const": "true"},
    }
}


def with_headers(responses: Mapping[str, Any], status: int, problem: Mapping[str, Any]) -> dict[str, Any]:
    """A write's responses with what their headers tell; `status`: of its answer, `problem`: that of all."""
    found = dict(responses)
    found[str(status)] = found[str(status)] | {"headers": _LIMITS | _REPLAYED}
    for each, headers in ((CONFLICT, _RETRY_AFTER), (TOO_MANY, _RETRY_AFTER | _LIMITS)):
        told = problem if "$ref" in found[each] else found[each]
        found[each] = {**told, "headers": headers}
    return found
