"""What every read works with: the store, the terms of the answer, and readings of a topic's lanes.

A reading goes by one layout, until one deadline, and collects the watermarks of its lanes. `read_current`
repeats it by a newer layout where the lanes say that there is one.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from keylane.errors import LaneBuilding, OutsideScope, StateTooOld, UnknownTopic
from keylane.model.records import Answer
from keylane.ports import Deadline
from keylane.query.dictionaries import Dictionaries, Expander, load_dictionary
from keylane.state.codec import expand_none
from keylane.state.lanes import Lane, decode_watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from keylane.model.records import Layout, Record, Watermark
    from keylane.ports import Call, Clock, State
    from keylane.query.layouts import Layouts
    from keylane.query.row_scopes import RowScopes, TopicScope
    from keylane.state.codec import Expand

Found = TypeVar("Found")
What = ParamSpec("What")


@dataclass(frozen=True, slots=True)
class Store:
    """The state as a reader uses it: the state in Redis, the layouts of its topics, the time.

    `scopes`: what the caller may read of it; None for one who may read all.
    `dictionaries`: of compressed values, those that were read before.
    """

    state: State
    layouts: Layouts
    clock: Clock
    scopes: RowScopes | None = None
    dictionaries: Dictionaries = field(default_factory=Dictionaries)

    @property
    def of_primaries(self) -> Store:
        """The same without replicas, which may lag behind."""
        return replace(self, state=_Primaries(self.state))


class _Primaries:
    """The port `State`, read from primaries alone."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.hosts = state.hosts

    def read(
        self, slot: int, keys: Sequence[bytes], deadline: Deadline, *, primary_only: bool = True
    ) -> list[bytes | None]:
        return self._state.read(slot, keys, deadline, primary_only=primary_only)

    def run(self, calls: Sequence[Call], deadline: Deadline, *, primary_only: bool = True) -> list[Any]:
        return self._state.run(calls, deadline, primary_only=primary_only)


class ReadTerms(NamedTuple):
    """What an answer must meet.

    `timeout_ms`: how long the state may take. `max_age_ms`: a bound on the answer's staleness, None for any
    age. `partial`: lanes that are still building may be in it.
    """

    timeout_ms: float
    max_age_ms: int | None = None
    partial: bool = False


class Watermarks:
    """The watermarks of the lanes that an answer was read from: of each lane the least that was seen.

    A read of several rounds may meet a node that is behind the one before: the answer claims no more than its
    oldest part.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.by_lane: dict[Lane, Watermark] = {}
        self._missing: Lane | None = None
        self._superseded = False

    def note(self, lane: Lane, data: bytes | None) -> None:
        """Add a lane's watermark record, None where the lane has none. Raises CorruptState."""
        self.add(lane, None if data is None else decode_watermark(lane.watermark_key, data))

    def add(self, lane: Lane, watermark: Watermark | None) -> None:
        """Add a lane's watermark, None where the lane has none."""
        if watermark is None:
            self._missing = lane
            return
        if watermark.superseded:
            self._superseded = True
        known = self.by_lane.get(lane)
        if known != watermark:
            self.by_lane[lane] = watermark if known is None else known.least(watermark)

    @property
    def is_stale(self) -> bool:
        """Whether a lane was superseded or had no watermark: there may be a newer layout."""
        return self._superseded or self._missing is not None

    def building_error(self) -> LaneBuilding:
        """Return the error for the lane that has no watermark, or else for the first one that has."""
        lane = self._missing or next(iter(self.by_lane))
        return self._building_error(lane, self.by_lane.get(lane))

    def check_complete(self, *, partial: bool) -> None:
        """Raise LaneBuilding for a lane without a watermark or, unless `partial`, one that still builds."""
        if self._missing:
            raise self.building_error()
        if not partial:
            for lane, watermark in self.by_lane.items():
                if not watermark.complete_as_of_ms:
                    raise self._building_error(lane, watermark)

    def _building_error(self, lane: Lane, watermark: Watermark | None) -> LaneBuilding:
        if watermark is None:
            return LaneBuilding(self.layout.topic, lane.partition, None)
        return LaneBuilding(self.layout.topic, lane.partition, watermark.next_offset, watermark.log_end)

    @property
    def next_offsets(self) -> dict[int, int]:
        """Partition -> offset below which everything is in the answer: the least of its lanes."""
        return least_offsets((lane.partition, mark.next_offset) for lane, mark in self.by_lane.items())

    @property
    def is_building(self) -> bool:
        """Whether a lane has never been complete."""
        return not all(watermark.complete_as_of_ms for watermark in self.by_lane.values())

    @property
    def is_incomplete(self) -> bool:
        """Whether retention removed records before a lane read them."""
        return any(watermark.incomplete for watermark in self.by_lane.values())

    def age_ms(self, now_ms: int) -> int:
        """Return a bound on staleness: that of the oldest lane."""
        oldest_ms = min((each.complete_as_of_ms for each in self.by_lane.values()), default=now_ms)
        return max(0, now_ms - oldest_ms)


