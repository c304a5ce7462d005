"""The guards around one request to write: rate limits first, then its idempotency key.

with GuardedWrite(guards, event, records) as write:
if not write.is_replayed:
results = put_all(writer, records, refused=write.refused)
write.respond(results, render(results))
return write.response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from keylane.access.callers import caller_of
from keylane.api import idempotency
from keylane.api.event import headers_of
from keylane.api.idempotency import IDEMPOTENCY_KEY
from keylane.errors import KeylaneError
from keylane.produce.rate_limits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.event import Event
    from keylane.api.response import Response
    from keylane.model.records import NewRecord
    from keylane.ports import RecordResult
    from keylane.produce.guards import Guards


class GuardedWrite:
    """One request to write that was counted against its limits, and holds the claim on its key.

    `refused`: topic -> the limit that refuses all of its records. Limits count a replayed request, too.
    """

    def __init__(self, guards: Guards, event: Event, records: Sequence[NewRecord]) -> None:
        """Raises RateLimited (the caller is over its limit), StateUnavailable, and as `idempotency.claim`."""
        key = IDEMPOTENCY_KEY.of(headers_of(event))
        limits = guards.limits
        admission = limits.admit(caller_of(event, guards.caller), records) if limits else UNLIMITED
        self.refused = admission.refused
        self._limit_headers = admission.headers
        self._claim = None if key is None else idempotency.claim(guards, event, key)
        self._response = self._claim.saved if self._claim else None
        self._to_save: bytes | None = None
        self.is_replayed = self._response is not None
        if self.refused and not self.is_replayed:
            for record in records:
                if record.topic in self.refused:
                    # Labeled by the rule, not by the topic: clients could make up any number of topics.
                    guards.meter.count("RateLimited", 1, self.refused[record.topic].pattern)

    def __enter__(self) -> Self:
        return self

    def respond(self, results: Sequence[RecordResult], response: Response[str]) -> None:
        """Set the response. It is saved under the request's key if one of the records was written."""
        if self._claim and not all(isinstance(result, KeylaneError) for result in results):
            self._to_save = idempotency.serialize(response)
        self._response = response

    def __exit__(self, *_: object) -> None:
        """Save the response; release the idempotency key if there is none to save."""
        if self._claim and not self.is_replayed:
            self._claim.settle(self._to_save)

    @property
    def response(self) -> Response[str]:
        """The saved response or that of `respond`, with the headers of the rate limits."""
        if self._response is None:
            raise AssertionError("respond() comes first")
        self._response.headers |= self._limit_headers
        return self._response
