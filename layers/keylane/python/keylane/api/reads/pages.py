"""Pages of a topic's keys and of a key's history: the requests, and the responses."""

from dataclasses import dataclass

from keylane.api.http import cursors
from keylane.api.http.common_parameters import (
    CURSOR,
    KEY_CHARACTERS,
    KEY_FORMAT,
    LIMIT,
    TERMS_OF_LISTS,
    ValueOptions,
    bounds_of,
    has_base64_keys,
    parse_cursor,
    parse_key,
    parse_key_text,
    parse_terms,
    parse_value_options,
)
from keylane.api.http.json_response import freshness_of_lanes, render_rows
from keylane.api.http.parameters import Parameter, moment, switch, text
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import (
    FLAG,
    FRESHNESS,
    KEY,
    PAGE,
    POSITION,
    UNSURE,
    VALUE,
    Schema,
    an_array,
    an_object,
)
from keylane.api.reads.envelope import ROW_SCHEMA, Envelopes
from keylane.config.functions import QuerySettings
from keylane.errors import BadRequest, HistoryTooShort
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.records import Answer, Layout
from keylane.query.history import HistoryPage
from keylane.query.history_entries import HistoryScan
from keylane.query.ranges import RangePage
from keylane.query.span import RangeScan, Span
from keylane.query.store import ReadTerms

KEYS_ONLY = switch("keys_only", "the keys without their records")
PREFIX = text("prefix", "keys that begin with this", KEY_CHARACTERS)
FROM_KEY = text("from", "keys from this one on, in bytewise order", KEY_CHARACTERS)
TO_KEY = text("to", "keys below this one", KEY_CHARACTERS)
FROM_TIME = moment("from", "records from this time on: ms since 1970, or ISO 8601")
TO_TIME = moment("to", "records before this time")
AS_OF_TIME = moment("as_of", "the records as of this time")
RANGE: tuple[Parameter, ...] = (
    *(PREFIX, FROM_KEY, TO_KEY, KEY_FORMAT, LIMIT, CURSOR, KEYS_ONLY, AS_OF_TIME),
    *TERMS_OF_LISTS,
)
HISTORY: tuple[Parameter, ...] = (KEY_FORMAT, FROM_TIME, TO_TIME, LIMIT, CURSOR, *TERMS_OF_LISTS)


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A page of a topic's keys; `bounds` is what its cursor holds of the request."""

    topic: str
    scan: RangeScan
    bounds: bytes
    terms: ReadTerms
    values: ValueOptions


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """A page of a key's history; `bounds` is what its cursor holds of the request."""

    topic: str
    key: bytes
    scan: HistoryScan
    bounds: bytes
    terms: ReadTerms
    values: ValueOptions


def parse_range(request: Request, topic: str, settings: QuerySettings) -> RangeRequest:
    """Parse a GET of a topic's keys in order. Raises BadRequest, which names the parameter at fault."""
    name = topic_of(topic)
    span = parse_span(request)
    as_of_ms = AS_OF_TIME.of(request)
    bounds = bounds_of(request, "keys", span.low, span.high, as_of_ms)
    after = parse_cursor(request, name, bounds)
    scan = RangeScan(span, LIMIT.of(request), after, KEYS_ONLY.of(request), as_of_ms)
    return RangeRequest(name, scan, bounds, parse_terms(request, settings), parse_value_options(request))


def parse_span(
    request: Request, prefix_of: Parameter = PREFIX, from_: Parameter = FROM_KEY, to: Parameter = TO_KEY
) -> Span:
    """Parse the keys that these three parameters ask for. Raises BadRequest."""
    prefix, low, high = prefix_of.of(request), from_.of(request), to.of(request)
    is_base64 = has_base64_keys(request)
    if prefix is not None and (low is not None or high is not None):
        raise BadRequest(f"give prefix, or {from_.name} and {to.name}, not both", "prefix")
    if prefix is not None:
        return parse_prefix(request, prefix_of)
    first = _parse_bound(low or "", from_.name, is_base64=is_base64)
    last = None if high is None else _parse_bound(high, to.name, is_base64=is_base64)
    if last is not None and last < first:
        raise BadRequest(f"{to.name} is below {from_.name}", to.name)
    return Span(first, last)


