"""Reads from the state: keys, histories, many keys, joins, ranges, views, and descriptions of partitions."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from keylane.api.http.common_parameters import ValueOptions, has_base64_keys
from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.http.router import Application, Operations
from keylane.api.mcp.messages import ANSWER_SCHEMA, MESSAGE_SCHEMA
from keylane.api.reads import changes, find, many, pages, snapshot, topics, views
from keylane.api.reads.change_conditions import ConditionedChanges, check_conditions
from keylane.api.reads.change_sources import KeyChanges, TopicChanges
from keylane.api.reads.envelope import Envelopes
from keylane.api.reads.key import READ, RECORD_SCHEMA, parse_read_key, render_record, render_refusal
from keylane.api.reads.scoped_changes import ScopedChanges
from keylane.app import build_application
from keylane.errors import PositionNotReached, StateTooOld
from keylane.model.routes import QUERY
from keylane.ports import WaitBudget
from keylane.query.find import count_found
from keylane.query.find import find as find_page
from keylane.query.key_count import read_key_count
from keylane.query.multi_get import read_many
from keylane.query.newest import (
    join_newest,
    read_all_history,
    read_many_newest,
    read_newest,
    read_newest_as_of,
)
from keylane.query.ranges import read_range
from keylane.query.snapshot import TopicSnapshot
from keylane.query.span import Span
from keylane.query.topics import partitions_by_node
from keylane.query.views import describe_view, list_views, read_windows
from keylane.wiring.query import QueryParts, build_query
from keylane.wiring.runtime import Runtime

QueryApp = Application[QueryParts]

OPERATIONS = Operations(QUERY)


def build(runtime: Runtime, environment: Mapping[str, str]) -> QueryApp:
    """Return the application that reads from the state. Its parts are built by the first request."""
    return build_application(OPERATIONS, build_query, runtime, environment)


@OPERATIONS.operation(
    RECORD_SCHEMA, parameters=READ, is_value=True, refusals=(409, 410, 412, 413, 422), takes_scope=True
)
def get_key(app: QueryApp, request: Request, topic: str, key: str) -> Response[Any]:
    """Answer with the record's own bytes, or say that there is none."""
    use = _parts(app, request)
    read, registry_wait = parse_read_key(request, topic, key, use.settings), use.registry_wait()
    reading = use.reading(read.topic)
    keys = (read.key,) if read.raw_keys else use.keys(registry_wait).keys_of(reading, read.key)
    decoder = use.decoder(registry_wait, as_bytes=read.as_bytes, events=read.events, raw_keys=read.raw_keys)
    if request.scope is not None:
        read = read.shown_by(decoder)
    try:
        if read.as_of is None:
            answer = read_newest(reading, keys, read.terms, read.wait)
        else:
            answer = read_newest_as_of(use.store, read.topic, keys, read.as_of, read.terms)
    except (PositionNotReached, StateTooOld) as error:
        return render_refusal(error, read)
    return render_record(answer, read, decoder, use.now_ms)


@OPERATIONS.operation(pages.PAGE_SCHEMA, parameters=pages.RANGE, refusals=(409, 410, 413), takes_scope=True)
def get_keys(app: QueryApp, request: Request, topic: str) -> Response[Any]:
    """Answer with a page of the topic's keys in order."""
    use = _parts(app, request)
    read = pages.parse_range(request, topic, use.settings)
    span = _span_of(use, read.topic, read.scan.span, raw_keys=read.values.raw_keys)
    scan = replace(read.scan, span=span)
    page = read_range(use.store, read.topic, scan, read.terms)
    return pages.render_range(page, read, _envelopes(use, read.values, use.registry_wait()))


@OPERATIONS.operation(
    topics.KEY_COUNT_SCHEMA, parameters=topics.COUNT_OF_KEYS, refusals=(409,), takes_scope=True
)
def get_key_count(app: QueryApp, request: Request, topic: str) -> Response[Any]:
    """Answer with the number of the topic's keys."""
    use = _parts(app, request)
    read = topics.parse_count(request, topic, use.settings)
    found = read_key_count(use.store, read.topic, read.terms)
    return topics.render_count(found, use.now_ms)


@OPERATIONS.operation(
    find.FOUND_SCHEMA, parameters=find.FIND, refusals=(409, 413), takes_conditions=True, takes_scope=True
)
def find_records(app: QueryApp, request: Request, topic: str) -> Response[Any]:
    """Answer with a page of the records that meet conditions on their fields, or with their number."""
    use = _parts(app, request)
    read, registry_wait = find.parse_find(request, topic, use.settings), use.registry_wait()
    decode = use.decoder(registry_wait, as_bytes=False).decode
    span = _span_of(use, read.topic, read.scan.span, raw_keys=read.values.raw_keys)
    scan = read.scan._replace(span=span)
    if read.is_count:
        count = count_found(use.store, read.topic, scan, read.terms, decode)
        app.meter.count("FindScanned", count.scanned, read.topic, count.index)
        if request.scope is not None:
            count = replace(count, scanned=count.count)
        return find.render_found_count(count, read, use.now_ms)
    page = find_page(use.store, read.topic, scan, read.terms, decode)
    app.meter.count("FindScanned", page.scanned, read.topic, page.index)
    app.meter.count("FindReturned", len(page.rows), read.topic, page.index)
    if request.scope is not None:
        page = replace(page, scanned=len(page.rows))  # how many others there are is not theirs to know
    return find.render_found(page, read, _envelopes(use, read.values, registry_wait))


