"""Requests for views, and their answers.

    {"windows": [{"key": "JFK", "key_format": "text", "start": 1357034400000, "end": 1357038000000,
                  "final": true, "changed": 1795270000000, "values": {"flights": 12, "worst": 31.5}}],
     "event_time": 1357041600000, "age_ms": 212}

Times are ms since 1970; `start` and `end` are missing where the view has no windows. A window is `final` once
`event_time`, the event-time watermark of the lane, has reached its end: it changes no more. Until then its
values are early ones. `event_time` of the answer is the least of its lanes; missing where none has any yet.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from keylane.api import common_parameters, cursors, document, read_pages, terms
from keylane.api import event as event_api
from keylane.api.envelope import key_of
from keylane.api.parameters import Parameter, moment, switch, text
from keylane.errors import BadRequest
from keylane.state import windows

if TYPE_CHECKING:
    from keylane.api.event import Event
    from keylane.api.response import Response
    from keylane.config.functions import QuerySettings
    from keylane.model.records import Watermark
    from keylane.query import views
    from keylane.query.freshness import Watermarks
    from keylane.query.ranges import Span
    from keylane.state.lanes import Lane
    from keylane.state.windows import Progress

FROM = moment("from", "windows that start from this time on: ms since 1970, or ISO 8601")
TO = moment("to", "windows that start before this time")
FINAL = switch("final", "leave out windows that may still change: pages may be shorter")
PREFIX = text("prefix", "windows of keys that begin with this", terms.KEY_CHARACTERS)
KEY_FROM = text("key_from", "windows of keys from this one on, in bytewise order", terms.KEY_CHARACTERS)
KEY_TO = text("key_to", "windows of keys below this one", terms.KEY_CHARACTERS)
_COMMON = (
    FROM,
    TO,
    FINAL,
    read_pages.LIMIT,
    read_pages.CURSOR,
    event_api.KEY_FORMAT,
    common_parameters.PARTIAL,
    common_parameters.MAX_AGE_MS,
)
KEY: tuple[Parameter, ...] = _COMMON
KEYS: tuple[Parameter, ...] = (PREFIX, KEY_FROM, KEY_TO, *_COMMON)


@dataclass(frozen=True, slots=True)
class WindowsRequest:
    """A page of windows of one key (`span` None) or of a span of keys."""

    view: str
    key: bytes
    span: Span | None
    from_ms: int | None
    to_ms: int | None
    is_final: bool
    limit: int
    after: bytes | None
    asked: bytes
    partial: bool
    max_age_ms: int | None

    def bounds(self, settings: QuerySettings) -> dict[str, Any]:
        """The arguments that both use cases share."""
        return {
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "is_final": self.is_final,
            "limit": self.limit,
            "after": self.after,
            "partial": self.partial,
            "max_age_ms": self.max_age_ms,
            "timeout_ms": settings.state_timeout_ms,
        }


def of_key(event: Event, view: str, key: str) -> WindowsRequest:
    """Parse a GET of one key's windows. Raises BadRequest, which names the parameter at fault."""
    query = event_api.query_of(event)
    return _request(query, view_of(view), event_api.key_of(key, query), None)


def of_keys(event: Event, view: str) -> WindowsRequest:
    """Parse a GET of the windows of many keys. Raises BadRequest, which names the parameter at fault."""
    query = event_api.query_of(event)
    return _request(query, view_of(view), b"", read_pages.span_of(query, PREFIX, KEY_FROM, KEY_TO))


def view_of(raw: str) -> str:
    """The view's name in a path. Raises BadRequest."""
    try:
        name = event_api.topic_of(raw)
    except BadRequest:
        name = ""
    if not name or len(name) > windows.NAME_LIMIT:
        what = f"1 to {windows.NAME_LIMIT} of a-z, A-Z, 0-9, '.', '_' and '-'"
        raise BadRequest(f"this can't be a view's name: {what}", "view")
    return name


