"""The tools that read and write records: each is a request to a route that all callers have.

A result is the route's own document, cut to what an agent can hold: a page that is larger is asked for again
with a lower limit, and its cursor leads on. Values are data: they stay in the members that routes have for
them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.api.mcp.arguments import LONGEST_LIST, check_text
from keylane.api.mcp.failures import failure_of
from keylane.api.mcp.tool import MOST_RESULT_BYTES, OK, Tool, ToolResult, fields_of, result_of
from keylane.errors import BadRequest, TooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.api.http.response import Response
    from keylane.api.mcp.tool import ToolCall

PAGE_RECORDS, MOST_PAGE_RECORDS = 20, 100
WAIT_S, MOST_WAIT_S = 20, 60
_SHRINK = 8
"""By what a limit is divided whose answer is too large to be measured."""
_NOT_MODIFIED, _CREATED, _ACCEPTED = 304, 201, 202

_TEXT: dict[str, Any] = {"type": "string"}
_FIELDS = {"type": "string", "description": "parts of each value to return: a,b.c"}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST_PAGE_RECORDS, "default": PAGE_RECORDS}
_CURSOR = {"type": "string", "description": "next of the page before, with the same arguments"}
_KEY = {"topic": _TEXT, "key": _TEXT}
_KEY_FORMAT = {"type": "string", "enum": ["text", "base64"]}


def get(call: ToolCall) -> ToolResult:
    """Return the record of a key, or that there is none."""
    headers = {}
    if (position := call.arguments.get("min_position")) is not None:
        headers["keylane_min_position"] = position
    return _record(call, _read_key(call, **headers))


def find(call: ToolCall) -> ToolResult:
    """Return a page of records by their fields, or by the beginnings of their keys."""
    given = call.arguments
    conditions = _conditions(given.get("where", {}))
    query = {name: given.get(name) for name in ("prefix", "cursor", "fields")}
    if conditions or given.get("order") or given.get("count"):
        own = {"order": given.get("order"), "count": given.get("count")}
        return _page(call, call.path("find"), query | own | conditions)
    return _page(call, call.path("keys"), query)


def history(call: ToolCall) -> ToolResult:
    """Return a page of a key's records, newest first."""
    names = ("from", "to", "cursor", "fields", "key_format")
    query = {name: call.arguments.get(name) for name in names}
    return _page(call, call.path("keys", call.arguments["key"], "history"), query)


def wait_for_change(call: ToolCall) -> ToolResult:
    """Wait until a key has another record than the one that the caller knows."""
    if not call.is_alone:
        raise BadRequest("wait_for_change can't be in a batch: send it alone")
    etag = call.arguments.get("etag")
    if etag is None:
        found = _read_key(call)
        if found.status_code != OK:
            return _record(call, found)
        etag = _etag_of(found)
    wait = f"wait={call.arguments.get('seconds', WAIT_S)}"
    response = _read_key(call, if_none_match=f'"{etag}"', prefer=wait)
    if response.status_code == _NOT_MODIFIED:
        return result_of(_asked(call) | {"changed": "false"} | _freshness(response))
    return _record(call, response, {"changed": "true"})


def put(call: ToolCall) -> ToolResult:
    """Write a value under a key."""
    if not call.is_alone:
        raise BadRequest("put can't be in a batch: send it alone")
    value = call.arguments["value"]
    text = check_text("value", value) if isinstance(value, str) else call.text_of("value")
    query = {"key_format": call.arguments.get("key_format")}
    response = call.write(call.path("keys", call.arguments["key"]), query, text.encode())
    if response.status_code not in (_CREATED, _ACCEPTED):
        return failure_of(response)
    return result_of(fields_of(response))


def _read_key(call: ToolCall, **headers: str) -> Response[Any]:
    query = {name: call.arguments.get(name) for name in ("fields", "as_of", "key_format")}
    return call.read(call.path("keys", call.arguments["key"]), {"envelope": True, **query}, **headers)


def _record(call: ToolCall, response: Response[Any], more: dict[str, str] | None = None) -> ToolResult:
    """Return what was found under a key: that there is no record is an answer, too."""
    if response.problem == "key-absent":
        return result_of(_asked(call) | {"absent": "true"} | (more or {}) | _freshness(response))
    if response.status_code != OK:
        return failure_of(response)
    if len(response.body) > MOST_RESULT_BYTES:
        raise TooLarge("answer", len(response.body), MOST_RESULT_BYTES)
    return result_of(fields_of(response) | (more or {}) | {"etag": json.dumps(_etag_of(response))})