@OPERATIONS.operation(pages.HISTORY_SCHEMA, parameters=pages.HISTORY, refusals=(409, 413), takes_scope=True)
def get_history(app: QueryApp, request: Request, topic: str, key: str) -> Response[Any]:
    """Answer with a page of a key's records, newest first."""
    use = _parts(app, request)
    read, registry_wait = pages.parse_history(request, topic, key, use.settings), use.registry_wait()
    keys = _keys_of(use, request, read.topic, read.key, registry_wait)
    page = read_all_history(use.store, read.topic, keys, read.scan, read.terms)
    read = replace(read, key=keys[0])
    return pages.render_history(page, read, _envelopes(use, read.values, registry_wait))


@OPERATIONS.operation(
    changes.CHANGES_SCHEMA,
    parameters=changes.KEY,
    answer_type=changes.EVENT_STREAM,
    refusals=(501,),
    takes_scope=True,
)
def get_key_changes(app: QueryApp, request: Request, topic: str, key: str) -> Response[Any]:
    """Answer with a key's record and each change as it comes, as Server-Sent Events."""
    use = _parts(app, request)
    read = changes.parse_key_changes(request, topic, key, use.settings)
    read = read._replace(keys=_keys_of(use, request, read.topic, read.key, use.registry_wait()))
    source = KeyChanges(use.change_reader, read)
    return changes.render_stream(use.open_stream(source, read.since, changes.any_key, None))


@OPERATIONS.operation(
    changes.CHANGES_SCHEMA,
    parameters=changes.TOPIC,
    answer_type=changes.EVENT_STREAM,
    refusals=(409, 501),
    takes_conditions=True,
    takes_scope=True,
)
def get_changes(app: QueryApp, request: Request, topic: str) -> Response[Any]:
    """Answer with the changes of a topic's keys as they come, as Server-Sent Events."""
    use = _parts(app, request)
    read = changes.parse_topic_changes(request, topic, use.settings)
    span = _span_of(use, read.topic, Span.of_prefix(read.key), raw_keys=read.raw_keys)
    read = read._replace(key=span.low)
    # Of all listeners, whatever their scopes: each chooses.
    every = app.parts()
    source, choose = TopicChanges(every.change_reader, read), None
    if read.asked:
        check_conditions(use.store, read.topic, read.asked, changes.TOPIC_NAMES, read.terms)
        choose = ConditionedChanges(read.asked, every.change_reader.decoder).choose
    if use.store.scopes is not None:
        scoped = ScopedChanges(use.change_reader, read, use.store.scopes, choose)
        return changes.render_stream(scoped.open(use.open_stream, source, changes.keys_from(read.key)))
    return changes.render_stream(use.open_stream(source, read.since, changes.keys_from(read.key), choose))


@OPERATIONS.operation(
    snapshot.SNAPSHOT_SCHEMA,
    parameters=snapshot.SNAPSHOT,
    answer_type=snapshot.LINES,
    refusals=(409, 501),
    takes_conditions=True,
    takes_scope=True,
)
def get_snapshot(app: QueryApp, request: Request, topic: str) -> Response[Any]:
    """Answer with all records of a topic as lines of JSON, each lane as of one position."""
    use = _parts(app, request)
    read = snapshot.parse_snapshot(request, topic, use.settings)

    def begin() -> Iterator[bytes]:
        span = _span_of(use, read.topic, Span.of_prefix(read.scan.prefix), raw_keys=read.raw_keys)
        if read.scan.asked:
            check_conditions(use.store, read.topic, read.scan.asked, snapshot.SNAPSHOT_NAMES, read.terms)
        begun = TopicSnapshot(use.change_reader, read.topic, read.scan._replace(prefix=span.low), read.terms)
        return snapshot.SnapshotLines(begun, use.change_reader, read).pieces()

    return snapshot.render_snapshot(use.open_lines(begin, read.coding), read)


@OPERATIONS.operation(
    many.RECORDS_SCHEMA, parameters=many.MANY, body=many.MANY_BODY, refusals=(413, 414, 415), takes_scope=True
)
def read_keys(app: QueryApp, request: Request, topic: str) -> Response[Any]:
    """Answer with the latest records of many keys."""
    use = _parts(app, request)
    read, registry_wait = many.parse_read_many(request, topic, use.settings), use.registry_wait()
    envelopes = _envelopes(use, read.values, registry_wait)
    wanted: list[tuple[bytes, ...]] = [(key,) for key in read.keys]
    if not read.values.raw_keys:
        wanted = use.keys(registry_wait).keys_of_all(use.reading(read.topic), read.keys)
    if all(len(keys) == 1 for keys in wanted):
        own = [key for (key,) in wanted]
        found, watermarks = read_many(use.store, read.topic, own, read.terms, atomic=read.atomic)
        return many.render_many(own, found, watermarks, envelopes)
    many.check_not_atomic(read)
    newest, watermarks = read_many_newest(use.store, read.topic, wanted, read.terms)
    return many.render_found(newest, watermarks, envelopes)


