"""Headers of answers to writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFLICT, TOO_MANY = "409", "429"
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
