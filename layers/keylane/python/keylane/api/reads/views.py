"""Views: the requests for windows and for a view's description, and the responses.

    {"windows": [{"key": "JFK", "key_format": "text", "start": 1357034400000, "end": 1357038000000,
                  "final": true, "changed": 1795270000000, "values": {"flights": 12, "worst": 31.5}}],
     "event_time": 1357041600000, "age_ms": 212}

Times are ms since 1970; `start` and `end` are missing where the view has no windows. A window is `final` once
`event_time`, the event-time watermark of its lane, has reached its end: it changes no more. Until then its
values are early ones. `event_time` of the answer is the least of its lanes; missing where none has any yet.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from keylane.api.http import cursors
from keylane.api.http.common_parameters import (
    CURSOR,
    KEY_CHARACTERS,
    KEY_FORMAT,
    LIMIT,
    MAX_AGE_MS,
    PARTIAL,
    bounds_of,
    parse_cursor,
    parse_key,
    parse_terms,
)
from keylane.api.http.json_response import freshness_of_lanes, render_json, render_rows
from keylane.api.http.parameters import Parameter, moment, switch, text
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import (
    COUNT,
    FLAG,
    FRESHNESS,
    MAYBE_TEXT,
    PAGE,
    TEXT,
    TIME,
    UNSURE,
    Schema,
    an_array,
    an_object,
)
from keylane.api.http.schemas import KEY as KEY_FIELDS
from keylane.api.reads.envelope import render_key
from keylane.api.reads.pages import parse_span, parse_times
from keylane.api.reads.topics import NEXT_SCHEMA, render_next
from keylane.config.functions import QuerySettings
from keylane.errors import BadRequest
from keylane.model.records import Layout
from keylane.query.span import Span
from keylane.query.store import ReadTerms
from keylane.query.views import (
    ListedView,
    ViewDescription,
    ViewLane,
    Window,
    WindowPage,
    WindowScan,
    definition_of,
)
from keylane.state import windows
from keylane.state.windows import Definition, Progress

FROM = moment("from", "windows that start from this time on: ms since 1970, or ISO 8601")
TO = moment("to", "windows that start before this time")
FINAL = switch("final", "leave out windows that may still change: pages may be shorter")
PREFIX = text("prefix", "windows of keys that begin with this", KEY_CHARACTERS)
KEY_FROM = text("key_from", "windows of keys from this one on, in bytewise order", KEY_CHARACTERS)
KEY_TO = text("key_to", "windows of keys below this one", KEY_CHARACTERS)
KEY: tuple[Parameter, ...] = (FROM, TO, FINAL, LIMIT, CURSOR, KEY_FORMAT, PARTIAL, MAX_AGE_MS)
KEYS: tuple[Parameter, ...] = (PREFIX, KEY_FROM, KEY_TO, *KEY)


@dataclass(frozen=True, slots=True)
class WindowsRequest:
    """A page of a view's windows; `bounds` is what its cursor holds of the request."""

    scan: WindowScan
    bounds: bytes
    terms: ReadTerms


def parse_windows_of_key(request: Request, view: str, key: str, settings: QuerySettings) -> WindowsRequest:
    """Parse a GET of one key's windows. Raises BadRequest, which names the parameter at fault."""
    return _parse_windows(request, parse_view(view), parse_key(request, key), settings)


def parse_windows_of_span(request: Request, view: str, settings: QuerySettings) -> WindowsRequest:
    """Parse a GET of the windows of a span of keys. Raises BadRequest, which names the parameter at fault."""
    return _parse_windows(request, parse_view(view), parse_span(request, PREFIX, KEY_FROM, KEY_TO), settings)


def parse_view(raw: str) -> str:
    """Decode and check the name of a view in a request's path. Raises BadRequest."""
    try:
        name = topic_of(raw)
    except BadRequest:
        name = ""
    if not name or len(name) > windows.NAME_LIMIT:
        what = f"1 to {windows.NAME_LIMIT} of a-z, A-Z, 0-9, '.', '_' and '-'"
        raise BadRequest(f"this can't be a view's name: {what}", "view")
    return name


