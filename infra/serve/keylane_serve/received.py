"""A request as the server received it, and the event that the handlers get of it.

The event has what they read, as API Gateway's has it, and nothing else: to make a complete one, as
`proxy_events.build_proxy_event` does, takes longer than to read a record from Redis.
"""

from __future__ import annotations

from random import getrandbits
from typing import Any
from urllib.parse import parse_qsl

from keylane.api.event import LowerCaseHeaders
from keylane.model.routes import READS
from keylane_serve.proxy_events import STAGE, encode_path, group_by_name

Scope = dict[str, Any]


class ReceivedRequest:
    """A request before its body is read. `path` and `query` are as they were sent.

    `headers` are by lower-case name, of a repeated one the last; `repeated` has all values of each name, and
    is None where no name is repeated.
    """

    __slots__ = ("headers", "id", "method", "path", "query", "repeated", "source_ip")

    def __init__(self, scope: Scope) -> None:
        pairs = [(name.decode("latin-1"), _decode_value(value)) for name, value in scope["headers"]]
        self.headers = LowerCaseHeaders(pairs)
        self.repeated = group_by_name(pairs) if len(self.headers) < len(pairs) else None
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("utf-8", "surrogateescape")
        self.query: str = scope["query_string"].decode("utf-8", "surrogateescape")
        client = scope.get("client")
        self.source_ip: str = client[0] if client else ""
        self.id = new_request_id()

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def is_long_poll(self) -> bool:
        """Whether the client asks to wait for a change."""
        return "wait" in self.headers.get("prefer", "") and self.method in READS

    @property
    def declared_bytes(self) -> int | None:
        """The Content-Length, None without one."""
        length = self.headers.get("content-length")
        return int(length) if length is not None else None

    @property
    def has_body(self) -> bool:
        """Whether a body may follow. HTTP/2 announces none."""
        return (
            self.method not in READS
            or "content-length" in self.headers
            or "transfer-encoding" in self.headers
        )

    def event(self, body: bytes) -> dict[str, Any]:
        """Return the event for the handlers. The body stays bytes, which JSON could not hold."""
        query = parse_qsl(self.query, keep_blank_values=True, errors="replace") if self.query else None
        return {
            "httpMethod": self.method,
            "path": encode_path(self.path),
            "headers": self.headers,
            "multiValueHeaders": self.repeated,
            "queryStringParameters": dict(query) if query else None,
            "multiValueQueryStringParameters": group_by_name(query) if query else None,
            "requestContext": {
                "requestId": self.id,
                "stage": STAGE,
                "identity": {"sourceIp": self.source_ip},
            },
            "body": body or None,
            "isBase64Encoded": False,
        }


def new_request_id() -> str:
    """Return a random UUID. `uuid.uuid4` makes a system call, and an object that nobody needs."""
    digits = f"{getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _decode_value(value: bytes) -> str:
    """Return a header's value, decoded as Latin-1 (HTTP/1.0's rule) if it is not valid UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
