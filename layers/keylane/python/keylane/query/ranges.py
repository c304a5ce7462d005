"""Reading a topic's keys in order: all lanes' indexes at once, merged, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane import routing
from keylane.errors import HistoryTooShort, NoHistory, NoIndex, TooLarge
from keylane.model.records import Record
from keylane.ports import Deadline
from keylane.query import as_of
from keylane.query.fetch import latest_of, present
from keylane.query.layouts import healed
from keylane.query.merged_index import Indexes
from keylane.state import redis_keys
from keylane.state.lanes import lane_of_partition_key, lanes_of_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.model.records import Answer, Layout
    from keylane.ports import Clock, State
    from keylane.query.freshness import Watermarks
    from keylane.query.layouts import Layouts
    from keylane.state.lanes import Lane

PAGE_BYTES = 4 * 1024 * 1024
"""A page ends where its values are larger than this: base64 of them still fits into a Lambda's answer."""
FIRST_STEP = 100
"""So many values are read first; then as many as will fit into the page by the size of these."""


@dataclass(frozen=True, slots=True)
class Span:
    """Keys from `low` on and below `high` (None: to the end), in bytewise order."""

    low: bytes = b""
    high: bytes | None = None

    @classmethod
    def of_prefix(cls, prefix: bytes) -> Span:
        """All keys that begin with it."""
        trimmed = prefix.rstrip(b"\xff")
        return cls(prefix, trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None)

    def bounds(self, after: bytes | None) -> tuple[bytes, bytes]:
        """As ZRANGEBYLEX takes them, for the keys that come behind `after`."""
        low = b"(" + after if after is not None else b"[" + self.low if self.low else b"-"
        return low, b"+" if self.high is None else b"(" + self.high

    def partition_key(self, partition_by: str) -> bytes | None:
        """What all its keys are partitioned by, see `routing.partition_key`; None where that may differ."""
        separator = routing.separator_of(partition_by)
        if not separator or separator not in self.low or self.high is None:
            return None
        part = routing.partition_key(self.low, partition_by)
        end = Span.of_prefix(part + separator).high
        return part if end is not None and self.high <= end else None


@dataclass(frozen=True, slots=True)
class Page:
    """Keys and what they hold, in key order. `next_after`: the page ended at this key, None: at the end.

    Rows hold no answer where keys alone were asked for, and an error where the history is too short.
    """

    rows: list[tuple[bytes, Answer | HistoryTooShort | None]]
    next_after: bytes | None
    marks: Watermarks