def _parse_windows(
    request: Request, view: str, keys: bytes | Span, settings: QuerySettings
) -> WindowsRequest:
    from_ms, to_ms = parse_times(request, FROM, TO)
    named = (b"", keys.low, keys.high) if isinstance(keys, Span) else (keys,)
    bounds = bounds_of(request, "windows", *named, from_ms, to_ms)
    after = parse_cursor(request, windows.state_name(view), bounds)
    is_final, limit = FINAL.of(request), LIMIT.of(request)
    scan = WindowScan(view, keys, limit, from_ms, to_ms, is_final, after)
    return WindowsRequest(scan, bounds, parse_terms(request, settings))


WINDOW_SCHEMA = Schema.of(
    "Window",
    optional=("start", "end", "final"),
    **KEY_FIELDS,
    start=TIME,
    end=TIME,
    final={**FLAG, "description": "the window will not change any more"},
    changed=COUNT,
    values={"type": "object", "description": "value by column of the view"},
)
WINDOWS_SCHEMA = Schema.of(
    "Windows",
    optional=("event_time", *PAGE, *UNSURE),
    windows=an_array(WINDOW_SCHEMA),
    event_time={**COUNT, "description": "windows that end at or before this time are final"},
    **PAGE,
    age_ms=FRESHNESS["age_ms"],
    building=FLAG,
    incomplete=FLAG,
)


def render_windows(page: WindowPage, request: WindowsRequest, now_ms: int) -> Response[str]:
    """Render a page of windows; `next` is there unless it is the last page."""
    rows = [_render_window(window) for window in page.rows]
    more: dict[str, Any] = dict(cursors.render_next(request.scan.state_name, request.bounds, page.next_after))
    more |= _event_time(each.newest_timestamp_ms for each in page.watermarks.by_lane.values())
    freshness = freshness_of_lanes(page.watermarks, now_ms)
    # The number of a lane's commits is of no use to clients; the event time that they reach is.
    del freshness.fields["watermarks"]
    return render_rows(rows, freshness, more, before='"windows": [')


def _render_window(window: Window) -> str:
    fields: dict[str, Any] = dict(render_key(window.key))
    if window.end_ms is not None:
        fields |= {"start": window.start_ms, "end": window.end_ms, "final": window.is_final}
    fields["changed"] = window.changed_ms
    return f'{json.dumps(fields)[:-1]}, "values": {window.columns}}}'


def _event_time(times_ms: Iterable[int]) -> dict[str, int]:
    """Return the field `event_time`; nothing where a lane has none yet."""
    least_ms = min(times_ms, default=0)
    return {"event_time": least_ms} if least_ms else {}


_WINDOW_KIND = an_object(kind={"enum": ["tumbling", "hopping", "session", "none"]})
_STOPPED: dict[str, Any] = {
    **TEXT,
    "description": "why the view does not run: its windows stay as they are",
}
LISTED_VIEW_SCHEMA = Schema.of(
    "ListedView",
    optional=("topic", "key", "window", "columns", "partitions", "generation", "stopped"),
    view=TEXT,
    topic=TEXT,
    key=MAYBE_TEXT,
    window=_WINDOW_KIND,
    columns=an_array(TEXT),
    partitions=COUNT,
    generation=COUNT,
    stopped=_STOPPED,
)
VIEWS_SCHEMA = Schema.of("Views", views=an_array(LISTED_VIEW_SCHEMA))


def render_views(found: Mapping[str, ListedView]) -> Response[str]:
    """Render `{"views": [{"view": "departures", "topic": "flights", "window": {...}, "columns": [...]}]}`.

    One that was never opened has only its name, and in `stopped` the reason.
    """
    views = []
    for name, each in found.items():
        listed = _render_listed(name, each.layout) if each.layout else {"view": name}
        views.append(listed | ({"stopped": each.stopped} if each.stopped else {}))
    return render_json({"views": views})


def _render_listed(view: str, layout: Layout) -> dict[str, Any]:
    definition = definition_of(layout)
    return {
        "view": view,
        "topic": definition.topic,
        "key": definition.key,
        "window": _render_kind(definition),
        "columns": [column.name for column in definition.columns],
        "partitions": layout.partition_count,
        "generation": layout.generation,
    }


