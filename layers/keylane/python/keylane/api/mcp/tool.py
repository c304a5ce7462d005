"""A tool, its call, and its result: what all tools have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from keylane.api.http.request import topic_name
from keylane.api.mcp.messages import render_object
from keylane.formats.json_text import ExactFloat, members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keylane.api.http.request import Request
    from keylane.api.http.response import Response
    from keylane.model.served_topics import ServedTopics
    from keylane.query.store import Store

    Ask = Callable[[Request], Response[Any]]

OK = 200
MOST_RESULT_BYTES = 40_000
"""About 10,000 tokens. An agent's context has to hold it."""
MOST_WATERMARKS = 64
"""Of a result. Topics have up to 16,384 partitions."""
_MOST_LEVELS = 100
"""Of a value that is given as structure, too: parsers of clients go less deep than Keylane's."""


class Reach(NamedTuple):
    """What tools work with.

    `ask` answers a request as if it had come from outside: with the rights, the bounds and the problems of
    its route. `write`: the same for routes that write; None where tools write nothing. `store`: as the caller
    may read it; `served`: the topics that are read here. `state_timeout_ms` bounds one read.
    """

    ask: Ask
    write: Ask | None
    store: Store
    served: ServedTopics
    state_timeout_ms: float


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call: its arguments, which fit the tool's schema, and the request that it came with.

    `text_of` returns an argument as the body has it. `is_alone`: it is the only message of its request.
    """

    arguments: Mapping[str, Any]
    request: Request
    reach: Reach
    text_of: Callable[[str], str]
    is_alone: bool

    @property
    def topic(self) -> str:
        """The topic. Raises BadRequest for a name that none has."""
        return topic_name(self.arguments["topic"], "topic")

    def path(self, *parts: str) -> str:
        """Return the path of a route of the call's topic."""
        return "/".join(("/topics", self.topic, *(quote(part, safe="") for part in parts)))

    def read(self, path: str, query: Mapping[str, Any], **headers: str) -> Response[Any]:
        """Answer a GET. Parameters without a value are left out, and so are headers' `_`."""
        return self.reach.ask(self._request("GET", path, query, headers))

    def write(self, path: str, query: Mapping[str, Any], body: bytes) -> Response[Any]:
        """Answer a PUT. The tool is not there where nothing is written."""
        assert self.reach.write is not None  # noqa: S101 - for the type checker
        traced = {name: self.request.headers[name] for name in _TRACE if name in self.request.headers}
        return self.reach.write(self._request("PUT", path, query, traced, body))

    def _request(
        self, method: str, path: str, query: Mapping[str, Any], headers: Mapping[str, str], body: bytes = b""
    ) -> Request:
        given = {name: _texts(value) for name, value in query.items() if value is not None}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request._replace(method=method, path=path, query=given, headers=named, body=body)


_TRACE = ("traceparent", "tracestate")


class ToolResult(NamedTuple):
    """The text of a JSON object, and whether it is an error."""

    text: str
    is_error: bool = False

    def render(self) -> str:
        """Return the result as the protocol has it: as text, and as structure where a client can parse it."""
        content = f'"content": [{{"type": "text", "text": {json.dumps(self.text)}}}]'
        structured = f', "structuredContent": {self.text}' if _is_plain(self.text) else ""
        return f'{{{content}{structured}, "isError": {json.dumps(self.is_error)}}}'


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `properties`: the schemas of its arguments; `call` raises KeylaneError."""

    name: str
    description: str
    call: Callable[[ToolCall], ToolResult]
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    is_write: bool = False

    def document(self) -> dict[str, Any]:
        """Return what a list of tools has of it."""
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        hints = {"destructiveHint": True} if self.is_write else {"readOnlyHint": True}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "annotations": hints,
        }


def result_of(fields: Mapping[str, str]) -> ToolResult:
    """Return the result of members whose values are texts of JSON; of many partitions without watermarks."""
    given = dict(fields)
    if (watermarks := given.get("watermarks")) and watermarks.count(":") > MOST_WATERMARKS:
        given["partitions"] = str(len(members(watermarks)))
        del given["watermarks"]
    return ToolResult(render_object(given))


def fields_of(response: Response[Any]) -> dict[str, str]:
    """Return the members of an answer's document, as their texts."""
    return members(response.body)


def _texts(value: Any) -> Sequence[str]:
    if isinstance(value, list):
        return [_text(each) for each in value]
    return [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, ExactFloat):
        return value.digits
    return value if isinstance(value, str) else json.dumps(value)


def _is_plain(text: str) -> bool:
    """Return whether every parser of JSON takes a text: no half of a surrogate pair, and few levels."""
    try:
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    nodes: list[Any] = [document]
    for _ in range(_MOST_LEVELS):
        nodes = [child for node in nodes for child in _children(node)]
        if not nodes:
            return True
    return False


def _children(node: Any) -> Sequence[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else ()