def parse_prefix(request: Request, prefix_of: Parameter = PREFIX) -> Span:
    """Parse the keys that begin with this parameter: all where it is missing. Raises BadRequest."""
    given = prefix_of.of(request) or ""
    return Span.of_prefix(_parse_bound(given, "prefix", is_base64=has_base64_keys(request)))


def _parse_bound(given: str, parameter: str, *, is_base64: bool) -> bytes:
    data = parse_key_text(given, parameter, is_base64=is_base64)
    if len(data) > KEY_LIMIT_BYTES:
        raise BadRequest(f"{parameter} has {len(data)} bytes; a key has {KEY_LIMIT_BYTES} at most", parameter)
    return data


def parse_history(request: Request, topic: str, key: str, settings: QuerySettings) -> HistoryRequest:
    """Parse a GET of a key's history. Raises BadRequest, which names the parameter at fault."""
    name, data = topic_of(topic), parse_key(request, key)
    from_ms, to_ms = parse_times(request, FROM_TIME, TO_TIME)
    bounds = bounds_of(request, "history", data, from_ms, to_ms)
    after = parse_cursor(request, name, bounds)
    scan = HistoryScan(LIMIT.of(request), from_ms, to_ms, after)
    terms, values = parse_terms(request, settings), parse_value_options(request)
    return HistoryRequest(name, data, scan, bounds, terms, values)


def parse_times(request: Request, from_: Parameter, to: Parameter) -> tuple[int | None, int | None]:
    """Parse a span of time, ms since 1970. Raises BadRequest where it ends before it begins."""
    from_ms, to_ms = from_.of(request), to.of(request)
    if from_ms is not None and to_ms is not None and to_ms < from_ms:
        raise BadRequest(f"{to.name} is before {from_.name}", to.name)
    return from_ms, to_ms


PAGE_SCHEMA = Schema.of("Page", optional=(*PAGE, *UNSURE), records=an_array(ROW_SCHEMA), **PAGE, **FRESHNESS)


def render_range(page: RangePage, request: RangeRequest, envelopes: Envelopes) -> Response[str]:
    """Render a page of keys in order; `next` is there unless it is the last page.

    A row whose history is too short for `as_of` has `"history_too_short": true` and `since_ms` alone.
    """
    layout = page.watermarks.layout
    records = [_render_row(layout, key, found, envelopes) for key, found in page.rows]
    next_page = cursors.render_next(request.topic, request.bounds, page.next_after)
    freshness = freshness_of_lanes(page.watermarks, envelopes.now_ms)
    return render_rows(records, freshness, next_page)


def _render_row(
    layout: Layout, key: bytes, found: Answer | HistoryTooShort | None, envelopes: Envelopes
) -> str:
    if found is None:
        return f"{{{envelopes.render_key(layout, key)}}}"
    if isinstance(found, HistoryTooShort):
        since = f'"history_too_short": true, "since_ms": {found.since_ms}'
        return f"{{{envelopes.render_key(layout, key)}, {since}}}"
    return envelopes.render_row(key, found)


ENTRY_SCHEMA = Schema(
    "Entry",
    {
        "description": "a record of a history; a tombstone has `deleted` and no value",
        **an_object(optional=(*VALUE, "deleted"), **POSITION, **VALUE, deleted=FLAG),
    },
)
HISTORY_SCHEMA = Schema.of(
    "History", optional=(*PAGE, *UNSURE), **KEY, records=an_array(ENTRY_SCHEMA), **PAGE, **FRESHNESS
)


def render_history(page: HistoryPage, request: HistoryRequest, envelopes: Envelopes) -> Response[str]:
    """Render a page of a history, newest first: `{"key": ..., "records": [...], "next": ...}`.

    A record has position, timestamp and value as in an envelope, a tombstone `"deleted": true` instead.
    """
    layout = page.watermarks.layout
    records = [envelopes.render_entry(layout, entry) for entry in page.entries]
    next_page = cursors.render_next(request.topic, request.bounds, page.next_after)
    freshness = freshness_of_lanes(page.watermarks, envelopes.now_ms)
    before = f'{envelopes.render_key(layout, request.key)}, "records": ['
    return render_rows(records, freshness, next_page, before=before)
