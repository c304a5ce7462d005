"""Requests for several records: their parameters, each bounded, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from keylane.api import common_parameters, preferences
from keylane.api.event import from_base64, headers_of, query_of
from keylane.errors import BadRequest

if TYPE_CHECKING:
    from keylane.api.event import Event
    from keylane.config.functions import QuerySettings
    from keylane.formats.projection import Fields


KEY_CHARACTERS = 90_000
"""A key of 64 KiB in base64."""


NAME = r"[a-zA-Z0-9._-]{1,249}"


COMMON = (common_parameters.PARTIAL, common_parameters.MAX_AGE_MS, common_parameters.FIELDS)


class Bounds(TypedDict):
    """Arguments that the reads of several records share."""

    partial: bool
    max_age_ms: int | None
    timeout_ms: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What reads of several records have in common."""

    partial: bool
    max_age_ms: int | None
    fields: Fields | None
    as_bytes: bool = False

    def bounds(self, settings: QuerySettings) -> Bounds:
        """The arguments of the use case."""
        return {
            "partial": self.partial,
            "max_age_ms": self.max_age_ms,
            "timeout_ms": settings.state_timeout_ms,
        }


def terms_of(event: Event) -> Terms:
    """Parse what all have in common."""
    query = query_of(event)
    as_bytes = preferences.prefers_bytes(headers_of(event).get("accept"))
    return Terms(
        common_parameters.PARTIAL.of(query),
        common_parameters.MAX_AGE_MS.of(query),
        common_parameters.FIELDS.of(query),
        as_bytes,
    )


def bytes_of(given: str, parameter: str, *, is_base64: bool) -> bytes:
    """A key's bytes. Raises BadRequest."""
    try:
        data = given.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{parameter} holds characters that are no Unicode text", parameter) from error
    return from_base64(data, parameter) if is_base64 else data
