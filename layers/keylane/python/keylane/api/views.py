"""Views: the requests for windows and for a view's description, and the responses.

    {"windows": [{"key": "JFK", "key_format": "text", "start": 1357034400000, "end": 1357038000000,
                  "final": true, "changed": 1795270000000, "values": {"flights": 12, "worst": 31.5}}],
     "event_time": 1357041600000, "age_ms": 212}

Times are ms since 1970; `start` and `end` are missing where the view has no windows. A window is `final` once
`event_time`, the event-time watermark of its lane, has reached its end: it changes no more. Until then its
values are early ones. `event_time` of the answer is the least of its lanes; missing where none has any yet.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from keylane.api import cursors
from keylane.api import event as event_api
from keylane.api.common_parameters import (
    CURSOR,
    KEY_CHARACTERS,
    LIMIT,
    MAX_AGE_MS,
    PARTIAL,
    parse_cursor,
    parse_terms,
)
from keylane.api.envelope import render_key
from keylane.api.json_response import freshness_of_lanes, render_fresh, render_json
from keylane.api.parameters import Parameter, moment, switch, text
from keylane.api.read_pages import parse_span, parse_times
from keylane.errors import BadRequest
from keylane.query.span import Span
from keylane.query.views import WindowScan, definition_of
from keylane.state import windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from keylane.api.event import Event
    from keylane.api.response import Response
    from keylane.config.functions import QuerySettings
    from keylane.model.records import Layout
    from keylane.query.store import ReadTerms
    from keylane.query.views import ViewDescription, ViewLane, Window, WindowPage
    from keylane.state.windows import Definition

FROM = moment("from", "windows that start from this time on: ms since 1970, or ISO 8601")
TO = moment("to", "windows that start before this time")
FINAL = switch("final", "leave out windows that may still change: pages may be shorter")
PREFIX = text("prefix", "windows of keys that begin with this", KEY_CHARACTERS)
KEY_FROM = text("key_from", "windows of keys from this one on, in bytewise order", KEY_CHARACTERS)
KEY_TO = text("key_to", "windows of keys below this one", KEY_CHARACTERS)
KEY: tuple[Parameter, ...] = (FROM, TO, FINAL, LIMIT, CURSOR, event_api.KEY_FORMAT, PARTIAL, MAX_AGE_MS)
KEYS: tuple[Parameter, ...] = (PREFIX, KEY_FROM, KEY_TO, *KEY)


@dataclass(frozen=True, slots=True)
class WindowsRequest:
    """A page of a view's windows; `bounds` is what its cursor holds of the request."""

    scan: WindowScan
    bounds: bytes
    terms: ReadTerms


def parse_windows_of_key(event: Event, view: str, key: str, settings: QuerySettings) -> WindowsRequest:
    """Parse a GET of one key's windows. Raises BadRequest, which names the parameter at fault."""
    query = event_api.query_of(event)
    return _parse_windows(query, parse_view(view), event_api.key_of(key, query), settings)


def parse_windows_of_span(event: Event, view: str, settings: QuerySettings) -> WindowsRequest:
    """Parse a GET of the windows of a span of keys. Raises BadRequest, which names the parameter at fault."""
    query = event_api.query_of(event)
    return _parse_windows(query, parse_view(view), parse_span(query, PREFIX, KEY_FROM, KEY_TO), settings)


def parse_view(raw: str) -> str:
    """Decode and check the name of a view in a request's path. Raises BadRequest."""
    try:
        name = event_api.topic_of(raw)
    except BadRequest:
        name = ""
    if not name or len(name) > windows.NAME_LIMIT:
        what = f"1 to {windows.NAME_LIMIT} of a-z, A-Z, 0-9, '.', '_' and '-'"
        raise BadRequest(f"this can't be a view's name: {what}", "view")
    return name


def _parse_windows(
    query: dict[str, str], view: str, keys: bytes | Span, settings: QuerySettings
) -> WindowsRequest:
    from_ms, to_ms = parse_times(query, FROM, TO)
    named = (b"", keys.low, keys.high) if isinstance(keys, Span) else (keys,)
    bounds = cursors.digest("windows", *named, from_ms, to_ms)
    after = parse_cursor(query, windows.state_name(view), bounds)
    scan = WindowScan(view, keys, from_ms, to_ms, FINAL.of(query), LIMIT.of(query), after)
    return WindowsRequest(scan, bounds, parse_terms(query, settings))


def render_windows(page: WindowPage, request: WindowsRequest, now_ms: int) -> Response[str]:
    """Render a page of windows; `next` is there unless it is the last page."""
    rows = ", ".join([_render_window(window) for window in page.rows])
    more: dict[str, Any] = dict(cursors.render_next(request.scan.state_name, request.bounds, page.next_after))
    more |= _event_time(each.newest_timestamp_ms for each in page.watermarks.by_lane.values())
    freshness = freshness_of_lanes(page.watermarks, now_ms)
    # The number of a lane's commits is of no use to clients; the event time that they reach is.
    del freshness.fields["watermarks"]
    return render_fresh(f'"windows": [{rows}]', freshness, more)


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


def render_views(layouts: Mapping[str, Layout]) -> Response[str]:
    """Render `{"views": [{"view": "departures", "topic": "flights", "window": {...}, "columns": [...]}]}`."""
    return render_json({"views": [_render_listed(name, layout) for name, layout in layouts.items()]})


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
            "lanes": lanes,
        }
    )


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
