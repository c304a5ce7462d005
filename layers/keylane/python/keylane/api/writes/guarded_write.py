"""The guards around one request to write: rate limits first, then its idempotency key."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from keylane.api.http import problems
from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.writes import idempotency
from keylane.api.writes.idempotency import IDEMPOTENCY_KEY
from keylane.errors import KeylaneError, RateLimited
from keylane.model.records import NewRecord
from keylane.ports import RecordResult
from keylane.produce.guards import Guards
from keylane.produce.rate_limits import UNLIMITED


class Put(Protocol):
    """Writes the request's records, but for those of the topics in `refused`: topic -> the reason."""

    def __call__(self, *, refused: Mapping[str, KeylaneError]) -> Sequence[RecordResult]:
        """Return the result of each record."""


def write_guarded(
    guards: Guards,
    request: Request,
    records: Sequence[NewRecord],
    put: Put,
    render: Callable[[Sequence[RecordResult]], Response[str]],
) -> Response[str]:
    """Write the request's records, unless a limit or an earlier request with its key stands against it.

    The response is saved under the key if a record was written, or may have been; else the key is free again.
    After an error that nobody foresaw the claim stays until its time is over: a record may have been written.
    Limits count a replayed request, too. Raises RateLimited (the caller is over its limit), StateUnavailable,
    and as `idempotency.claim` and `render`.
    """
    key = IDEMPOTENCY_KEY.of(request)
    limits = guards.limits
    admission = limits.admit(request.caller.name(guards.caller), records) if limits else UNLIMITED
    claim = None if key is None else idempotency.claim(guards, request, key)
    if claim is not None and claim.saved is not None:
        response = claim.saved
    else:
        _count_refused(guards, records, admission.refused)
        to_save: bytes | None = None
        try:
            results = put(refused=admission.refused)
            if claim is None or not any(map(_may_be_written, results)):
                response = render(results)
            else:
                response = _render_lasting(render, results, request.id)
                to_save = idempotency.serialize(response)
        except KeylaneError:
            if claim is not None:
                claim.settle(None)
            raise
        if claim is not None:
            claim.settle(to_save)
    response.headers |= admission.headers
    return response


def _may_be_written(result: RecordResult) -> bool:
    return not isinstance(result, KeylaneError) or getattr(result, "uncertain", False)


def _render_lasting(
    render: Callable[[Sequence[RecordResult]], Response[str]],
    results: Sequence[RecordResult],
    request_id: str,
) -> Response[str]:
    """Render what the same request gets again: the error of a single record, too, without `Retry-After`."""
    try:
        response = render(results)
    except KeylaneError as error:
        response = problems.response_to(error, request_id)
    response.headers.pop("Retry-After", None)
    return response


def _count_refused(guards: Guards, records: Sequence[NewRecord], refused: Mapping[str, RateLimited]) -> None:
    for record in records if refused else ():
        if record.topic in refused:
            # Labeled by the rule, not by the topic: clients could make up any number of topics.
            guards.meter.count("RateLimited", 1, refused[record.topic].pattern)
