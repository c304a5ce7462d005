"""Reading a key's history: a page of its records, or the one that was in force at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.errors import HistoryTooShort, NoHistory, PositionNotReached
from keylane.model.keys import check_key
from keylane.model.records import Position
from keylane.ports import Deadline
from keylane.query import as_of as as_of_query
from keylane.query.layouts import healed
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from keylane.model.records import Answer, HistoryEntry, Record
    from keylane.ports import Clock, State
    from keylane.query.freshness import Watermarks
    from keylane.query.layouts import Layouts
    from keylane.state.lanes import Lane

PAGE_BYTES = 4 * 1024 * 1024
"""A page ends where its records are larger than this: base64 of them still fits into a Lambda's answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """Entries of a history, newest first. `next_after`: the place where it ended, None: at the end."""

    entries: list[HistoryEntry]
    next_after: bytes | None
    marks: Watermarks


def page(
    state: State,
    layouts: Layouts,
    clock: Clock,
    topic: str,
    key: bytes,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    after: bytes | None = None,
    limit: int = 100,
    max_age_ms: int | None = None,
    timeout_ms: float = 1000,
    partial: bool = False,
) -> Page:
    """Read up to `limit` records of the key from `from_ms` on and before `to_ms`, those behind `after`.

    Raises NullKey, TooLarge, NoHistory, UnknownTopic, LaneBuilding, StateTooOld, StateUnavailable,
    CorruptState.
    """
    deadline = _begin(layouts, clock, topic, key, timeout_ms)

    def ask(marks: Watermarks) -> tuple[list[HistoryEntry], bytes | None]:
        return as_of_query.entries(
            state,
            marks,
            key,
            _home(marks, key),
            from_ms=from_ms,
            to_ms=to_ms,
            after=after,
            limit=limit,
            most_bytes=PAGE_BYTES,
            deadline=deadline,
        )

    (entries, next_after), marks = healed(layouts, topic, deadline, ask, partial=partial)
    marks.check_age(clock.now_ms(), max_age_ms)
    return Page(entries, next_after, marks)


def as_of(
    state: State,
    layouts: Layouts,
    clock: Clock,
    topic: str,
    key: bytes,
    *,
    moment: int | Position,
    max_age_ms: int | None = None,
    timeout_ms: float = 1000,
    partial: bool = False,
) -> Answer:
    """Read the record that was in force at a time (ms), or when a partition stood at a position.

    Raises as `page`, and HistoryTooShort, PositionNotReached.
    """
    deadline = _begin(layouts, clock, topic, key, timeout_ms)

    def ask(marks: Watermarks) -> tuple[Lane, Record | HistoryTooShort | None]:
        home = _home(marks, key)
        if isinstance(moment, Position):
            return home, as_of_query.in_force_at(
                state, marks, key, home, position=moment, now_ms=clock.now_ms(), deadline=deadline
            )
        return home, as_of_query.in_force(
            state, marks, {key: home}, as_of_ms=moment, now_ms=clock.now_ms(), deadline=deadline
        )[key]

    (home, found), marks = healed(layouts, topic, deadline, ask, partial=partial)
    marks.check_age(clock.now_ms(), max_age_ms)
    next_offset = marks.by_lane[home].next_offset
    if isinstance(moment, Position) and moment.partition == home.partition and moment.offset >= next_offset:
        raise PositionNotReached(str(moment), next_offset, 0)
    if isinstance(found, HistoryTooShort):
        raise found
    return marks.answer(home, found)


def _begin(layouts: Layouts, clock: Clock, topic: str, key: bytes, timeout_ms: float) -> Deadline:
    check_key(key)
    deadline = Deadline.after_ms(timeout_ms, clock)
    if not layouts.get(topic, deadline).options.has_history:
        layouts.refresh(topic, deadline)
    return deadline


def _home(marks: Watermarks, key: bytes) -> Lane:
    if not marks.layout.options.has_history:
        raise NoHistory(marks.layout.topic)
    return lane_of_key(marks.layout, key)