def _page(call: ToolCall, path: str, query: Mapping[str, Any]) -> ToolResult:
    """Return a page that an agent can hold. A route's cursor goes on from whatever limit its page had."""
    limit = call.arguments.get("limit", PAGE_RECORDS)
    while True:
        response = call.read(path, {**query, "limit": limit})
        is_unmeasured = response.problem == "answer-too-large"
        if response.status_code != OK and not (is_unmeasured and limit > 1):
            return failure_of(response)
        size = len(response.body)
        if not is_unmeasured and size <= MOST_RESULT_BYTES:
            return result_of(fields_of(response))
        if limit == 1:
            return _smallest(response)
        fitting = limit // _SHRINK if is_unmeasured else limit * MOST_RESULT_BYTES // size
        limit = max(1, min(fitting, limit // 2))


def _smallest(response: Response[Any]) -> ToolResult:
    """Return the page of one record where it fits without what the topic's many partitions add."""
    result = result_of(fields_of(response))
    if len(result.text) > MOST_RESULT_BYTES:
        raise TooLarge("answer", len(result.text), MOST_RESULT_BYTES)
    return result


def _conditions(where: Mapping[str, Any]) -> dict[str, Any]:
    """Return conditions as the route of a find takes them. Raises BadRequest."""
    found = {}
    for name, value in where.items():
        values = value if isinstance(value, list) else [value]
        if len(values) > LONGEST_LIST or not all(isinstance(each, str | int | float) for each in values):
            fault = "is not a text, a number, true, false or an array of these"
            raise BadRequest(f"where: {name[:50]!r} {fault}", "where")
        for each in (name, *values):
            if isinstance(each, str):
                check_text("where", each)
        # The dot says that it is a field, whatever a parameter is called.
        found[f".{name}"] = values
    return found


def _asked(call: ToolCall) -> dict[str, str]:
    return {"topic": json.dumps(call.topic), "key": json.dumps(call.arguments["key"])}


def _freshness(response: Response[Any]) -> dict[str, str]:
    """Return what the headers of an answer without a document say."""
    headers, found = response.headers, {}
    for name, header in (("position", "Keylane-Position"), ("watermark", "Keylane-Watermark")):
        if header in headers:
            found[name] = json.dumps(headers[header])
    if "ETag" in headers:
        found["etag"] = json.dumps(_etag_of(response))
    if (age_ms := headers.get("Keylane-Age-Ms")) is not None:
        found["age_ms"] = age_ms
    for name in ("building", "incomplete"):
        if f"Keylane-{name.capitalize()}" in headers:
            found[name] = "true"
    return found


def _etag_of(response: Response[Any]) -> str:
    return response.headers["ETag"].removeprefix("W/").strip('"')


GET = Tool(
    "get",
    "The record of a key, now or as of a time. absent: there is none.",
    get,
    {
        **_KEY,
        "fields": _FIELDS,
        "as_of": {"type": "string", "description": "ISO 8601 time, if the topic has a history"},
        "min_position": {"type": "string", "description": "position that put returned: reads that write"},
        "key_format": _KEY_FORMAT,
    },
    ("topic", "key"),
)
FIND = Tool(
    "find",
    "A page of records by fields that describe_topic lists, or by the beginning of their keys.",
    find,
    {
        "topic": _TEXT,
        "where": {
            "type": "object",
            "description": "field: condition, all must hold. open (equal), 10..20 (range; 10.. and ..20 are "
            'open), Sm* (prefix), .. (has any), "\\"a*\\"" (a JSON string: equal, as it is)',
        },
        "prefix": {"type": "string", "description": "of keys"},
        "order": {"type": "string", "description": "field; -field: highest first"},
        "count": {"type": "boolean", "description": "the number of records alone"},
        "fields": _FIELDS,
        "limit": _LIMIT,
        "cursor": _CURSOR,
    },
    ("topic",),
)
HISTORY = Tool(
    "history",
    "A page of the records that a key has had, newest first.",
    history,
    {
        **_KEY,
        "from": {"type": "string", "description": "ISO 8601 time"},
        "to": _TEXT,
        "fields": _FIELDS,
        "limit": _LIMIT,
        "cursor": _CURSOR,
        "key_format": _KEY_FORMAT,
    },
    ("topic", "key"),
)
WAIT_FOR_CHANGE = Tool(
    "wait_for_change",
    "Waits until a key's record is another one than etag's. changed: false after seconds, or what the server "
    "allows: call again with etag.",
    wait_for_change,
    {
        **_KEY,
        "etag": {"type": "string", "description": "of get or wait_for_change; without it: of the record now"},
        "seconds": {"type": "integer", "minimum": 1, "maximum": MOST_WAIT_S, "default": WAIT_S},
        "fields": _FIELDS,
        "key_format": _KEY_FORMAT,
    },
    ("topic", "key"),
)
PUT = Tool(
    "put",
    "Writes a key's value to Kafka, in place of the one before: a string as it is, all else as JSON.",
    put,
    {**_KEY, "value": {}, "key_format": _KEY_FORMAT},
    ("topic", "key", "value"),
    is_write=True,
)