def page(
    state: State,
    layouts: Layouts,
    clock: Clock,
    topic: str,
    span: Span,
    *,
    limit: int = 100,
    after: bytes | None = None,
    keys_only: bool = False,
    as_of_ms: int | None = None,
    max_age_ms: int | None = None,
    timeout_ms: float = 1000,
    partial: bool = False,
) -> Page:
    """Read up to `limit` keys of the span that come behind `after`, and their latest records.

    Keys that are gone when their values are read are left out and the page is filled up; it is shorter,
    even empty, where that takes long, and where values are large. With `as_of_ms` the records are those that
    were in force then, of keys that were deleted since too. Raises NoIndex, NoHistory, HistoryTooShort,
    UnknownTopic, LaneBuilding, StateTooOld, StateUnavailable, CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, clock)

    def check(layout: Layout) -> None:
        if not layout.options.index:
            raise NoIndex(topic)
        if as_of_ms is not None and not layout.options.has_history:
            raise NoHistory(topic)
        age_ms = layout.options.history_age_ms
        if as_of_ms is not None and age_ms is not None and as_of_ms < clock.now_ms() - age_ms:
            # Keys that were deleted before are forgotten by now: nobody knows which those were.
            raise HistoryTooShort(topic, clock.now_ms() - age_ms)

    try:
        check(layouts.get(topic, deadline))
    except (NoIndex, NoHistory, HistoryTooShort):
        check(layouts.refresh(topic, deadline))

    def ask(marks: Watermarks) -> tuple[list[_Row], bytes | None]:
        check(marks.layout)
        index_key = redis_keys.index_key if as_of_ms is None else redis_keys.past_key
        homes = _homes_of(marks.layout, span)
        lanes = Indexes(state, marks, homes, index_key, span.bounds(after), limit=limit, deadline=deadline)

        def read(names: list[tuple[bytes, Lane]]) -> list[_Row]:
            return _read(
                state, marks, dict(names), deadline, keys_only=keys_only, as_of_ms=as_of_ms, clock=clock
            )

        return _fill(lanes, read, limit, deadline, timeout_ms)

    (rows, next_after), marks = healed(layouts, topic, deadline, ask, partial=partial)
    marks.check_age(clock.now_ms(), max_age_ms)
    return Page([(row.key, row.answer(marks)) for row in rows], next_after, marks)


def records(
    state: State,
    marks: Watermarks,
    span: Span,
    *,
    homes: list[Lane],
    is_wanted: Callable[[bytes], bool] | None,
    after: bytes | None,
    limit: int,
    deadline: Deadline,
    timeout_ms: float,
    clock: Clock,
) -> tuple[list[tuple[bytes, Answer]], bytes | None]:
    """As `page` reads them: the records of the span in these lanes, and where they end before it does.

    `is_wanted`: which of its keys are read at all. Errors as `State.run`, CorruptState.
    """
    lanes = Indexes(
        *(state, marks, homes, redis_keys.index_key, span.bounds(after)), limit=limit, deadline=deadline
    )

    def read(names: list[tuple[bytes, Lane]]) -> list[_Row]:
        wanted = {key: home for key, home in names if is_wanted is None or is_wanted(key)}
        return _read(state, marks, wanted, deadline, keys_only=False, as_of_ms=None, clock=clock)

    rows, next_after = _fill(lanes, read, limit, deadline, timeout_ms)
    found = [(row.key, marks.answer(row.home, row.found)) for row in rows if isinstance(row.found, Record)]
    return found, next_after


@dataclass(frozen=True, slots=True)
class _Row:
    key: bytes
    home: Lane
    found: Record | HistoryTooShort | None

    def answer(self, marks: Watermarks) -> Answer | HistoryTooShort | None:
        return marks.answer(self.home, self.found) if isinstance(self.found, Record) else self.found

    @property
    def size_bytes(self) -> int:
        value_bytes = len(self.found.value) if isinstance(self.found, Record) else 0
        return value_bytes + len(self.key)


def _fill(
    lanes: Indexes,
    read: Callable[[list[tuple[bytes, Lane]]], list[_Row]],
    limit: int,
    deadline: Deadline,
    timeout_ms: float,
) -> tuple[list[_Row], bytes | None]:
    """Rows of a page, and the last key that was looked at, None where there is nothing behind it."""
    rows: list[_Row] = []
    size_bytes = 0
    step = FIRST_STEP
    while len(rows) < limit:
        names = lanes.take(min(limit - len(rows), step))
        if not names:
            return rows, None
        found, count = _read_what_fits(read, names)
        for row in found:
            size_bytes += row.size_bytes
            if rows and size_bytes > PAGE_BYTES:
                return rows, rows[-1].key
            rows.append(row)
        if count < len(names):
            return rows, names[count - 1][0]
        step = max(FIRST_STEP, (PAGE_BYTES - size_bytes) * len(rows) // max(1, size_bytes))
        if deadline.remaining_s * 1000 < timeout_ms / 2:
            break
    return rows, lanes.last if lanes.has_more() else None


def _read_what_fits(
    read: Callable[[list[tuple[bytes, Lane]]], list[_Row]], names: list[tuple[bytes, Lane]]
) -> tuple[list[_Row], int]:
    """Rows of the first so many of the names: fewer than all where their values are too large together."""
    count = len(names)
    while True:
        try:
            return read(names[:count]), count
        except TooLarge:
            if count == 1:
                raise
            count = max(1, count // 8)


def _read(
    state: State,
    marks: Watermarks,
    homes: dict[bytes, Lane],
    deadline: Deadline,
    *,
    keys_only: bool,
    as_of_ms: int | None,
    clock: Clock,
) -> list[_Row]:
    """What is there under these keys."""
    if as_of_ms is not None:
        found = as_of.in_force(
            state, marks, homes, as_of_ms=as_of_ms, now_ms=clock.now_ms(), deadline=deadline
        )
        return [
            _Row(key, home, None if keys_only else found[key])
            for key, home in homes.items()
            if found[key] is not None
        ]
    if keys_only:
        # Without a time to live the index is exact: it is written with the values.
        there = present(state, marks, homes, deadline) if marks.layout.options.ttl_ms else homes.keys()
        return [_Row(key, home, None) for key, home in homes.items() if key in there]
    records = latest_of(state, marks, homes, deadline)
    return [_Row(key, home, record) for key, home in homes.items() if (record := records[key]) is not None]


def _homes_of(layout: Layout, span: Span) -> list[Lane]:
    """The lanes that may have keys of the span: one where all of them have one partition key."""
    part = span.partition_key(layout.partition_by)
    return lanes_of_topic(layout) if part is None else [lane_of_partition_key(layout, part)]
