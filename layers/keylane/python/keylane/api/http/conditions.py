"""Conditions on the record that a read finds (RFC 9110, 13): `If-Match` and those on its time.

`If-None-Match` is `read_key.KnownTags`, since a read can wait for its outcome.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

from keylane.api.http.http_date import parse_http_date
from keylane.api.http.parameters import header
from keylane.errors import PreconditionFailed

IF_MATCH = header("If-Match", "ETags of the record that the client expects, or *; another one is 412")
IF_MODIFIED_SINCE = header("If-Modified-Since", "304 for a record that is not newer; not with If-None-Match")
IF_UNMODIFIED_SINCE = header("If-Unmodified-Since", "412 for a record that is newer; not with If-Match")
CONDITIONS = (IF_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE)
_NAMES = frozenset(each.key for each in CONDITIONS)


class Conditions(NamedTuple):
    """What a record must meet; times in ms since 1970, None where there is no such condition."""

    match: str | None
    modified_since_ms: int | None
    unmodified_since_ms: int | None

    @classmethod
    def parse(cls, headers: Mapping[str, str]) -> Self | None:
        """Return the conditions of a request, None without any; a date that is none is ignored (13.1.3)."""
        if _NAMES.isdisjoint(headers):
            return None
        match, modified = headers.get("if-match"), headers.get("if-modified-since")
        unmodified = headers.get("if-unmodified-since")
        # If-None-Match and If-Match replace the conditions on times, which are less exact (13.2.2).
        if modified is not None and "if-none-match" in headers:
            modified = None
        if unmodified is not None and match is not None:
            unmodified = None
        return cls(match, parse_http_date(modified), parse_http_date(unmodified))

    def check(self, tags: tuple[str, ...], modified_ms: int | None) -> None:
        """Raise PreconditionFailed unless the record is one that the client expects.

        `tags`: the answer's ETag, then others that name the record. `modified_ms`: its Last-Modified, None
        where it has none.
        """
        if self.match is not None and not _names_tag(self.match, tags):
            raise PreconditionFailed(IF_MATCH.name, f"the record's ETag is {tags[0]}")
        since_ms = self.unmodified_since_ms
        if since_ms is not None and modified_ms is not None and modified_ms > since_ms:
            raise PreconditionFailed(IF_UNMODIFIED_SINCE.name, "the record is newer")

    def has_record(self, modified_ms: int | None, shown_since_ms: float) -> bool:
        """Return whether the client has the record as it is shown, by If-Modified-Since.

        `shown_since_ms`: since when it is shown so. A client may have an earlier form of the same record.
        """
        since_ms = self.modified_since_ms
        if since_ms is None or modified_ms is None:
            return False
        return max(modified_ms, shown_since_ms) <= since_ms


def _names_tag(header_value: str, tags: tuple[str, ...]) -> bool:
    """Compare strongly (8.8.3.2): a weak tag matches none."""
    if header_value.strip() == "*":
        return True
    return not tags[0].startswith("W/") and not {each.strip() for each in header_value.split(",")}.isdisjoint(
        tags
    )
