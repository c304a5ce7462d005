"""Reading views: the windows of one key or of a range of keys, and what is known of a view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keylane.errors import CorruptState, UnknownTopic, UnknownView
from keylane.model.keys import check_key, printable
from keylane.ports import Call, Deadline
from keylane.query import ranges
from keylane.query.layouts import healed
from keylane.query.ranges import Span
from keylane.state import aggregates, codec, redis_keys, windows
from keylane.state.lanes import decode_watermark, lane_of_key, lanes_of_topic

if TYPE_CHECKING:
    from keylane.model.records import Answer, Layout, Watermark
    from keylane.ports import Clock, State
    from keylane.query.freshness import Watermarks
    from keylane.query.layouts import Layouts
    from keylane.state.lanes import Lane
    from keylane.state.windows import Definition, Progress

FIRST_MS, LAST_MS = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Window:
    """A window as it stands; `columns`: a JSON object. Both times are None where the view has no windows.

    `is_final`: the event-time watermark is past its end, and it changes no more. `changed_ms`: when its last
    change was written.
    """

    key: bytes
    start_ms: int | None
    end_ms: int | None
    is_final: bool
    changed_ms: int
    columns: str


@dataclass(frozen=True, slots=True)
class Page:
    """Windows in the order of keys, then of starts. `next_after`: where the page ended, None: at the end."""

    view: Definition
    rows: list[Window]
    next_after: bytes | None
    marks: Watermarks


@dataclass(frozen=True, slots=True)
class Described:
    """A view, and its lanes: where each lies (address of its primary) and how far it is, if it has begun."""

    view: Definition
    layout: Layout
    lanes: list[tuple[Lane, str, Watermark | None, Progress | None]]


def of_key(
    state: State,
    layouts: Layouts,
    clock: Clock,
    view: str,
    key: bytes,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    **bounds: Any,
) -> Page:
    """Read the key's windows that start from `from_ms` on and before `to_ms`, from its lane alone.

    `bounds` as `page` has them. Raises NullKey, TooLarge, and as `of_keys`.
    """
    check_key(key)
    low = windows.window_key(key, FIRST_MS if from_ms is None else from_ms)
    high = windows.window_key(key, LAST_MS) if to_ms is None else windows.window_key(key, to_ms)
    return _page(state, layouts, clock, view, Span(low, high), key=key, **bounds)


def of_keys(
    state: State,
    layouts: Layouts,
    clock: Clock,
    view: str,
    span: Span,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    **bounds: Any,
) -> Page:
    """Read the windows of the span's keys that start from `from_ms` on and before `to_ms`.

    A page is shorter, even empty, where it takes long to find the next. Raises UnknownView, LaneBuilding,
    StateTooOld, StateUnavailable, CorruptState.
    """
    low = windows.escaped(span.low)
    high = None if span.high is None else windows.escaped(span.high)
    times = FIRST_MS if from_ms is None else from_ms, LAST_MS if to_ms is None else to_ms
    return _page(state, layouts, clock, view, Span(low, high), times=times, **bounds)


def _page(
    state: State,
    layouts: Layouts,
    clock: Clock,
    view: str,
    span: Span,
    *,
    key: bytes | None = None,
    times: tuple[int, int] = (FIRST_MS, LAST_MS),
    is_final: bool = False,
    after: bytes | None = None,
    limit: int = 100,
    max_age_ms: int | None = None,
    timeout_ms: float = 1000,
    partial: bool = False,
) -> Page:
    deadline = Deadline.after_ms(timeout_ms, clock)
    name = windows.state_name(view)

    def is_wanted(found: bytes) -> bool:
        return times[0] <= _split(name, found)[1] < times[1]

    def ask(marks: Watermarks) -> tuple[list[tuple[bytes, Answer]], bytes | None]:
        return ranges.records(
            state,
            marks,
            span,
            homes=lanes_of_topic(marks.layout) if key is None else [lane_of_key(marks.layout, key)],
            is_wanted=is_wanted if key is None else None,
            after=after,
            limit=limit,
            deadline=deadline,
            timeout_ms=timeout_ms,
            clock=clock,
        )

    try:
        (found, next_after), marks = healed(layouts, name, deadline, ask, partial=partial)
    except UnknownTopic as error:
        raise UnknownView(view) from error
    marks.check_age(clock.now_ms(), max_age_ms)
    definition = _definition(marks.layout)
    rows = [_window(definition, name, answer) for name, answer in found]
    return Page(definition, [row for row in rows if row.is_final or not is_final], next_after, marks)


def describe(state: State, layouts: Layouts, clock: Clock, view: str, timeout_ms: float = 1000) -> Described:
    """Read a view's layout anew, and how far all its lanes are.

    Raises UnknownView, StateUnavailable, CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, clock)
    try:
        layout = layouts.refresh(windows.state_name(view), deadline)
    except UnknownTopic as error:
        raise UnknownView(view) from error
    homes = lanes_of_topic(layout)
    keys = [home.watermark_key for home in homes]
    progress_keys = [
        redis_keys.lane_key(home.tag, layout.topic, layout.generation, b"p", str(home).encode())
        for home in homes
    ]
    calls = [
        Call(home.slot, (b"MGET", *pair))
        for home, pair in zip(homes, zip(progress_keys, keys, strict=True), strict=True)
    ]
    replies = state.run(calls, deadline)
    shards = state.hosts([home.slot for home in homes], deadline)
    lanes = []
    for home, shard, where, (progress, mark) in zip(homes, shards, progress_keys, replies, strict=True):
        watermark = None if mark is None else decode_watermark(home.watermark_key, mark)
        try:
            told = None if progress is None else windows.Progress.from_json(progress)
        except codec.CodecError as error:
            raise CorruptState(printable(where), str(error)) from error
        lanes.append((home, shard, watermark, told))
    return Described(_definition(layout), layout, lanes)


def _definition(layout: Layout) -> Definition:
    try:
        return windows.Definition.from_json(layout.options.view or "")
    except codec.CodecError as error:
        raise CorruptState(printable(redis_keys.layout_key(layout.topic)), str(error)) from error


def _split(name: str, found: bytes) -> tuple[bytes, int]:
    try:
        return windows.split(found)
    except codec.CodecError as error:
        raise CorruptState(f"{name}: {printable(found)}", str(error)) from error


def _window(view: Definition, name: bytes, answer: Answer) -> Window:
    record, watermark_ms = answer.record, answer.watermark.newest_timestamp_ms
    key, start_ms = _split(answer.layout.topic, name)
    try:
        end_ms, states = windows.decode_window(record.value if record else b"")
        columns = aggregates.shown(view.columns, states)
    except codec.CodecError as error:
        raise CorruptState(f"{answer.layout.topic}: {printable(name)}", str(error)) from error
    is_final = windows.is_final(end_ms, watermark_ms)
    changed_ms = record.timestamp_ms if record else 0
    return Window(key, None if end_ms is None else start_ms, end_ms, is_final, changed_ms, columns)