def least_offsets(ends: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the least offset of each partition, of its lanes' partition and offset."""
    least: dict[int, int] = {}
    for partition, offset in ends:
        least[partition] = min(offset, least.get(partition, offset))
    return least


def check_age(found: Answer | Watermarks, now_ms: int, max_age_ms: int | None) -> None:
    """Raise StateTooOld where the state may be older than `max_age_ms`, or was never complete."""
    if max_age_ms is None:
        return
    age_ms = None if found.is_building else found.age_ms(now_ms)
    if age_ms is None or age_ms > max_age_ms:
        raise StateTooOld(age_ms, max_age_ms)


class Reading:
    """One attempt at a read, by one layout; it collects the watermarks of the lanes that it reads from.

    `deadline`: of all that it asks of the state, the layout included. `scope`: what the caller may read of
    the topic, None for all of it.
    """

    __slots__ = ("deadline", "layout", "scope", "store", "watermarks")

    def __init__(self, store: Store, layout: Layout, deadline: Deadline) -> None:
        self.store = store
        self.layout = layout
        self.deadline = deadline
        self.watermarks = Watermarks(layout)
        self.scope: TopicScope | None = None
        if store.scopes is not None:
            with self.paused():  # keys of a Schema Registry may have to be asked for
                self.scope = store.scopes.of(layout)

    def permitted(self, record: Record | None) -> Record | None:
        """Return a record of the topic; None, as for an absent one, where the caller may not read it."""
        if self.scope is None or record is None:
            return record
        return record if self.scope.permits_record(record) else None

    def again(self, timeout_ms: float) -> Reading:
        """Begin a further round: by the layout that is known then. Raises as `Layouts.get`."""
        return begin_reading(
            self.store, self.layout.topic, Deadline.after_ms(timeout_ms, self.deadline.clock)
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of a block out: what waits for another service is no wait for the state."""
        clock = self.deadline.clock
        begun_s = clock.monotonic_s()
        try:
            yield
        finally:
            self.deadline = Deadline(self.deadline.at_s + clock.monotonic_s() - begun_s, clock)

    @property
    def now_ms(self) -> int:
        """The wall-clock time, ms since 1970."""
        return self.store.clock.now_ms()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Run read commands before the deadline. Raises as `State.run`."""
        return self.store.state.run(calls, self.deadline)

    def expander(self) -> Expand:
        """Return what makes values of compressed ones, for one step of the read; see `Expander`.

        What it returns raises as `load_dictionary`, too.
        """
        layout = self.layout
        if layout.options.compression == "none":
            return expand_none
        load = partial(load_dictionary, self.store.state, layout, deadline=self.deadline)
        return Expander(layout, self.store.dictionaries, load).expand

    def answer(self, lane: Lane, record: Record | None) -> Answer:
        """Return what was found under a key of a lane whose watermark was noted."""
        return Answer(self.layout, lane.partition, record, self.watermarks.by_lane[lane])

    def check(self, terms: ReadTerms) -> None:
        """Raise LaneBuilding or StateTooOld where the lanes do not meet the terms."""
        self.watermarks.check_complete(partial=terms.partial)
        check_age(self.watermarks, self.now_ms, terms.max_age_ms)


def begin_reading(store: Store, topic: str, deadline: Deadline) -> Reading:
    """Begin to read a topic by its layout. Raises as `Layouts.get`, and OutsideScope."""
    layout = store.layouts.get(topic, deadline)
    if store.scopes is None:
        return Reading(store, layout, deadline)
    try:
        return Reading(store, layout, deadline)
    except OutsideScope:
        # The layout at hand may be older than the fields that a rule compares.
        return Reading(store, store.layouts.refresh(topic, deadline), deadline)


def read_current(
    reading: Reading,
    read: Callable[Concatenate[Reading, What], Found],
    *what: What.args,
    **named: What.kwargs,
) -> tuple[Found, Reading]:
    """Read by the reading's layout and, where its lanes say that it is stale, again by a newer one.

    `read` takes a reading and then `what` it is to read. Returns what it found, with the reading that found
    it. A lane that is superseded while the layout record still names its generation is valid: the switch to
    the next generation is under way. Raises as `Layouts.refresh`; LaneBuilding where the layout record is
    gone.
    """
    found = read(reading, *what, **named)
    if reading.watermarks.is_stale:
        newer = newer_layout(reading)
        if newer.generation != reading.layout.generation:
            reading = Reading(reading.store, newer, reading.deadline)
            found = read(reading, *what, **named)
    return found, reading


def newer_layout(reading: Reading) -> Layout:
    """Read the layout again of a topic whose lanes say that it is stale. Raises as `read_current`."""
    try:
        return reading.store.layouts.refresh(reading.layout.topic, reading.deadline)
    except UnknownTopic:
        # The record was there a moment ago: the state is lost, and the writer will rebuild it.
        raise reading.watermarks.building_error() from None
