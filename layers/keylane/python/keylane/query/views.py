"""Reads views: the windows of one key or of a span of keys, and the description of a view."""

from dataclasses import dataclass

from keylane import routing
from keylane.errors import CorruptState, UnknownTopic, UnknownView, ViewNotOpened
from keylane.model.keys import check_key, printable
from keylane.model.records import Layout, Record, Watermark
from keylane.ports import Call, Deadline
from keylane.query.listed_names import read_names
from keylane.query.range_rows import RangeReader, Row
from keylane.query.span import RangeScan, Span
from keylane.query.store import Reading, ReadTerms, Store, Watermarks, begin_reading, read_current
from keylane.query.topics import NextGeneration, building_layout
from keylane.state import aggregates, codec, redis_keys, windows
from keylane.state.lanes import Lane, decode_watermark, lane_of_key, lanes_of_topic
from keylane.state.windows import Definition, Progress

FIRST_MS, LAST_MS = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Window:
    """A window; `columns`: a JSON object. Both times are None where the view has no windows.

    `is_final`: the event-time watermark has reached its end, so it changes no more. `changed_ms`: when its
    last change was written, ms since 1970.
    """

    key: bytes
    start_ms: int | None
    end_ms: int | None
    is_final: bool
    changed_ms: int
    columns: str


@dataclass(frozen=True, slots=True)
class WindowScan:
    """A page of a view's windows that start from `from_ms` on and before `to_ms`.

    `keys`: one key, or a span of keys. `final_only`: without windows that may still change. `after`: the
    `next_after` of the page before.
    """

    view: str
    keys: bytes | Span
    limit: int
    from_ms: int | None = None
    to_ms: int | None = None
    final_only: bool = False
    after: bytes | None = None

    @property
    def state_name(self) -> str:
        """The view's name in Redis, which takes the position of a topic's name in keys."""
        return windows.state_name(self.view)

    def starts_in_time(self, window_key: bytes) -> bool:
        """Return whether the window starts within the two times. Raises CorruptState."""
        _, start_ms = _split(self.state_name, window_key)
        return (self.from_ms is None or self.from_ms <= start_ms) and (
            self.to_ms is None or start_ms < self.to_ms
        )

    def range_scan(self) -> RangeScan:
        """Return the scan of the window keys: times bound the span of one key, and filter a span of keys."""
        if isinstance(self.keys, Span):
            high = None if self.keys.high is None else windows.escaped(self.keys.high)
            span = Span(windows.escaped(self.keys.low), high)
            return RangeScan(span, self.limit, self.after, is_wanted=self.starts_in_time)
        low = windows.window_key(self.keys, FIRST_MS if self.from_ms is None else self.from_ms)
        high = windows.window_key(self.keys, LAST_MS if self.to_ms is None else self.to_ms)
        return RangeScan(Span(low, high), self.limit, self.after)


@dataclass(frozen=True, slots=True)
class WindowPage:
    """Windows in the order of keys, then of starts. `next_after`: where the page ended, None at the end."""

    view: Definition
    rows: list[Window]
    next_after: bytes | None
    watermarks: Watermarks


@dataclass(frozen=True, slots=True)
class ViewLane:
    """A lane of a view, its primary as "host:port", and its progress: None before it begins."""

    lane: Lane
    shard: str
    watermark: Watermark | None
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class ViewDescription:
    """A view and its lanes. `stopped`: why it does not run, "" if it does. `next`: what is being built."""

    view: Definition
    layout: Layout
    lanes: list[ViewLane]
    stopped: str = ""
    next: NextGeneration | None = None


@dataclass(frozen=True, slots=True)
class ListedView:
    """A view in the list. `layout`: None where it was never opened. `stopped`: as in ViewDescription."""

    layout: Layout | None
    stopped: str = ""


def read_windows(store: Store, scan: WindowScan, terms: ReadTerms) -> WindowPage:
    """Read a page of a view's windows; those of one key come from its lane alone.

    A page is shorter, even empty, where it takes long to find the next window. Raises NullKey, TooLarge,
    UnknownView, ViewNotOpened, LaneBuilding, StateTooOld, StateUnavailable, CorruptState.
    """
    if isinstance(scan.keys, bytes):
        check_key(scan.keys)
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    try:
        begun = begin_reading(store, scan.state_name, deadline)
        (rows, next_after), reading = read_current(begun, _read_rows, scan, terms)
    except UnknownTopic as error:
        raise _why_unknown(store, scan.view, deadline) from error
    reading.check(terms)
    definition = definition_of(reading.layout)
    found = [
        _window(definition, scan.state_name, record, reading.watermarks.by_lane[lane].newest_timestamp_ms)
        for _, lane, record in rows
        if isinstance(record, Record)
    ]
    kept = [window for window in found if window.is_final or not scan.final_only]
    return WindowPage(definition, kept, next_after, reading.watermarks)