def _request(query: dict[str, str], view: str, key: bytes, span: Span | None) -> WindowsRequest:
    from_ms, to_ms = FROM.of(query), TO.of(query)
    if from_ms is not None and to_ms is not None and to_ms < from_ms:
        raise BadRequest("to is before from", "to")
    low_high = (span.low, span.high) if span else ()
    asked = cursors.digest("windows", key, *low_high, from_ms, to_ms)
    name = windows.state_name(view)
    cursor = read_pages.CURSOR.of(query)
    return WindowsRequest(
        view,
        key,
        span,
        from_ms,
        to_ms,
        FINAL.of(query),
        read_pages.LIMIT.of(query),
        None if cursor is None else cursors.decode(cursor, name, asked),
        asked,
        common_parameters.PARTIAL.of(query),
        common_parameters.MAX_AGE_MS.of(query),
    )


def answer(page: views.Page, request: WindowsRequest, now_ms: int) -> Response[str]:
    """The document of a page."""
    rows = []
    for window in page.rows:
        described: dict[str, Any] = dict(key_of(window.key))
        if window.end_ms is not None:
            described |= {"start": window.start_ms, "end": window.end_ms, "final": window.is_final}
        described["changed"] = window.changed_ms
        rows.append(f'{json.dumps(described)[:-1]}, "values": {window.columns}}}')
    told: dict[str, Any] = {}
    if page.next_after is not None:
        name = windows.state_name(request.view)
        told["next"] = cursors.encode(name, request.asked, page.next_after)
    freshness = document.freshness_of(page.marks, now_ms)
    # How many commits a lane has had tells nobody anything; up to which event time they go does.
    del freshness["watermarks"]
    told |= _event_time(page.marks) | freshness
    return document.document(f'"windows": [{", ".join(rows)}]', told, page.marks.layout.topic)


def _event_time(marks: Watermarks) -> dict[str, int]:
    return _least(mark.newest_timestamp_ms for mark in marks.by_lane.values())


def _least(times: Any) -> dict[str, int]:
    least = min(times, default=0)
    return {"event_time": least} if least else {}


def described(view: str, found: views.Described, now_ms: int) -> Response[str]:
    """The document of a view itself."""
    definition, layout = found.view, found.layout
    lanes = [_lane(*lane, now_ms) for lane in found.lanes]
    progresses = [progress for *_, progress in found.lanes if progress]
    ages = [lane["age_ms"] for lane in lanes if "age_ms" in lane]
    return document.plain(
        {
            "view": view,
            "topic": definition.topic,
            "key": definition.key,
            "time": definition.time,
            "where": definition.where,
            "window": {
                "kind": definition.window,
                "size_ms": definition.size_ms,
                "every_ms": definition.every_ms,
            },
            "lateness_ms": definition.lateness_ms,
            "ttl_ms": definition.ttl_ms,
            "columns": [asdict(column) for column in definition.columns],
            "partitions": layout.partition_count,
            "generation": layout.generation,
            "building": any(lane["building"] for lane in lanes),
            "incomplete": any(lane["incomplete"] for lane in lanes),
            **({"age_ms": max(ages)} if len(ages) == len(lanes) else {}),
            **_least(mark.newest_timestamp_ms if mark else 0 for _, _, mark, _ in found.lanes),
            "late": sum(progress.late for progress in progresses),
            "invalid": sum(progress.invalid for progress in progresses),
            "lanes": lanes,
        }
    )


def _lane(
    home: Lane, shard: str, mark: Watermark | None, progress: Progress | None, now_ms: int
) -> dict[str, Any]:
    lane: dict[str, Any] = {
        "partition": home.partition,
        "slot": home.slot,
        "shard": shard,
        "building": not (mark and mark.complete_as_of_ms),
        "incomplete": bool(mark and mark.incomplete),
        "offsets": list(progress.offsets) if progress else [],
        "late": progress.late if progress else 0,
    }
    if mark and mark.complete_as_of_ms:
        lane["age_ms"] = max(0, now_ms - mark.complete_as_of_ms)
    return lane
