"""Requests for ranges and histories, and the pages that answer them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.api import cursors
from keylane.api import event as event_api
from keylane.api.parameters import Parameter, moment, switch, text, whole
from keylane.errors import BadRequest
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.query.ranges import Span

if TYPE_CHECKING:
    from keylane.api.event import Event
    from keylane.api.response import Response
from typing import TYPE_CHECKING

from keylane.api.envelope import Envelopes, headers_of, key_of, with_value
from keylane.errors import HistoryTooShort

if TYPE_CHECKING:
    from keylane.query import history, ranges
    from keylane.query.freshness import Watermarks
from keylane.api.document import document, freshness_of
from keylane.api.envelope import _row
from keylane.api.terms import COMMON, KEY_CHARACTERS, Terms, bytes_of, terms_of

LIMIT = whole("limit", "how many records a page has at most", 1, 1000, 100)


CURSOR = text(
    "cursor", "`next` of the page before, asked for with the same bounds", cursors.LONGEST_CHARACTERS
)


KEYS_ONLY = switch("keys_only", "the keys without their records")


PREFIX = text("prefix", "keys that begin with this", KEY_CHARACTERS)


FROM_KEY = text("from", "keys from this one on, in bytewise order", KEY_CHARACTERS)


TO_KEY = text("to", "keys below this one", KEY_CHARACTERS)


FROM_TIME = moment("from", "records from this time on: ms since 1970, or ISO 8601")


TO_TIME = moment("to", "records before this time")


AS_OF_TIME = moment("as_of", "the records that were in force at this time")


RANGE: tuple[Parameter, ...] = (
    *(PREFIX, FROM_KEY, TO_KEY, event_api.KEY_FORMAT, LIMIT, CURSOR, KEYS_ONLY, AS_OF_TIME),
    *COMMON,
)


HISTORY: tuple[Parameter, ...] = (event_api.KEY_FORMAT, FROM_TIME, TO_TIME, LIMIT, CURSOR, *COMMON)


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A page of a topic's keys; `asked` is what its cursor holds of it."""

    topic: str
    span: Span
    limit: int
    after: bytes | None
    keys_only: bool
    as_of_ms: int | None
    asked: bytes
    terms: Terms


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """A page of a key's history; `asked` is what its cursor holds of it."""

    topic: str
    key: bytes
    from_ms: int | None
    to_ms: int | None
    limit: int
    after: bytes | None
    asked: bytes
    terms: Terms


def range_request(event: Event, topic: str) -> RangeRequest:
    """Parse a GET of a topic's keys in order. Raises BadRequest, which names the parameter at fault."""
    query = event_api.query_of(event)
    name = event_api.topic_of(topic)
    span = span_of(query)
    as_of_ms = AS_OF_TIME.of(query)
    asked = cursors.digest("keys", span.low, span.high, as_of_ms)
    after = _after(query, name, asked)
    return RangeRequest(
        name, span, LIMIT.of(query), after, KEYS_ONLY.of(query), as_of_ms, asked, terms_of(event)
    )


def span_of(
    query: dict[str, str], prefix_of: Parameter = PREFIX, from_: Parameter = FROM_KEY, to: Parameter = TO_KEY
) -> Span:
    """The keys that these three parameters ask for. Raises BadRequest."""
    prefix, low, high = prefix_of.of(query), from_.of(query), to.of(query)
    is_base64 = event_api.KEY_FORMAT.of(query) == "base64"
    if prefix is not None and (low is not None or high is not None):
        raise BadRequest(f"give prefix, or {from_.name} and {to.name}, not both", "prefix")
    if prefix is not None:
        return Span.of_prefix(_bound(prefix, "prefix", is_base64=is_base64))
    first = _bound(low or "", from_.name, is_base64=is_base64)
    last = None if high is None else _bound(high, to.name, is_base64=is_base64)
    if last is not None and last < first:
        raise BadRequest(f"{to.name} is below {from_.name}", to.name)
    return Span(first, last)


def _bound(given: str, parameter: str, *, is_base64: bool) -> bytes:
    data = bytes_of(given, parameter, is_base64=is_base64)
    if len(data) > KEY_LIMIT_BYTES:
        raise BadRequest(f"{parameter} has {len(data)} bytes, a key {KEY_LIMIT_BYTES} at most", parameter)
    return data


def history_request(event: Event, topic: str, key: str) -> HistoryRequest:
    """Parse a GET of a key's history. Raises BadRequest, which names the parameter at fault."""
    query = event_api.query_of(event)
    name, data = event_api.topic_of(topic), event_api.key_of(key, query)
    from_ms, to_ms = FROM_TIME.of(query), TO_TIME.of(query)
    if from_ms is not None and to_ms is not None and to_ms < from_ms:
        raise BadRequest("to is before from", "to")
    asked = cursors.digest("history", data, from_ms, to_ms)
    after = _after(query, name, asked)
    return HistoryRequest(name, data, from_ms, to_ms, LIMIT.of(query), after, asked, terms_of(event))


def _after(query: dict[str, str], topic: str, asked: bytes) -> bytes | None:
    cursor = CURSOR.of(query)
    return None if cursor is None else cursors.decode(cursor, topic, asked)


def of_range(page: ranges.Page, request: RangeRequest, now_ms: int) -> Response[str]:
    """A page of keys in order; `next` is there where it goes on.

    A row whose history is too short for `as_of` has `"history_too_short": true` and `since_ms` alone.
    """
    envelopes = Envelopes(now_ms, request.terms.fields)
    records = []
    for key, found in page.rows:
        if found is None:
            records.append(json.dumps(key_of(key)))
        elif isinstance(found, HistoryTooShort):
            unknown = {"history_too_short": True, "since_ms": found.since_ms}
            records.append(json.dumps({**key_of(key), **unknown}))
        else:
            records.append(_row(envelopes, key, found))
    return _page(records, page.next_after, page.marks, request, now_ms=now_ms)


def of_history(page: history.Page, request: HistoryRequest, now_ms: int) -> Response[str]:
    """A page of a history, newest first: `{"key": ..., "records": [...], "next": ...}`.

    A record has position, timestamp and value as in an envelope, a tombstone `"deleted": true` instead.
    """
    records = []
    for entry in page.entries:
        at = entry.position
        head = (
            f'{{"partition": {at.partition}, "offset": {at.offset}, "position": "{at}", '
            f'"timestamp": {entry.timestamp_ms}'
        )
        if entry.record is None:
            records.append(f'{head}, "deleted": true}}')
            continue
        if page.marks.layout.options.headers:
            head += f', "headers": {json.dumps(headers_of(entry.record))}'
        records.append(with_value(head, entry.record, request.terms.fields))
    return _page(records, page.next_after, page.marks, request, now_ms=now_ms, described=key_of(request.key))


def _page(
    records: list[str],
    next_after: bytes | None,
    marks: Watermarks,
    request: RangeRequest | HistoryRequest,
    *,
    now_ms: int,
    described: dict[str, str] | None = None,
) -> Response[str]:
    head = f"{json.dumps(described)[1:-1]}, " if described else ""
    freshness = freshness_of(marks, now_ms)
    if next_after is not None:
        freshness = {"next": cursors.encode(request.topic, request.asked, next_after), **freshness}
    return document(f'{head}"records": [{", ".join(records)}]', freshness, marks.layout.topic)
