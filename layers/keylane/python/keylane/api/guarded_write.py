"""A write from its parsed records to its answer: counted against the limits, then written, once for a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.access.callers import SOURCE_IP, caller_of
from keylane.api import idempotency
from keylane.api.event import headers_of
from keylane.api.idempotency import IDEMPOTENCY_KEY
from keylane.errors import KeylaneError
from keylane.produce.rate_limits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.api.event import Event
    from keylane.api.response import Response
    from keylane.errors import RateLimited
    from keylane.metrics.meter import Meter
    from keylane.model.records import NewRecord
    from keylane.ports import Fate
    from keylane.produce.guards import Guards

    Write = Callable[[Sequence[NewRecord]], Sequence[Fate]]
    Tell = Callable[[Sequence[Fate]], Response[str]]


def written(
    guards: Guards, event: Event, records: Sequence[NewRecord], write: Write, tell: Tell
) -> Response[str]:
    """Write the records that the limits let through, and tell the fate of each.

    Limits count what is answered by a key's earlier answer, too.
    Raises RateLimited for the caller, StateUnavailable where limits can't be counted, and what
    `once.answered` and `tell` raise.
    """
    key = IDEMPOTENCY_KEY.of(headers_of(event))
    admission = guards.limits.admit(caller_of(event, guards.caller), records) if guards.limits else UNLIMITED

    def make() -> tuple[Response[str], bool]:
        outcomes = _outcomes(records, admission.refused, write, guards.meter)
        return tell(outcomes), any(not isinstance(outcome, KeylaneError) for outcome in outcomes)

    if key is None:
        response, _ = make()
    else:
        # An address is nobody's name: the client that tries again may have another one.
        scope = caller_of(event, [source for source in guards.caller if source != SOURCE_IP])
        response = idempotency.answered(guards.answers and guards.answers(), key, scope, event, make)
    response.headers |= admission.headers
    return response


def _outcomes(
    records: Sequence[NewRecord], refused: Mapping[str, RateLimited], write: Write, meter: Meter
) -> Sequence[Fate]:
    if not refused:
        return write(records)
    admitted = [record for record in records if record.topic not in refused]
    for record in records:
        if record.topic in refused:
            # Not by the topic: there may be none of that name, and clients could make up any number.
            meter.count("RateLimited", 1, refused[record.topic].pattern)
    outcomes = iter(write(admitted) if admitted else ())
    return [refused[record.topic] if record.topic in refused else next(outcomes) for record in records]
