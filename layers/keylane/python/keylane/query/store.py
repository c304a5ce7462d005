"""What every read takes first: the store. And how a read survives a change of its topic's layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.errors import UnknownTopic
from keylane.model.records import Answer
from keylane.query.freshness import Watermarks, check_age

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.model.records import Layout, Record
    from keylane.ports import Call, Clock, Deadline, State
    from keylane.query.layouts import Layouts
    from keylane.state.lanes import Lane


@dataclass(frozen=True, slots=True)
class Store:
    """The state as a reader uses it: the state in Redis, the layouts of its topics, the time."""

    state: State
    layouts: Layouts
    clock: Clock


class ReadTerms(NamedTuple):
    """What an answer must meet.

    `max_age_ms`: a bound on its staleness, None for any age. `partial`: lanes that are still building may be
    in it. `timeout_ms`: how long the state may take.
    """

    max_age_ms: int | None = None
    partial: bool = False
    timeout_ms: float = 1000


ANY = ReadTerms()


class Reading:
    """One attempt at a read, by one layout; it collects the watermarks of the lanes that it reads from."""

    __slots__ = ("deadline", "layout", "store", "watermarks")

    def __init__(self, store: Store, layout: Layout, deadline: Deadline) -> None:
        self.store = store
        self.layout = layout
        self.deadline = deadline
        self.watermarks = Watermarks(layout)

    @property
    def now_ms(self) -> int:
        """The wall-clock time, ms since 1970."""
        return self.store.clock.now_ms()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Run read commands before the deadline. Raises as `State.run`."""
        return self.store.state.run(calls, self.deadline)

    def answer(self, lane: Lane, record: Record | None) -> Answer:
        """Return what was found under a key of a lane whose watermark was noted."""
        return Answer(self.layout, lane.partition, record, self.watermarks.by_lane[lane])

    def check(self, terms: ReadTerms) -> None:
        """Raise LaneBuilding or StateTooOld where the lanes do not meet the terms."""
        self.watermarks.check_complete(partial=terms.partial)
        check_age(self.watermarks, self.now_ms, terms.max_age_ms)


def readings(store: Store, topic: str, deadline: Deadline) -> Iterator[Reading]:
    """Yield a reading by the cached layout and, where its lanes say that it is stale, one by a newer layout.

    The last reading counts. A lane that is superseded while the layout record still names its generation is
    valid: the switch to the next generation is under way. Raises as `Layouts.refresh`; LaneBuilding where the
    layout record is gone.
    """
    reading = Reading(store, store.layouts.get(topic, deadline), deadline)
    yield reading
    if reading.watermarks.is_stale:
        newer = newer_layout(reading)
        if newer.generation != reading.layout.generation:
            yield Reading(store, newer, deadline)


def newer_layout(reading: Reading) -> Layout:
    """Read the layout again of a topic whose lanes say that it is stale. Raises as `readings`."""
    try:
        return reading.store.layouts.refresh(reading.layout.topic, reading.deadline)
    except UnknownTopic:
        # The record was there a moment ago: the state is lost, and the writer will rebuild it.
        raise reading.watermarks.building_error() from None
