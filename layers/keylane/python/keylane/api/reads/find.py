"""Records found by the fields of their values: the request, and the response.

Each query parameter that is not one of FIND is a condition on the field of its name:

    status=open                 equality
    amount=10..20               a range with both ends; 10.. and ..20 are open
    placed=2026-11-01..<2026-12-01      without its end
    name=Sm*                    a prefix of a text
    note="a..b*"                a JSON string: equality, whatever is in it
    amount=..                   the record has the field
    .limit=5                    a field that is called as a parameter is

`prefix` is a condition on the key.

All conditions must be met; a field may have several.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from keylane.api.http import cursors
from keylane.api.http.common_parameters import (
    CURSOR,
    LIMIT,
    MIN_POSITION,
    TERMS_OF_LISTS,
    ValueOptions,
    bounds_of,
    parse_cursor,
    parse_terms,
    parse_value_options,
)
from keylane.api.http.json_response import freshness_of_lanes, render_fresh, render_rows
from keylane.api.http.parameters import FIELD_CHARACTERS, QUERY, Parameter, switch, text
from keylane.api.http.preferences import PREFER, bounded_wait_ms, preferred_wait_ms
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, FRESHNESS, PAGE, UNSURE, Schema, an_array
from keylane.api.reads.envelope import ROW_SCHEMA, Envelopes
from keylane.api.reads.pages import PREFIX, parse_prefix
from keylane.config.functions import QuerySettings
from keylane.errors import BadRequest
from keylane.query.conditions import EQUAL, RANGE, Asked, Order
from keylane.query.conditions import PREFIX as BEGINS
from keylane.query.find import FindCount, FindPage
from keylane.query.finder import ANY_TYPES, FindScan
from keylane.query.store import ReadTerms

MOST_CONDITIONS = 16
VALUE_CHARACTERS = 4096
ORDER = text(
    "order", "the field that orders the records; from its highest value on as in -placed", FIELD_CHARACTERS
)
COUNT_ALONE = switch("count", "answer with the number of records, without them")
FIND: tuple[Parameter, ...] = (
    *(PREFIX, ORDER, COUNT_ALONE, LIMIT, CURSOR, MIN_POSITION, PREFER),
    *TERMS_OF_LISTS,
)
_NAMES = frozenset(each.name for each in FIND if each.place == QUERY)


@dataclass(frozen=True, slots=True)
class FindRequest:
    """A page of records by their fields, or their number; `bounds` is what its cursor holds of it."""

    topic: str
    scan: FindScan
    is_count: bool
    bounds: bytes
    terms: ReadTerms
    values: ValueOptions


def parse_find(request: Request, topic: str, settings: QuerySettings) -> FindRequest:
    """Parse a GET of records by their fields. Raises BadRequest, which names the parameter at fault."""
    name = topic_of(topic)
    if "as_of" in request.query:
        raise BadRequest(
            "indexes of fields have the latest records alone; a field of that name is written .as_of",
            "as_of",
        )
    asked, order, span = parse_conditions(request, _NAMES), _order(request), parse_prefix(request)
    is_count = COUNT_ALONE.of(request)
    of_keys = (span.low,) if span.low else ()
    bounds = bounds_of(request, "typed find", asked, order, is_count, *of_keys)
    earlier = cursors.Earlier(bounds_of(request, "find", asked, order, is_count, *of_keys), ANY_TYPES)
    after, position = parse_cursor(request, name, bounds, earlier), MIN_POSITION.of(request)
    wait_ms = bounded_wait_ms(request, preferred_wait_ms(PREFER.of(request)), settings)
    scan = FindScan(asked, order, LIMIT.of(request), after, position, wait_ms, span)
    values = parse_value_options(request)
    return FindRequest(name, scan, is_count, bounds, parse_terms(request, settings), values)


def _order(request: Request) -> Order | None:
    given = ORDER.of(request)
    if given is None:
        return None
    name = given.removeprefix("-").removeprefix(".")
    if not name:
        raise BadRequest("order names no field: it looks like placed or -placed", "order")
    return Order(name, given.startswith("-"))


def parse_conditions(request: Request, parameters: Collection[str]) -> tuple[Asked, ...]:
    """Parse the conditions of a query: all of it but its parameters. Raises BadRequest."""
    asked = tuple(_conditions(request, parameters))
    if len(asked) > MOST_CONDITIONS:
        raise BadRequest(f"there are {len(asked)} conditions: {MOST_CONDITIONS} at most are accepted")
    return asked


def _conditions(request: Request, parameters: Collection[str]) -> Iterator[Asked]:
    for name, values in request.query.items():
        if name in parameters:
            continue
        for value in values:
            if len(value) > VALUE_CHARACTERS:
                raise BadRequest(
                    f"{name[:50]} has {len(value)} characters: {VALUE_CHARACTERS} at most are accepted",
                    name[:50],
                )
            yield _condition(name.removeprefix("."), value)


def _condition(name: str, value: str) -> Asked:
    if value.startswith('"'):
        try:
            literal = json.loads(value)
        except ValueError:
            literal = None
        if not isinstance(literal, str):
            raise BadRequest(f"{name[:50]} begins with a quote, and is not a JSON string", name[:50])
        return Asked(name, EQUAL, literal)
    low, separator, high = value.partition("..")
    if separator:
        is_below = high.startswith("<")
        last = high.removeprefix("<")
        if is_below and not last:
            raise BadRequest(f"{name[:50]} ends with <, and nothing behind it", name[:50])
        return Asked(name, RANGE, low or None, last or None, is_below)
    if value.endswith("*"):
        return Asked(name, BEGINS, value[:-1])
    return Asked(name, EQUAL, value)


FOUND_SCHEMA = Schema.of(
    "Found",
    optional=(*PAGE, *UNSURE, "records", "count"),
    records=an_array(ROW_SCHEMA),
    count=COUNT,
    scanned={**COUNT, "description": "how many members of an index were looked at"},
    **PAGE,
    **FRESHNESS,
)


def render_found(page: FindPage, request: FindRequest, envelopes: Envelopes) -> Response[str]:
    """Render a page: `{"records": [...], "scanned": 120, ...}`, with `next` where more may follow."""
    records = [envelopes.render_row(key, answer) for key, answer in page.rows]
    next_page = cursors.render_next(request.topic, request.bounds, page.next_after)
    freshness = freshness_of_lanes(page.watermarks, envelopes.now_ms)
    return render_rows(records, freshness, next_page, behind=f'], "scanned": {page.scanned}')


def render_found_count(found: FindCount, request: FindRequest, now_ms: int) -> Response[str]:
    """Render `{"count": 9, "scanned": 0, ...}`; with `next` it is the number of what was looked at."""
    next_page = cursors.render_next(request.topic, request.bounds, found.next_after)
    freshness = freshness_of_lanes(found.watermarks, now_ms)
    return render_fresh(f'"count": {found.count}, "scanned": {found.scanned}', freshness, next_page)
