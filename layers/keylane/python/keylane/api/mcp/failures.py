"""Problems as results of tools: what went wrong, and what to ask instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.api.http import problems
from keylane.api.mcp.tool import ToolResult

if TYPE_CHECKING:
    from keylane.api.http.response import Response

_DESCRIBE = "describe_topic says what may be asked of a topic"
_NAMES = "list_topics names the topics that this caller may read"
_LATER = "ask again in some seconds"
_FIELDS = "name fields, so that less of each value is returned"
HINTS = {
    "unknown-topic": _NAMES,
    "topic-not-served": _NAMES,
    "outside-scope": f"{_NAMES}; {_DESCRIBE}",
    "no-fields": f"{_DESCRIBE}; get reads a key",
    "no-index": f"{_DESCRIBE}; get reads a key",
    "no-history": "get reads the latest record",
    "history-too-short": "history returns the records that are kept",
    "no-json-object": "ask without fields",
    "scope-too-wide": "name a field or a prefix that tells the records apart",
    "value-left-in-kafka": "the value is in Kafka alone, at this position",
    "value-not-decodable": "the value can't be shown",
    "answer-too-large": _FIELDS,
    "key-absent": "find with a prefix returns the keys that there are",
    "position-not-reached": _LATER,
    "lane-building": _LATER,
    "state-unavailable": _LATER,
    "registry-unavailable": _LATER,
    "rate-limited": _LATER,
    "log-unavailable": _LATER,
}
"""By the problem's type; others have what `_OTHERWISE` says."""
_OTHERWISE = _DESCRIBE
_KEPT = ("title", "detail", "parameter", "status")


def failure_of(response: Response[Any]) -> ToolResult:
    """Return the result of a call that a problem document answers."""
    document = json.loads(response.body)
    kind = document["type"].rpartition(":")[2]
    instead = HINTS.get(kind, _LATER if response.status_code >= problems.SERVER_ERROR else _OTHERWISE)
    shown = {"problem": kind, **{name: document[name] for name in _KEPT if name in document}}
    return ToolResult(json.dumps({**shown, "instead": instead}), is_error=True)


def failure(error: Exception, request_id: str) -> ToolResult:
    """Return the result of a call that raised an error: as the routes answer it, and logged as there."""
    return failure_of(problems.response_to(error, request_id))
