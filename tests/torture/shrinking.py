"""Shortens a schedule that failed: drops steps for as long as it still fails."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.schedule import Schedule

TRIES = 12
SECONDS = 300


def shrink(
    schedule: Schedule, fails: Callable[[Schedule], bool], tries: int = TRIES, seconds: float = SECONDS
) -> Schedule:
    """Return the shortest schedule found that fails; `fails` runs one.

    First halves of the steps are left out, then quarters, at last single ones, within a number of tries and a
    time. Each try has keys of its own. A schedule that fails by chance may be kept longer than it need be.
    """
    until = time.monotonic() + seconds
    best, size, tried = schedule, len(schedule.steps) // 2, 0
    while size:
        begin = 0
        while begin < len(best.steps):
            if tried == tries or time.monotonic() > until:
                return best
            rest = best.steps[:begin] + best.steps[begin + size :]
            if not rest:
                break
            tried += 1
            candidate = dataclasses.replace(schedule, steps=rest, run=schedule.run + tried)
            if fails(candidate):
                best = candidate
            else:
                begin += size
        size //= 2
    return best
