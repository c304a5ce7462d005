"""Reads from the state: keys, histories, many keys, joins, ranges, views, and descriptions of topics."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from keylane.api import changes as changes_api
from keylane.api import read_key, read_many, read_pages, router
from keylane.api import topics as topics_api
from keylane.api import views as views_api
from keylane.api.change_sources import KeyChanges, TopicChanges
from keylane.api.envelope import Envelopes
from keylane.query.history import read_as_of, read_history
from keylane.query.join import read_joined
from keylane.query.latest import read_latest
from keylane.query.multi_get import read_many as read_many_keys
from keylane.query.ranges import read_range
from keylane.query.topics import partitions_by_node
from keylane.query.views import describe_view, list_views, read_windows
from keylane.wiring.api import read_api_settings
from keylane.wiring.metrics import build_meter
from keylane.wiring.query import QueryParts, build_query

if TYPE_CHECKING:
    from keylane.api.common_parameters import ValueOptions
    from keylane.api.event import Event
    from keylane.api.response import Response

meter = build_meter()
app = router.Resolver("query", meter, cache(read_api_settings))


@cache
def parts() -> QueryParts:
    """Build what the function works with, at its first request."""
    return build_query(meter)


def _envelopes(query: QueryParts, values: ValueOptions) -> Envelopes:
    return Envelopes(query.now_ms, values.fields, query.decoder(as_bytes=values.as_bytes))


@app.operation(parameters=read_key.READ, answer="Record", refusals=(409, 410, 412, 413, 422))
def get_key(event: Event, topic: str, key: str) -> Response[Any]:
    """Answer with the record's own bytes, or say that there is none."""
    query = parts()
    request = read_key.parse_read_key(event, topic, key, query.settings)
    if request.as_of is None:
        answer = read_latest(query.store, request.topic, request.key, request.terms, request.wait)
    else:
        answer = read_as_of(query.store, request.topic, request.key, request.as_of, request.terms)
    return read_key.render_record(answer, request, query.decoder(as_bytes=request.as_bytes), query.now_ms)


@app.operation(parameters=read_pages.RANGE, answer="Page", refusals=(409, 413))
def get_keys(event: Event, topic: str) -> Response[Any]:
    """Answer with a page of the topic's keys in order."""
    query = parts()
    request = read_pages.parse_range(event, topic, query.settings)
    page = read_range(query.store, request.topic, request.scan, request.terms)
    return read_pages.render_range(page, request, _envelopes(query, request.values))


@app.operation(parameters=read_pages.HISTORY, answer="History", refusals=(409, 413))
def get_history(event: Event, topic: str, key: str) -> Response[Any]:
    """Answer with a page of a key's records, newest first."""
    query = parts()
    request = read_pages.parse_history(event, topic, key, query.settings)
    page = read_history(query.store, request.topic, request.key, request.scan, request.terms)
    return read_pages.render_history(page, request, _envelopes(query, request.values))


@app.operation(
    parameters=changes_api.KEY, answer="Changes", answer_type=changes_api.EVENT_STREAM, refusals=(501,)
)
def get_key_changes(event: Event, topic: str, key: str) -> Response[Any]:
    """Answer with a key's record and each change as it comes, as Server-Sent Events."""
    query = parts()
    request = changes_api.parse_key_changes(event, topic, key, query.settings)
    stream = query.open_stream(KeyChanges(query.change_reader, request), request.since)
    return changes_api.render_stream(stream)


@app.operation(
    parameters=changes_api.TOPIC, answer="Changes", answer_type=changes_api.EVENT_STREAM, refusals=(501,)
)
def get_changes(event: Event, topic: str) -> Response[Any]:
    """Answer with the changes of a topic's keys as they come, as Server-Sent Events."""
    query = parts()
    request = changes_api.parse_topic_changes(event, topic, query.settings)
    stream = query.open_stream(TopicChanges(query.change_reader, request), request.since, request.key)
    return changes_api.render_stream(stream)


@app.operation(
    parameters=read_many.MANY, body=read_many.MANY_BODY, answer="Records", refusals=(413, 414, 415)
)
def read_keys(event: Event, topic: str) -> Response[Any]:
    """Answer with the latest records of many keys."""
    query = parts()
    request = read_many.parse_read_many(event, topic, query.settings)
    found, watermarks = read_many_keys(
        query.store, request.topic, request.keys, request.terms, atomic=request.atomic
    )
    return read_many.render_many(request.keys, found, watermarks, _envelopes(query, request.values))


@app.operation(parameters=read_many.JOIN, answer="Joined", refusals=(413,))
def join_topics(event: Event, key: str) -> Response[Any]:
    """Answer with the latest records of one key in several topics."""
    query = parts()
    request = read_many.parse_join(event, key, query.settings)
    answers = read_joined(query.store, request.topics, request.key, request.terms, atomic=request.atomic)
    return read_many.render_join(request.key, answers, _envelopes(query, request.values))


@app.operation(parameters=views_api.KEY, answer="Windows", refusals=(413,))
def get_windows(event: Event, view: str, key: str) -> Response[Any]:
    """Answer with a page of a key's windows, by their starts."""
    query = parts()
    request = views_api.parse_windows_of_key(event, view, key, query.settings)
    page = read_windows(query.store, request.scan, request.terms)
    return views_api.render_windows(page, request, query.now_ms)


@app.operation(parameters=views_api.KEYS, answer="Windows", refusals=(413,))
def get_view_keys(event: Event, view: str) -> Response[Any]:
    """Answer with a page of the windows of a range of keys, by keys and starts."""
    query = parts()
    request = views_api.parse_windows_of_span(event, view, query.settings)
    page = read_windows(query.store, request.scan, request.terms)
    return views_api.render_windows(page, request, query.now_ms)


@app.operation(answer="Views")
def get_views(event: Event) -> Response[Any]:
    """Answer with all views: their topics, windows and columns."""
    query = parts()
    return views_api.render_views(list_views(query.store, query.settings.state_timeout_ms))


@app.operation(answer="View")
def get_view(event: Event, view: str) -> Response[Any]:
    """Answer with what a view computes, and how far its lanes are."""
    query = parts()
    name = views_api.parse_view(view)
    found = describe_view(query.store, name, query.settings.state_timeout_ms)
    return views_api.render_view(name, found, query.now_ms)


@app.operation(parameters=topics_api.METADATA, answer="Partitions")
def get_partitions(event: Event) -> Response[Any]:
    """Answer with the nodes of a topic's partitions."""
    query = parts()
    topic = topics_api.parse_metadata(event)
    return topics_api.render_partitions(
        partitions_by_node(query.store, topic, query.settings.state_timeout_ms)
    )


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return router.serve(app, event, context)
