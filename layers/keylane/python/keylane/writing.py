"""A write from its parsed records to its answer: counted against the limits, then written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.callers import caller_of
from keylane.metrics import METER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aws_lambda_powertools.event_handler import Response

    from keylane.api import Event
    from keylane.errors import RateLimited
    from keylane.guards import Guards
    from keylane.model import NewRecord
    from keylane.ports import Fate

    Write = Callable[[Sequence[NewRecord]], Sequence[Fate]]
    Tell = Callable[[Sequence[Fate]], Response[str]]


def written(
    guards: Guards, event: Event, records: Sequence[NewRecord], write: Write, tell: Tell
) -> Response[str]:
    """Write the records that the limits let through, and tell the fate of each.

    Raises RateLimited for the caller, StateUnavailable where limits can't be counted, and what `tell` raises.
    """
    if guards.limits is None:
        return tell(write(records))
    admission = guards.limits.admit(caller_of(event, guards.caller), records)
    response = tell(_outcomes(records, admission.refused, write))
    response.headers |= admission.headers
    return response


def _outcomes(
    records: Sequence[NewRecord], refused: Mapping[str, RateLimited], write: Write
) -> Sequence[Fate]:
    if not refused:
        return write(records)
    admitted = [record for record in records if record.topic not in refused]
    for record in records:
        if record.topic in refused:
            METER.count("RateLimited", 1, record.topic)
    outcomes = iter(write(admitted) if admitted else ())
    return [refused[record.topic] if record.topic in refused else next(outcomes) for record in records]