def _read_rows(reading: Reading, scan: WindowScan, terms: ReadTerms) -> tuple[list[Row], bytes | None]:
    return RangeReader(reading, _lanes_of(scan, reading.layout), scan.range_scan(), terms).read()


def list_views(store: Store, timeout_ms: float) -> dict[str, ListedView]:
    """Return all views, by name; definitions as old as layouts may be.

    Raises StateUnavailable, CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    found: dict[str, ListedView] = {}
    names = read_names(store, redis_keys.views_key, deadline)
    for name, stopped in zip(names, _why_stopped(store, names, deadline), strict=True):
        try:
            found[name] = ListedView(store.layouts.get(windows.state_name(name), deadline), stopped)
        except UnknownTopic:
            if stopped:
                found[name] = ListedView(None, stopped)
    return found


def _why_stopped(store: Store, views: list[str], deadline: Deadline) -> list[str]:
    """Return of each view why it does not run; "" where it does, or where nothing is known."""
    if not views:
        return []
    keys = [redis_keys.stopped_key(view) for view in views]
    found = store.state.read(routing.key_slot(keys[0]), keys, deadline)
    return list(map(_reason, found))


def _why_unknown(store: Store, view: str, deadline: Deadline) -> UnknownView | ViewNotOpened:
    (stopped,) = _why_stopped(store, [view], deadline)
    return ViewNotOpened(view, stopped) if stopped else UnknownView(view)


def definition_of(layout: Layout) -> Definition:
    """Return what a view computes. Raises CorruptState."""
    try:
        return windows.Definition.from_json(layout.options.view or "")
    except codec.CodecError as error:
        raise CorruptState(printable(redis_keys.layout_key(layout.topic)), str(error)) from error


def describe_view(store: Store, view: str, timeout_ms: float) -> ViewDescription:
    """Read a view's layout and how far all its lanes are; nothing is taken from the cache.

    Raises UnknownView, ViewNotOpened, StateUnavailable, CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    try:
        layout = store.layouts.refresh(windows.state_name(view), deadline)
    except UnknownTopic as error:
        raise _why_unknown(store, view, deadline) from error
    lanes = lanes_of_topic(layout)
    keys = [(_progress_key(layout, lane), lane.watermark_key) for lane in lanes]
    calls = [Call(lane.slot, (b"MGET", *pair)) for lane, pair in zip(lanes, keys, strict=True)]
    replies = store.state.run(calls, deadline)
    shards = store.state.hosts([lane.slot for lane in lanes], deadline)
    described = [
        ViewLane(
            lane,
            shard,
            None if watermark is None else decode_watermark(lane.watermark_key, watermark),
            None if progress is None else _decode_progress(_progress_key(layout, lane), progress),
        )
        for lane, shard, (progress, watermark) in zip(lanes, shards, replies, strict=True)
    ]
    # Both have the tag of records: one read.
    names = [redis_keys.stopped_key(view), redis_keys.record_key(windows.state_name(view))]
    stopped, record = store.state.read(routing.key_slot(names[0]), names, deadline)
    building = building_layout(record)
    following = NextGeneration(building.generation) if building else None
    return ViewDescription(definition_of(layout), layout, described, _reason(stopped), following)


def _reason(stored: bytes | None) -> str:
    return (stored or b"").decode(errors="replace")


def _progress_key(layout: Layout, lane: Lane) -> bytes:
    return redis_keys.lane_key(lane.tag, layout.topic, layout.generation, b"p", str(lane).encode())


def _decode_progress(redis_key: bytes, data: bytes) -> Progress:
    try:
        return windows.Progress.from_json(data)
    except codec.CodecError as error:
        raise CorruptState(printable(redis_key), str(error)) from error


def _lanes_of(scan: WindowScan, layout: Layout) -> list[Lane]:
    return [lane_of_key(layout, scan.keys)] if isinstance(scan.keys, bytes) else lanes_of_topic(layout)


def _split(state_name: str, window_key: bytes) -> tuple[bytes, int]:
    try:
        return windows.split(window_key)
    except codec.CodecError as error:
        raise CorruptState(f"{state_name}: {printable(window_key)}", str(error)) from error


def _window(view: Definition, state_name: str, record: Record, event_time_ms: int) -> Window:
    key, start_ms = _split(state_name, record.key)
    try:
        end_ms, states = windows.decode_window(record.value)
        columns = aggregates.render_columns(view.columns, states)
    except codec.CodecError as error:
        raise CorruptState(f"{state_name}: {printable(record.key)}", str(error)) from error
    is_final = windows.is_final(end_ms, event_time_ms)
    return Window(key, None if end_ms is None else start_ms, end_ms, is_final, record.timestamp_ms, columns)
