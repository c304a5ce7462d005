"""The changes of one key: by Server-Sent Events where the service streams them, else by long polls.

The first read is a plain one. Then the stream is asked for; what refuses it (a function answers 501, an older
service 404) is polled. A session reads its own write first, and resumes the stream from there.

A present record is polled with `If-None-Match`, which the service answers once another record has arrived.
For an absent key the service has nothing to wait for. So the client waits for the next position of the key's
lane: whatever arrives there may be the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane_client.answers import Absent, Record
from keylane_client.errors import KeyAbsent, PositionNotReached
from keylane_client.parsing import (
    expect_keylane,
    parse_absence,
    parse_absent,
    parse_bare_record,
    parse_record,
)
from keylane_client.reads import SESSION_WAIT_S, key_path
from keylane_client.wire import EVENT_STREAM, ApiRequest, ApiResponse, Conversation, LiveStream, Step, Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane_client.answers import Position
    from keylane_client.context import TopicScope
    from keylane_client.encoding import Key
    from keylane_client.events import ServerEvent

_NOT_MODIFIED = 304
_BUSY_LANE_S = 0.25
"""Between reads of an absent key: its lane may have many records of others."""


def watch_key(topic: TopicScope, key: Key, wait_s: float) -> Stream[Record | Absent]:
    """Read a key, then each of its changes."""
    path, query = key_path(topic.name, key)
    query |= topic.terms.query()

    def read(headers: Mapping[str, str], delay_s: float) -> Conversation[ApiResponse]:
        request = ApiRequest(
            "GET", path, query, headers, also_answers=frozenset({_NOT_MODIFIED}), delay_s=delay_s
        )
        return (yield request)

    def step(last: Record | Absent | str) -> Conversation[Step[Record | Absent]]:
        headers, delay_s = _wait_headers(last, wait_s)
        if last == _START and topic.context.ledger:
            position = topic.context.ledger.position_of(topic.name, key)
            if position is not None:
                headers = {"Keylane-Min-Position": str(position), "Prefer": f"wait={SESSION_WAIT_S}"}
        try:
            response = yield from read(headers, delay_s)
        except KeyAbsent as error:
            found: Record | Absent = parse_absent(error.headers, topic.name, key)
            return Step([] if isinstance(last, Absent) else [found], found)
        except PositionNotReached:
            if not isinstance(last, Absent):
                raise
            return Step([], last)
        if response.status == _NOT_MODIFIED:
            return Step([], last)
        found = parse_bare_record(response, topic.name, key, topic.context.loads)
        is_new = not isinstance(last, Record) or last.position != found.position
        return Step([found] if is_new else [], found)

    live = None if topic.terms.max_age is not None else _live(topic, key)
    return Stream(step, _START, live)


def _live(topic: TopicScope, key: Key) -> LiveStream[Record | Absent]:
    path, query = key_path(topic.name, key)
    query |= topic.terms.query()

    def request(last: Record | Absent | str) -> ApiRequest:
        headers = {"Accept": EVENT_STREAM}
        if isinstance(last, Record):
            headers["Last-Event-ID"] = str(last.position)
        return ApiRequest("GET", f"{path}/changes", query, headers)

    def take(event: ServerEvent, last: Record | Absent | str) -> Step[Record | Absent]:
        if event.name not in (_RECORD, _ABSENT):
            return Step([], last)  # it says how the stream is, and not how the key is
        with expect_keylane():
            document = topic.context.loads(event.data)
            record = parse_record(document, topic.name)
            found: Record | Absent = record or parse_absence(document, topic.name, key)
        is_known = isinstance(last, Absent) if record is None else _position(last) == record.position
        return Step([] if is_known else [found], found)

    return LiveStream(request, take)


def _position(last: Record | Absent | str) -> Position | None:
    return last.position if isinstance(last, Record) else None


_RECORD, _ABSENT = "record", "absent"
_START = ""


def _wait_headers(last: Record | Absent | str, wait_s: float) -> tuple[dict[str, str], float]:
    prefer = {"Prefer": f"wait={wait_s:g}"}
    if isinstance(last, Record):
        return {**prefer, "If-None-Match": last.etag}, 0
    if isinstance(last, Absent) and last.watermark:
        return {**prefer, "Keylane-Min-Position": str(last.watermark)}, _BUSY_LANE_S
    return {}, 0 if last == _START else 1
