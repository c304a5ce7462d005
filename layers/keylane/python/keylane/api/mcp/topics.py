"""The tools that say which topics there are, and what may be asked of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.api.http import cursors
from keylane.api.http.common_parameters import CURSOR, bounds_of
from keylane.api.http.scope_checks import check_named
from keylane.api.mcp.failures import failure_of
from keylane.api.mcp.tool import MOST_RESULT_BYTES, OK, Tool, ToolResult, fields_of, result_of
from keylane.api.reads.topics import render_totals
from keylane.errors import BadRequest, OutsideScope, RegistryUnavailable
from keylane.model.routes import PermissionKind
from keylane.query.listed_names import list_kept_topics
from keylane.query.store import least_offsets
from keylane.query.topics import describe_topic as read_topic
from keylane.state.field_index import indexes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.api.mcp.tool import ToolCall
    from keylane.model.records import Layout, Options
    from keylane.query.row_scopes import TopicScope
    from keylane.state.field_index import Field

PAGE_TOPICS, MOST_PAGE_TOPICS = 50, 100
SAMPLE_RECORDS = 2
HISTORY = "history"
"""The tool's name, among those that take a topic."""
_TEXT: dict[str, Any] = {"type": "string"}


def list_topics(call: ToolCall) -> ToolResult:
    """Return a page of the topics that are read here, and that the caller may read."""
    request, reach = call.request, call.reach
    prefix, limit = call.arguments.get("prefix", ""), call.arguments.get("limit", PAGE_TOPICS)
    bounds = bounds_of(request, "tool topics", prefix)
    after = ""
    if (cursor := call.arguments.get("cursor")) is not None:
        after = _name_in(cursors.decode(CURSOR.parse(cursor), "", bounds))
    scope = request.scope

    def is_wanted(name: str) -> bool:
        is_permitted = scope is None or bool(scope.rules_for(PermissionKind.READ, name))
        return is_permitted and name.startswith(prefix) and reach.served.is_served(name)

    page = list_kept_topics(reach.store, is_wanted, after, limit, reach.state_timeout_ms)
    topics = [{"topic": each.topic, "ask": _permitted(call, each)} for each in page.layouts]
    last = None if page.next_after is None else page.next_after.encode()
    return ToolResult(json.dumps({"topics": topics, **cursors.render_next("", bounds, last)}))


def _name_in(position: bytes) -> str:
    """Return the name at which a page ended. Raises BadRequest."""
    try:
        return position.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the cursor is not one of topics", CURSOR.name) from error


def describe_topic(call: ToolCall) -> ToolResult:
    """Return a topic's fields, some of its records, how fresh it is, and which tools take it."""
    name, reach, scope = call.topic, call.reach, call.request.scope
    reach.served.check(name)
    if scope is not None:
        check_named(scope, PermissionKind.READ, name)
    found = read_topic(reach.store, name, reach.state_timeout_ms)
    layout = found.layout
    lanes = [(each.lane, each.watermark) for each in found.lanes]
    watermarks = least_offsets((lane.partition, mark.next_offset if mark else 0) for lane, mark in lanes)
    options, rules = layout.options, _rules(call, layout)
    fields, ask = list(_shown_fields(options, rules)), list(_askable(options, rules))
    described = {
        "topic": name,
        "ask": ask,
        "keys": _keys_of(options),
        "fields": [{"name": field.name, "type": field.kind} for field in fields],
        "value_format": options.value_format,
        "history": {"records": options.history_count, "age_ms": options.history_age_ms}
        if HISTORY in ask
        else None,
        **render_totals(lanes, reach.store.clock.now_ms()),
        "watermarks": watermarks,
    }
    texts = {key: json.dumps(value) for key, value in described.items()}
    return result_of(texts | _sample(call, options, fields))


def _permitted(call: ToolCall, layout: Layout) -> list[str]:
    """Return the tools that take a topic and do not refuse the caller."""
    try:
        return list(_askable(layout.options, _rules(call, layout)))
    except (OutsideScope, RegistryUnavailable):
        return []


def _rules(call: ToolCall, layout: Layout) -> TopicScope | None:
    """Return the caller's rules for a topic. Raises OutsideScope, RegistryUnavailable."""
    scopes = call.reach.store.scopes
    return None if scopes is None else scopes.of(layout)


def _askable(options: Options, rules: TopicScope | None) -> Iterator[str]:
    """Yield the tools that take a topic with these options, of a caller with these rules."""
    yield "get"
    yield "wait_for_change"
    if options.has_history and (rules is None or rules.reads_history):
        yield HISTORY
    if options.index:
        yield "find by prefix"
    if any(_shown_fields(options, rules)):
        yield "find by where, order and count"


def _keys_of(options: Options) -> dict[str, Any]:
    """Return how keys are written."""
    if options.key_fields:
        return {"form": "values of fields", "fields": [list(each) for each in options.key_fields]}
    return {"form": "values of fields, as the sample shows" if options.has_typed_keys else "text"}


def _shown_fields(options: Options, rules: TopicScope | None) -> Iterator[Field]:
    """Yield the fields by which a caller with these rules may find records."""
    for field in indexes_of(options).fields:
        try:
            if rules is not None:
                rules.check_condition(field)
        except OutsideScope:
            continue
        yield field


def _sample(call: ToolCall, options: Options, fields: Sequence[Field]) -> dict[str, str]:
    """Return some records of a topic whose keys, or a field of whose values, are kept in order."""
    if options.index:
        response = call.read(call.path("keys"), {"limit": SAMPLE_RECORDS})
    elif fields:
        response = call.read(call.path("find"), {f".{fields[0].name}": "..", "limit": SAMPLE_RECORDS})
    else:
        return {}
    if response.status_code != OK:
        return {"sample": failure_of(response).text}
    records = fields_of(response)["records"]
    if len(records) > MOST_RESULT_BYTES // 2:
        return {"sample": json.dumps("its records are too large: name fields in find")}
    return {"sample": records}


LIST_TOPICS = Tool(
    "list_topics",
    "The topics that may be read, and the tools that take each.",
    list_topics,
    {
        "prefix": {"type": "string", "description": "of names"},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_PAGE_TOPICS,
            "default": PAGE_TOPICS,
        },
        "cursor": {"type": "string", "description": "next of the page before"},
    },
)
DESCRIBE_TOPIC = Tool(
    "describe_topic",
    "What may be asked of a topic: its fields, form of keys, two records, and how fresh it is. Ask it first.",
    describe_topic,
    {"topic": _TEXT},
    ("topic",),
)
