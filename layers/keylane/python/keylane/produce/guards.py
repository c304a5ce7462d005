"""What stands before a write, by the function's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.access.callers import SOURCES
from keylane.metrics.meter import NO_METER, Meter

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.ports import Answers
    from keylane.produce.rate_limits import Limits


@dataclass(frozen=True, slots=True)
class Guards:
    """`caller`: by what callers are told apart; without `limits` nothing is counted.

    `answers` is made when the first idempotency key comes; None where none is taken.
    """

    caller: tuple[str, ...] = SOURCES
    limits: Limits | None = None
    answers: Callable[[], Answers] | None = None
    meter: Meter = NO_METER


NONE = Guards()