@OPERATIONS.operation(many.JOINED_SCHEMA, parameters=many.JOIN, refusals=(413,), takes_scope=True)
def join_topics(app: QueryApp, request: Request, key: str) -> Response[Any]:
    """Answer with the latest records of one key in several topics."""
    use = _parts(app, request)
    read, registry_wait = many.parse_join(request, key, use.settings), use.registry_wait()
    keys = [_keys_of(use, request, topic, read.key, registry_wait) for topic in read.topics]
    found = join_newest(use.store, read.topics, keys, read.terms, atomic=read.atomic)
    return many.render_join(found, _envelopes(use, read.values, registry_wait))


@OPERATIONS.operation(views.WINDOWS_SCHEMA, parameters=views.KEY, refusals=(409, 413), takes_scope=True)
def get_windows(app: QueryApp, request: Request, view: str, key: str) -> Response[Any]:
    """Answer with a page of a key's windows, by their starts."""
    use = _parts(app, request)
    read = views.parse_windows_of_key(request, view, key, use.settings)
    return views.render_windows(read_windows(use.store, read.scan, read.terms), read, use.now_ms)


@OPERATIONS.operation(views.WINDOWS_SCHEMA, parameters=views.KEYS, refusals=(409, 413), takes_scope=True)
def get_view_keys(app: QueryApp, request: Request, view: str) -> Response[Any]:
    """Answer with a page of the windows of a range of keys, by keys and starts."""
    use = _parts(app, request)
    read = views.parse_windows_of_span(request, view, use.settings)
    return views.render_windows(read_windows(use.store, read.scan, read.terms), read, use.now_ms)


@OPERATIONS.operation(views.VIEWS_SCHEMA)
def get_views(app: QueryApp, request: Request) -> Response[Any]:
    """Answer with all views: their topics, windows and columns."""
    use = _parts(app, request)
    return views.render_views(list_views(use.store, use.settings.state_timeout_ms))


@OPERATIONS.operation(views.VIEW_SCHEMA)
def get_view(app: QueryApp, request: Request, view: str) -> Response[Any]:
    """Answer with what a view computes, and how far its lanes are."""
    use = _parts(app, request)
    name = views.parse_view(view)
    found = describe_view(use.store, name, use.settings.state_timeout_ms)
    return views.render_view(name, found, use.now_ms)


@OPERATIONS.operation(topics.PARTITIONS_SCHEMA, parameters=topics.METADATA)
def get_partitions(app: QueryApp, request: Request) -> Response[Any]:
    """Answer with the nodes of a topic's partitions."""
    use = _parts(app, request)
    topic = topics.parse_metadata(request)
    return topics.render_partitions(partitions_by_node(use.store, topic, use.settings.state_timeout_ms))


@OPERATIONS.operation(
    ANSWER_SCHEMA,
    body=MESSAGE_SCHEMA,
    refusals=(413, 415),
    reports_failures=True,
    empty={202: "a notification is accepted"},
    takes_scope=True,
)
def mcp(app: QueryApp, request: Request) -> Response[Any]:
    """Answer a message of the Model Context Protocol, by which agents use tools."""
    from keylane.api.mcp.protocol import answer_post  # noqa: PLC0415 (agents alone need it)
    from keylane.api.mcp.tool import Reach  # noqa: PLC0415 (as above)

    settings = app.settings()
    use = _parts(app, request)
    write = use.write if settings.has_agent_writes else None
    reach = Reach(app.respond_within, write, use.store, settings.topics, use.settings.state_timeout_ms)
    return answer_post(request, settings.cors_headers, reach)


def _parts(app: QueryApp, request: Request) -> QueryParts:
    """Return what a request reads with: the records that its caller may read alone."""
    use = app.parts()
    return use if request.scope is None else use.within(request.scope)


def _keys_of(
    use: QueryParts, request: Request, topic: str, key: bytes, registry_wait: WaitBudget
) -> tuple[bytes, ...]:
    """Return the keys of records that the key of a request may mean. Raises as `KeyFinder.keys_of`."""
    if request.query and has_base64_keys(request):
        return (key,)
    return use.keys(registry_wait).keys_of(use.reading(topic), key)


def _span_of(use: QueryParts, topic: str, span: Span, *, raw_keys: bool) -> Span:
    """Return the span of keys of records that is asked for: by the keys' bytes, or as answers show keys."""
    if raw_keys or span == Span():
        return span
    return use.keys(use.registry_wait()).span_of(use.reading(topic), span)


def _envelopes(use: QueryParts, values: ValueOptions, registry_wait: WaitBudget) -> Envelopes:
    fields, *own = values
    as_bytes, events, raw_keys = own
    decoder = use.decoder(registry_wait, as_bytes=as_bytes, events=events, raw_keys=raw_keys)
    return Envelopes(use.now_ms, fields, decoder, use.store.clock.give_way)
