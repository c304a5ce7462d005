"""Messages of agents: each tool over topics of all kinds, and bodies and headers of any kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.reads import JSON

from keylane.api.mcp import versions
from keylane.api.mcp.messages import MOST_MESSAGES
from keylane.api.mcp.protocol import BODY_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Headers, Names

PATH = "/mcp"
CALLS: tuple[tuple[str, Any], ...] = (
    ("list_topics", {"prefix": "hosts-b"}),
    ("list_topics", {"prefix": "hosts-", "limit": 2}),
    ("list_topics", {"limit": 0}),
    *(
        ("describe_topic", {"topic": f"hosts-{name}"})
        for name in ("flights", "bookings", "feed", "registered", "striped", "hidden", "nowhere", "trips")
    ),
    *(
        ("get", {"topic": "hosts-flights", "key": key, **more})
        for key in ("N14228", "v-object", "gone", "nothing", "", ".", "\u00fc", "x" * 65_537)
        for more in ({}, {"fields": "dest"})
    ),
    ("get", {"topic": "hosts-flights", "key": "TjE0MjI4", "key_format": "base64"}),
    ("get", {"topic": "hosts-bookings", "key": "ann|05", "as_of": "2023-11-14T22:15:00Z"}),
    ("get", {"topic": "hosts-flights", "key": "N14228", "min_position": "0:1"}),
    ("get", {"topic": "hosts-left", "key": "large"}),
    ("get", {"topic": "hosts-nowhere", "key": "k"}),
    ("get", {"topic": "a b", "key": "k"}),
    ("get", {"topic": "hosts-flights"}),
    ("get", {"topic": "hosts-flights", "key": 7}),
    ("get", None),
    ("get", []),
    ("find", {"topic": "hosts-feed", "where": {"n": "14..17"}}),
    ("find", {"topic": "hosts-feed", "where": {"n": 14, "m": [1]}}),
    ("find", {"topic": "hosts-feed", "where": {"m": 1}, "order": "-n", "limit": 2}),
    ("find", {"topic": "hosts-feed", "where": {"m": 1}, "count": True}),
    ("find", {"topic": "hosts-feed", "where": {"nothing": 1}}),
    ("find", {"topic": "hosts-feed", "where": {"n": {}}}),
    ("find", {"topic": "hosts-bookings", "prefix": "ann|", "limit": 4}),
    ("find", {"topic": "hosts-flights"}),
    ("find", {"topic": "hosts-bookings", "cursor": "no-cursor"}),
    ("history", {"topic": "hosts-bookings", "key": "ann|05", "limit": 2}),
    ("history", {"topic": "hosts-flights", "key": "N14228"}),
    ("wait_for_change", {"topic": "hosts-flights", "key": "N14228", "etag": "0-0"}),
    ("wait_for_change", {"topic": "hosts-flights", "key": "N14228", "seconds": 1}),
    ("wait_for_change", {"topic": "hosts-flights", "key": "nothing"}),
    ("put", {"topic": "hosts-flights", "key": "k", "value": 1}),
    ("drop_topic", {}),
)
BODIES = (
    *(b"", b" ", b"{", b"\xff", b"1", b"null", b"{}", b"[]", b"[1]", b"[" * 501, b"[" * 100_000, b"NaN"),
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
    b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}',
    b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": null, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
    b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "x"}, 7]',
    b"[" + b", ".join([b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'] * (MOST_MESSAGES + 1)) + b"]",
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "' + b"x" * 70_000 + b'"}}',
    b" " * (BODY_LIMIT_BYTES + 1),
)
HEADERS: tuple[Headers, ...] = (
    (),
    (("Content-Type", "text/plain"),),
    (*JSON, ("Accept", "text/event-stream")),
    (*JSON, ("Accept", "application/json, text/event-stream")),
    (*JSON, ("Origin", "https://elsewhere.example")),
    (*JSON, ("Origin", "null")),
    (*JSON, ("Content-Encoding", "br")),
    (*JSON, ("Mcp-Session-Id", "7")),
    *((*JSON, ("MCP-Protocol-Version", each)) for each in (*versions.SUPPORTED, "2024-11-05", "x")),
)
METHODS = ("GET", "HEAD", "DELETE", "PUT")


def a_call(tool: str, arguments: Any) -> bytes:
    """The body of a call."""
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def agent_cases(names: Names) -> Iterator[Case]:
    """Each tool, bodies of all kinds, headers, versions with and without a handshake, and other methods."""
    for tool, arguments in CALLS:
        yield Case("POST", PATH, JSON, a_call(tool, arguments))
    for body in BODIES:
        yield Case("POST", PATH, JSON, body)
    listed = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    for headers in HEADERS:
        yield Case("POST", PATH, headers, listed)
    for version in (*versions.NEGOTIATED, "2024-11-05", 7):
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params}
        yield Case("POST", PATH, JSON, json.dumps(message).encode())
    yield from _stateless()
    for method in METHODS:
        yield Case(method, PATH)
    yield Case("POST", f"{PATH}?session=1", JSON, listed)
    yield Case("POST", f"{PATH}/", JSON, listed)


def _stateless() -> Iterator[Case]:
    meta = {versions.META_VERSION: versions.STATELESS, versions.META_CAPABILITIES: {}}
    tool = {"name": "get", "arguments": {"topic": "hosts-flights", "key": "N14228"}}
    for method, params in (("server/discover", {}), ("tools/list", {}), ("tools/call", tool), ("ping", {})):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        body = json.dumps(message).encode()
        own = [("MCP-Protocol-Version", versions.STATELESS), ("Mcp-Method", method)]
        own += [("Mcp-Name", params["name"])] if params else []
        for headers in (own, own[:1], own[1:], [*own[:1], ("Mcp-Method", "other"), *own[2:]]):
            yield Case("POST", PATH, (*JSON, *headers), body)
