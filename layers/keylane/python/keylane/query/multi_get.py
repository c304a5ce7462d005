"""Reading many keys of a topic: one command a lane, all shards at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import BadRequest
from keylane.model.keys import check_key, printable
from keylane.ports import Deadline
from keylane.query.fetch import latest_of
from keylane.query.layouts import healed
from keylane.state.lanes import lanes_by_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane.model.records import Answer, Record
    from keylane.ports import Clock, State
    from keylane.query.freshness import Watermarks
    from keylane.query.layouts import Layouts
    from keylane.state.lanes import Lane


def many(
    state: State,
    layouts: Layouts,
    clock: Clock,
    topic: str,
    keys: Sequence[bytes],
    *,
    atomic: bool = False,
    max_age_ms: int | None = None,
    timeout_ms: float = 1000,
    partial: bool = False,
) -> tuple[list[tuple[bytes, Answer]], Watermarks]:
    """Read the latest record of each key, in the order asked for; absent is an answer too.

    The keys of one lane are read by one atomic command; with `atomic` all are of one lane.
    Raises as `read.latest`, and BadRequest for an atomic read of several lanes.
    """
    for key in keys:
        check_key(key)
    deadline = Deadline.after_ms(timeout_ms, clock)

    def ask(marks: Watermarks) -> tuple[dict[bytes, Lane], dict[bytes, Record | None]]:
        homes = lanes_by_key(marks.layout, keys)
        if atomic:
            _check_one_lane(homes)
        return homes, latest_of(state, marks, homes, deadline, atomic=atomic)

    (homes, records), marks = healed(layouts, topic, deadline, ask, partial=partial)
    marks.check_age(clock.now_ms(), max_age_ms)
    return [(key, marks.answer(homes[key], records[key])) for key in keys], marks


def _check_one_lane(homes: Mapping[bytes, Lane]) -> None:
    first, *others = homes
    for key in others:
        if homes[key] != homes[first]:
            raise BadRequest(
                f"keys {printable(first)!r} and {printable(key)!r} lie in different lanes "
                f"({homes[first]} and {homes[key]}): they can't be read at one moment",
                "atomic",
            )
