"""A request as ASGI gives it to the server, before its body is read."""

import math
import re
from collections.abc import Callable
from random import getrandbits
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote

from keylane.access.callers import Caller
from keylane.access.scopes import Scope as Rights
from keylane.api.http.request import Request, is_host
from keylane.errors import BadRequest
from keylane.model.routes import READS, Target, find

Scope = dict[str, Any]
# Printable ASCII stays as the client wrote it; only what an HTTP path cannot hold is percent-encoded.
_PATH_SAFE = "".join(map(chr, range(0x21, 0x7F)))
_PRINTABLE = re.compile("[!-~]*")
_HTTP_1_0 = "1"
KEY_PATH = re.compile(rb"/topics/([A-Za-z0-9._-]{1,249})/keys/((?!\.{1,2}\Z)[!-$&-.0->@-~]+)")
"""A key's path in which nothing is percent-encoded; `.` and `..` are no keys."""
FIELDS_LIMIT = 2_000
"""Of a query. A thousand take half a millisecond."""
_ONCE = ("authorization", "x-api-key")
_SECRET = re.compile("token|secret|passw|authori[sz]ation|api.?key|jwt", re.IGNORECASE)
"""In names of parameters that no route has, and that clients send all the same."""
_NO_QUERY: dict[str, list[str]] = {}


class Access(NamedTuple):
    """Who sends a request: whose token it has, empty without one.

    `scope`: what a JWT permits; None for a token with a grant, unless the request names its topics in its
    body. `until_s`: when a JWT expires, in seconds since 1970.
    """

    caller: str = ""
    scope: Rights | None = None
    until_s: float = math.inf


ANYONE = Access()


class ReceivedRequest:
    """The head of a request. `path` is percent-encoded; `query_string` is as it was sent.

    `headers` are by lower-case name, the values of a repeated one as a list with commas; of a repeated one
    `last` has the last. `target`: where the request leads, once `find_target` has looked. `access`: who sends
    it, once that is verified.
    """

    __slots__ = (
        *(
            "_query",
            "access",
            "headers",
            "id",
            "last",
            "method",
            "path",
            "query_string",
            "source_ip",
            "target",
        ),
    )

    def __init__(self, scope: Scope, request_id: str) -> None:
        pairs = [(name.decode("latin-1"), _decode_value(value)) for name, value in scope["headers"]]
        self.last = self.headers = dict(pairs)
        if len(self.headers) < len(pairs):
            self.headers = _joined(pairs)
        self.method: str = scope["method"]
        self.path = encode_path(scope["raw_path"].decode("utf-8", "surrogateescape"))
        self.query_string: str = scope["query_string"].decode("utf-8", "surrogateescape")
        self._query: dict[str, list[str]] | None = None
        client = scope.get("client")
        self.source_ip: str = client[0] if client else ""
        self.id = request_id
        self.target = Target(self.path)
        self.access = ANYONE

    @property
    def query(self) -> dict[str, list[str]]:
        """The values of each parameter. It is parsed once somebody may ask: a stranger's is not.

        Raises BadRequest for what is not UTF-8: replaced, it would ask for something else.
        """
        if self._query is None:
            given = self.query_string
            try:
                given.encode()
                self._query = parse_qs(given, keep_blank_values=True, errors="strict") if given else _NO_QUERY
            except UnicodeError as error:
                raise BadRequest(
                    "the query is not UTF-8: ask for the bytes of keys with key_format=base64"
                ) from error
        return self._query

    def find_fault(self, http_version: str) -> str:
        """Return why the head is refused, empty if it is not: what the HTTP parser lets through.

        A repeated Host is a list with a comma, which no host has.
        """
        host = self.headers.get("host", "")
        if not is_host(host) and (host or http_version != _HTTP_1_0):
            return "Host is missing, is there twice, or is not a host"
        if self.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            return "Transfer-Encoding is not chunked alone"
        if self.last is not self.headers and any(
            self.headers.get(each) != self.last.get(each) for each in _ONCE
        ):
            return "Authorization or x-api-key is there twice"
        if self.query_string.count("&") >= FIELDS_LIMIT:
            return f"the query has more than {FIELDS_LIMIT} parameters"
        return ""

    def find_target(self, path: str) -> Target:
        """Find where the request leads; `path`: without the base path."""
        self.target = find(self.method, path)
        return self.target

    @property
    def shown_target(self) -> str:
        """Path and query, as logs have them."""
        return f"{self.path}?{self.shown_query}" if self.query_string else self.path

    @property
    def shown_query(self) -> str:
        """The query without values that may be secrets, wherever else they belong."""
        return "&".join(map(_without_secret, self.query_string.split("&")))

    @property
    def is_long_poll(self) -> bool:
        """Whether the client asks to wait for a change."""
        return "wait" in self.headers.get("prefer", "") and self.method in READS

    @property
    def declared_bytes(self) -> int | None:
        """The Content-Length, None without one."""
        length = self.last.get("content-length")
        return int(length) if length is not None else None

    @property
    def has_body(self) -> bool:
        """Whether a body may follow. HTTP/2 announces none."""
        return (
            self.method not in READS
            or "content-length" in self.headers
            or "transfer-encoding" in self.headers
        )

    def with_body(self, body: bytes) -> Request:
        """Return the complete request, with what its sender may see and write."""
        sender, scope = Caller(self.access.caller, source_ip=self.source_ip), self.access.scope
        return Request(self.method, self.path, self.query, self.headers, body, sender, self.id, scope=scope)


def plain_headers(
    scope: Scope, not_plain: frozenset[bytes], is_host: Callable[[str], bool]
) -> dict[bytes, bytes] | None:
    """Return the headers of a plain request; None of any other one.

    It has no query, no header twice, none of `not_plain`, and a Host that `is_host`.
    """
    pairs = scope["headers"]
    headers: dict[bytes, bytes] = dict(pairs)
    if scope["query_string"] or len(headers) < len(pairs) or not not_plain.isdisjoint(headers):
        return None
    return headers if is_host(headers.get(b"host", b"").decode("latin-1")) else None


def without_base(path: bytes, base_path: bytes) -> bytes:
    """Return a path as it was sent without the base path, if there is one."""
    return path[len(base_path) :] if base_path and path.startswith(base_path + b"/") else path


def encode_path(path: str) -> str:
    """Return a path as it was sent, with bytes percent-encoded that a path can't hold."""
    if _PRINTABLE.fullmatch(path):
        return path
    return quote(path.encode("utf-8", "surrogateescape"), safe=_PATH_SAFE)


def new_request_id() -> str:
    """Return a random UUID. `uuid.uuid4` makes a system call, and an object that nobody needs."""
    digits = f"{getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _without_secret(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return f"{name}=***" if equals and _SECRET.search(unquote(name)) else parameter


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in pairs:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _decode_value(value: bytes) -> str:
    """Return a header's value, decoded as Latin-1 (HTTP/1.0's rule) if it is not valid UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
