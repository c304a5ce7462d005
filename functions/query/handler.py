"""Reads: a key's latest record and its past, many keys, joins, ranges, straight from their shards."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from keylane.api import read_key, read_many, read_pages, router, terms
from keylane.api import views as views_api
from keylane.api.event import Event, request_id_of, topic_of
from keylane.api.topics import METADATA, metadata_request, of_partitions, of_topic
from keylane.query import decoding, history, join, latest, multi_get, ranges, topics, views
from keylane.wiring.metrics import function_meter
from keylane.wiring.query import Query, query_maker

if TYPE_CHECKING:
    from keylane.api.response import Response
    from keylane.model.records import Position

meter = function_meter()
app = router.Resolver("query", meter)
parts = query_maker(meter)


def _values(query: Query, asked: read_key.ReadRequest | terms.Terms) -> decoding.Values:
    """How this request's values are read."""
    return decoding.Values(
        query.schemas, query.clock, query.settings.registry_timeout_ms, as_bytes=asked.as_bytes
    )


@app.operation(parameters=read_key.READ, answer="Record", refusals=(409, 410, 412, 413, 422))
def get_key(event: Event, topic: str, key: str) -> Response[Any]:
    """Answer with the record's own bytes, or say that there is none."""
    query = parts()
    request = read_key.read_request(event, topic, key, query.settings)
    if request.as_of is not None:
        return _as_of(event, query, request, request.as_of)
    known = request.if_none_match
    answer = latest.latest(
        query.state,
        query.layouts,
        query.clock,
        request.topic,
        request.key,
        min_position=request.min_position,
        max_age_ms=request.max_age_ms,
        is_known=partial(read_key.is_known, if_none_match=known) if known else None,
        wait_ms=request.wait_ms,
        patience_ms=request.wait_ms if request.is_wait_asked else 0,
        partial=request.partial,
        timeout_ms=query.settings.state_timeout_ms,
    )
    response = read_key.of_record(
        answer,
        request_id_of(event),
        query.clock.now_ms(),
        if_none_match=known,
        envelope=request.envelope,
        fields=request.fields,
        values=_values(query, request),
    )
    if request.preference_applied:
        response.headers["Preference-Applied"] = request.preference_applied
    return response


def _as_of(
    event: Event, query: Query, request: read_key.ReadRequest, moment: int | Position
) -> Response[Any]:
    answer = history.as_of(
        query.state,
        query.layouts,
        query.clock,
        request.topic,
        request.key,
        moment=moment,
        max_age_ms=request.max_age_ms,
        timeout_ms=query.settings.state_timeout_ms,
        partial=request.partial,
    )
    return read_key.of_record(
        answer,
        request_id_of(event),
        query.clock.now_ms(),
        if_none_match=request.if_none_match,
        envelope=request.envelope,
        fields=request.fields,
        values=_values(query, request),
    )


@app.operation(parameters=read_pages.RANGE, answer="Page", refusals=(409, 413))
def get_keys(event: Event, topic: str) -> Response[Any]:
    """Answer with a page of the topic's keys in order."""
    query = parts()
    request = read_pages.range_request(event, topic)
    page = ranges.page(
        query.state,
        query.layouts,
        query.clock,
        request.topic,
        request.span,
        limit=request.limit,
        after=request.after,
        keys_only=request.keys_only,
        as_of_ms=request.as_of_ms,
        **request.terms.bounds(query.settings),
    )
    page = replace(page, rows=_values(query, request.terms).rows(page.rows))
    return read_pages.of_range(page, request, query.clock.now_ms())


@app.operation(parameters=read_pages.HISTORY, answer="History", refusals=(409, 413))
def get_history(event: Event, topic: str, key: str) -> Response[Any]:
    """Answer with a page of a key's records, newest first."""
    query = parts()
    request = read_pages.history_request(event, topic, key)
    page = history.page(
        query.state,
        query.layouts,
        query.clock,
        request.topic,
        request.key,
        from_ms=request.from_ms,
        to_ms=request.to_ms,
        limit=request.limit,
        after=request.after,
        **request.terms.bounds(query.settings),
    )
    entries = _values(query, request.terms).entries(page.marks.layout, page.entries)
    return read_pages.of_history(replace(page, entries=entries), request, query.clock.now_ms())


@app.operation(parameters=read_many.MANY, body=read_many.MANY_BODY, answer="Records", refusals=(413, 414))
def read_keys(event: Event, topic: str) -> Response[Any]:
    """Answer with the latest records of many keys."""
    query = parts()
    request = read_many.many_request(event, topic)
    rows, marks = multi_get.many(
        query.state,
        query.layouts,
        query.clock,
        request.topic,
        request.keys,
        atomic=request.atomic,
        **request.terms.bounds(query.settings),
    )
    shown = _values(query, request.terms).rows(rows)
    return read_many.of_many(shown, marks, query.clock.now_ms(), request.terms.fields)


@app.operation(parameters=read_many.JOIN, answer="Joined", refusals=(413,))
def join_topics(event: Event, key: str) -> Response[Any]:
    """Answer with the latest records of one key in several topics."""
    query = parts()
    request = read_many.join_request(event, key)
    found = join.join(
        query.state,
        query.layouts,
        query.clock,
        request.topics,
        request.key,
        atomic=request.atomic,
        **request.terms.bounds(query.settings),
    )
    shown = _values(query, request.terms).answers(found)
    return read_many.of_join(request.key, shown, query.clock.now_ms(), request.terms.fields)


@app.operation(answer="Topic")
def get_topic(event: Event, topic: str) -> Response[Any]:
    """Answer with a topic's layout, and where its lanes lie and stand."""
    query = parts()
    found = topics.describe(
        query.state, query.layouts, query.clock, topic_of(topic), query.settings.state_timeout_ms
    )
    return of_topic(found, query.clock.now_ms())


@app.operation(parameters=views_api.KEY, answer="Windows", refusals=(413,))
def get_windows(event: Event, view: str, key: str) -> Response[Any]:
    """Answer with a page of a key's windows, by their starts."""
    query = parts()
    request = views_api.of_key(event, view, key)
    page = views.of_key(
        *(query.state, query.layouts, query.clock, request.view, request.key),
        **request.bounds(query.settings),
    )
    return views_api.answer(page, request, query.clock.now_ms())


@app.operation(parameters=views_api.KEYS, answer="Windows", refusals=(413,))
def get_view_keys(event: Event, view: str) -> Response[Any]:
    """Answer with a page of the windows of a range of keys, by keys and starts."""
    query = parts()
    request = views_api.of_keys(event, view)
    page = views.of_keys(
        *(query.state, query.layouts, query.clock, request.view, request.span or ranges.Span()),
        **request.bounds(query.settings),
    )
    return views_api.answer(page, request, query.clock.now_ms())


@app.operation(answer="View")
def get_view(event: Event, view: str) -> Response[Any]:
    """Answer with what a view computes, and how far its lanes are."""
    query = parts()
    name = views_api.view_of(view)
    found = views.describe(query.state, query.layouts, query.clock, name, query.settings.state_timeout_ms)
    return views_api.described(name, found, query.clock.now_ms())


@app.operation(parameters=METADATA, answer="Partitions")
def get_partitions(event: Event) -> Response[Any]:
    """Answer with the nodes of a topic's partitions."""
    query = parts()
    topic = metadata_request(event)
    found = topics.partitions(query.state, query.layouts, query.clock, topic, query.settings.state_timeout_ms)
    return of_partitions(found)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return router.serve(app, event, context)
