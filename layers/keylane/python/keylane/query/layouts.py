"""Topics' layouts, and reads that find theirs out of date: those are repeated once by a newer one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from keylane import routing
from keylane.errors import CorruptState, UnknownTopic
from keylane.model.keys import printable
from keylane.query.freshness import Watermarks
from keylane.state import codec, redis_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.model.records import Layout
    from keylane.ports import Clock, Deadline, State

Found = TypeVar("Found")


class Layouts:
    """The topics' layouts, each read once and kept for `ttl_s` seconds. Unknown topics aren't kept.

    One whose record vanished is kept for the rest of its time: the state was lost a moment ago, and the
    writer is about to build it anew.
    """

    def __init__(self, state: State, clock: Clock, ttl_s: float) -> None:
        self._state = state
        self._clock = clock
        self._ttl_s = ttl_s
        self._kept: dict[str, tuple[Layout, float]] = {}

    def get(self, topic: str, deadline: Deadline) -> Layout:
        """Give the topic's layout, not older than `ttl_s`. Errors as `refresh`."""
        kept = self._kept.get(topic)
        if kept is not None and self._clock.monotonic_s() < kept[1]:
            return kept[0]
        return self.refresh(topic, deadline)

    def refresh(self, topic: str, deadline: Deadline) -> Layout:
        """Read the topic's layout anew. Raises UnknownTopic, CorruptState, StateUnavailable."""
        key = redis_keys.layout_key(topic)
        (data,) = self._state.read(routing.key_slot(key), [key], deadline)
        if data is None:
            raise UnknownTopic(topic)
        try:
            layout = codec.decode_layout(data)
            routing.check_partitioning(layout.partition_count, layout.partitioner)
            routing.separator_of(layout.partition_by)
            routing.slot_for(0, 0, layout.partition_count, layout.stripes)  # refuses more lanes than slots
        except ValueError as error:
            raise CorruptState(printable(key), str(error)) from error
        self._kept[topic] = (layout, self._clock.monotonic_s() + self._ttl_s)
        return layout


def healed(
    layouts: Layouts, topic: str, deadline: Deadline, ask: Callable[[Watermarks], Found], *, partial: bool
) -> tuple[Found, Watermarks]:
    """Give what `ask` finds by the topic's layout, and the marks that it noted.

    Asked by the cached layout, and once more by a newer one where a lane says that there may be one. A lane
    that is superseded while the layout record still names its generation is taken as it is: the switch is
    under way. Raises LaneBuilding for a lane that has not begun, and, but for `partial`, that isn't whole.
    """
    marks = Watermarks(layouts.get(topic, deadline))
    found = ask(marks)
    if marks.is_stale:
        try:
            newer = layouts.refresh(topic, deadline)
        except UnknownTopic:
            # It was there a moment ago: the state is lost, and will be built anew.
            raise marks.building() from None
        if newer.generation != marks.layout.generation:
            marks = Watermarks(newer)
            found = ask(marks)
    marks.check_whole(partial=partial)
    return found, marks