def _render_kind(definition: Definition) -> dict[str, Any]:
    return {"kind": definition.window, "size_ms": definition.size_ms, "every_ms": definition.every_ms}


VIEW_SCHEMA = Schema.of(
    "View",
    optional=(
        "key",
        "time",
        "where",
        "lateness_ms",
        "ttl_ms",
        "event_time",
        "failed_at",
        "stopped",
        "next",
        *UNSURE,
    ),
    view=TEXT,
    topic=TEXT,
    of={"enum": list(windows.VIEWED), "description": "what counts: each record, or each key's latest one"},
    key=MAYBE_TEXT,
    time=MAYBE_TEXT,
    where=MAYBE_TEXT,
    window=_WINDOW_KIND,
    lateness_ms=COUNT,
    ttl_ms={"type": ["integer", "null"]},
    columns=an_array(an_object(name=TEXT, kind=TEXT)),
    partitions=COUNT,
    generation=COUNT,
    building=FLAG,
    incomplete=FLAG,
    age_ms=COUNT,
    event_time=COUNT,
    late={**COUNT, "description": "records that arrived after their window had become final"},
    invalid={**COUNT, "description": "records without a key or a time"},
    failed={**COUNT, "description": "records on which the view's expressions failed"},
    failed_at={**TEXT, "description": "the position of the last of them"},
    stopped=_STOPPED,
    next=NEXT_SCHEMA,
    lanes=an_array({"type": "object"}),
)


def render_view(view: str, found: ViewDescription, now_ms: int) -> Response[str]:
    """Render what a view computes, and how far its lanes are."""
    definition, layout = found.view, found.layout
    lanes = [_render_lane(lane, now_ms) for lane in found.lanes]
    progresses = [lane.progress for lane in found.lanes if lane.progress]
    ages = [lane["age_ms"] for lane in lanes if "age_ms" in lane]
    times_ms = [lane.watermark.newest_timestamp_ms if lane.watermark else 0 for lane in found.lanes]
    return render_json(
        {
            "view": view,
            "topic": definition.topic,
            "of": windows.KEYS if definition.has_rows else windows.LOG,
            "key": definition.key,
            "time": definition.time,
            "where": definition.where,
            "window": _render_kind(definition),
            "lateness_ms": definition.lateness_ms,
            "ttl_ms": definition.ttl_ms,
            "columns": [asdict(column) for column in definition.columns],
            "partitions": layout.partition_count,
            "generation": layout.generation,
            "building": any(lane["building"] for lane in lanes),
            "incomplete": any(lane["incomplete"] for lane in lanes),
            **({"age_ms": max(ages)} if len(ages) == len(lanes) else {}),
            **_event_time(times_ms),
            "late": sum(progress.late for progress in progresses),
            "invalid": sum(progress.invalid for progress in progresses),
            "failed": sum(progress.failed for progress in progresses),
            **({"stopped": found.stopped} if found.stopped else {}),
            **_trouble(progresses),
            **render_next(found.next),
            "lanes": lanes,
        }
    )


def _trouble(progresses: Sequence[Progress]) -> dict[str, str]:
    """Where a record has failed, and why the view has stopped, where that is so."""
    fields = {
        name: next((found for each in progresses if (found := getattr(each, name))), "")
        for name in ("failed_at", "stopped")
    }
    return {name: found for name, found in fields.items() if found}


def _render_lane(view: ViewLane, now_ms: int) -> dict[str, Any]:
    lane, watermark, progress = view.lane, view.watermark, view.progress
    fields: dict[str, Any] = {
        "partition": lane.partition,
        "slot": lane.slot,
        "shard": view.shard,
        "building": not (watermark and watermark.complete_as_of_ms),
        "incomplete": bool(watermark and watermark.incomplete),
        "offsets": list(progress.offsets) if progress else [],
        "late": progress.late if progress else 0,
    }
    if watermark and watermark.complete_as_of_ms:
        fields["age_ms"] = max(0, now_ms - watermark.complete_as_of_ms)
    return fields
