"""JSON-RPC 2.0: the messages in the body of a POST, and the answers to them.

A message that can't be read is answered by an error of the table in the specification, never by a problem
document: its client reads nothing else. An id is a string or an integer; a message without one is a
notification, which is not answered.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as quote
from typing import Any, NamedTuple

from keylane.api.http.schemas import TEXT, Schema, an_object
from keylane.formats.json_text import parse_unambiguous, why_not_json

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
"""MCP's own: of headers that repeat a part of the body, and of versions of the protocol."""
MOST_MESSAGES = 10
"""Of a batch, which the oldest version has."""
LONGEST_ID, ID_BITS = 1_000, 64
"""Characters of a text, and bits of a number."""
LONGEST_METHOD = 100
SHOWN_CHARACTERS = 50

_ID: dict[str, Any] = {"type": ["string", "integer"], "description": "none: it is a notification"}
MESSAGE_SCHEMA = Schema(
    "McpMessage",
    {
        "description": "a message of the Model Context Protocol",
        **an_object(
            optional=("id", "params"),
            jsonrpc={"const": "2.0"},
            id=_ID,
            method={**TEXT, "minLength": 1, "maxLength": LONGEST_METHOD},
            params={"description": "an object: of tools/call `name` and `arguments`"},
        ),
    },
)
ANSWER_SCHEMA = Schema(
    "McpAnswer",
    {
        "description": "the result of a request, or its error",
        **an_object(
            optional=("id", "result", "error"),
            jsonrpc={"const": "2.0"},
            id={"type": ["string", "integer", "null"]},
            result={"type": "object"},
            error=an_object(optional=("data",), code={"type": "integer"}, message=TEXT, data={}),
        ),
    },
)


class RpcFault(Exception):
    """A message is answered by an error: one of the codes above, what is wrong, and perhaps more of it."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class RpcMessage(NamedTuple):
    """A request, or a notification, whose `id` is None."""

    id: str | int | None
    method: str
    params: dict[str, Any]


def parse_body(body: bytes) -> Any:
    """Return what a body has: a message, or a batch of them. Raises RpcFault."""
    try:
        return parse_unambiguous(body)
    except ValueError as error:
        raise RpcFault(PARSE_ERROR, f"the body {why_not_json(error)}") from error


def parse_message(found: Any) -> RpcMessage:
    """Return the message that an element of a body is. Raises RpcFault."""
    if not isinstance(found, dict):
        raise RpcFault(INVALID_REQUEST, "a message is a JSON object")
    if found.get("jsonrpc") != "2.0":
        raise RpcFault(INVALID_REQUEST, 'jsonrpc is not "2.0"')
    if "id" in found and not _is_id(found["id"]):
        raise RpcFault(INVALID_REQUEST, f"the id is not an integer, nor a string of {LONGEST_ID} characters")
    method = found.get("method")
    if not isinstance(method, str) or not 0 < len(method) <= LONGEST_METHOD:
        raise RpcFault(INVALID_REQUEST, "the message has no method: this server sends no requests to clients")
    params = found.get("params", {})
    if not isinstance(params, dict):
        raise RpcFault(INVALID_PARAMS, "params is not an object")
    return RpcMessage(found.get("id"), method, params)


def id_of(found: Any) -> str | int | None:
    """Return the id of a message that may be anything; None where it has none that is valid."""
    given = found.get("id") if isinstance(found, dict) else None
    return given if _is_id(given) else None


def _is_id(given: Any) -> bool:
    if isinstance(given, str):
        return len(given) <= LONGEST_ID
    return type(given) is int and given.bit_length() <= ID_BITS


def render_result(message_id: str | int, result: str) -> str:
    """Return the answer to a request. `result`: the text of a JSON object."""
    return f'{{"jsonrpc": "2.0", "id": {json.dumps(message_id)}, "result": {result}}}'


def render_fault(message_id: str | int | None, fault: RpcFault) -> str:
    """Return the answer to a message with a fault; the id is null where it is not known."""
    error: dict[str, Any] = {"code": fault.code, "message": str(fault)}
    if fault.data is not None:
        error["data"] = fault.data
    return f'{{"jsonrpc": "2.0", "id": {json.dumps(message_id)}, "error": {json.dumps(error)}}}'


def render_object(fields: dict[str, str]) -> str:
    """Return the text of a JSON object of members whose values are texts of JSON."""
    return "{" + ", ".join(f"{quote(name)}: {value}" for name, value in fields.items()) + "}"
