"""What all requests of a client, or of a session, have in common."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keylane_client.encoding import Moment, encode_moment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from keylane_client.ledger import Ledger
    from keylane_client.parsing import Loads


@dataclass(frozen=True, slots=True)
class Context:
    """`ledger`: the writes that reads must wait for, None outside of a session."""

    loads: Loads = json.loads
    is_idempotent: bool = False
    ledger: Ledger | None = None

    def write_headers(self, idempotency_key: str | None, *, is_async: bool) -> dict[str, str]:
        """Return the headers of a write; with an idempotency key of its own where the client wants one."""
        if idempotency_key is None and self.is_idempotent:
            idempotency_key = str(uuid.uuid4())
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return {**headers, "Prefer": "respond-async"} if is_async else headers


@dataclass(frozen=True, slots=True)
class Terms:
    """Which answers a reader accepts, and how much of them; `as_of` reads an earlier moment."""

    fields: Sequence[str] = ()
    max_age: timedelta | None = None
    is_partial: bool = False
    has_headers: bool = False
    as_of: Moment | None = None

    def query(self) -> dict[str, str]:
        """Return the query parameters that all reads of records take."""
        query = {"fields": ",".join(self.fields)} if self.fields else {}
        if self.max_age is not None:
            query["max_age_ms"] = str(round(self.max_age.total_seconds() * 1000))
        return {**query, "partial": "true"} if self.is_partial else query

    def query_as_of(self) -> dict[str, str]:
        """Return `query`, with the moment."""
        return self.query() if self.as_of is None else {**self.query(), "as_of": encode_moment(self.as_of)}

    def require_now(self, what: str) -> None:
        """Raise ValueError if these terms are of an earlier moment, for what has no such thing."""
        if self.as_of is not None:
            raise ValueError(f"{what} has no `at`: it is about the latest state")


@dataclass(frozen=True, slots=True)
class TopicScope:
    """A topic, and how it is read."""

    name: str
    context: Context
    terms: Terms = field(default_factory=Terms)
