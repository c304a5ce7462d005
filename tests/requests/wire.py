"""A request as bytes, over HTTP/1.1 and HTTP/2, and what comes back: no client library would send it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

HTTP_1, HTTP_2, RAW = "HTTP/1.1", "HTTP/2", "raw"
"""How a request is sent. RAW: as bytes that may be no request."""
NO_ANSWER_S, RAW_S, EVENTS_S = 20.0, 1.0, 0.3
LATE, CLOSED = "no answer in time", "closed without an answer"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_BYTES, _WINDOW_BYTES = 16_384, 65_535
_NO_TABLE, _WIDE = struct.pack(">HI", 1, 0), struct.pack(">HI", 4, 2**31 - 1)
_MORE_ROOM = struct.pack(">I", 2**30)
_HOP_BY_HOP = {"connection", "host", "transfer-encoding", "upgrade", "keep-alive", "http2-settings"}
_STATUSES = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
_SHORT_DIGIT_BITS = 5
_STREAM, _FIRST_OF_STREAM = "text/event-stream", b"retry:"


@dataclass(frozen=True, slots=True)
class FuzzRequest:
    """A request; texts stand for bytes in Latin-1, path and query are as they are sent.

    `raw`: sent instead of all that, if it is not empty. `parts`: of a chunked body, 0: it is not chunked.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    over: str = HTTP_1
    parts: int = 0
    raw: bytes = b""

    @property
    def target(self) -> str:
        """Path and query."""
        query = "&".join(f"{name}={value}" if value else name for name, value in self.query)
        return f"{self.path}?{query}" if query else self.path

    def with_header(self, name: str, value: str) -> FuzzRequest:
        return replace(self, headers=(*self.headers, (name, value)))

    def without_header(self, name: str) -> FuzzRequest:
        return replace(self, headers=tuple(each for each in self.headers if each[0].lower() != name.lower()))

    def rendered(self) -> bytes:
        """Return it as it is sent over HTTP/1.1."""
        if self.raw:
            return self.raw
        lines = [
            f"{self.method} {self.target} HTTP/1.1",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        if self.parts:
            lines.append("Transfer-Encoding: chunked")
        elif self.body or self.method not in {"GET", "HEAD"}:
            lines.append(f"Content-Length: {len(self.body)}")
        head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
        return head + (_chunked(self.body, self.parts) if self.parts else self.body)

    def to_json(self) -> str:
        """Return it as a line that `of_json` reads."""
        found = asdict(self)
        return json.dumps(found | {name: found[name].decode("latin-1") for name in ("body", "raw")})

    @classmethod
    def of_json(cls, line: str) -> FuzzRequest:
        found = json.loads(line)
        pairs = {name: tuple((a, b) for a, b in found[name]) for name in ("query", "headers")}
        data = {name: found[name].encode("latin-1") for name in ("body", "raw")}
        return cls(**(found | pairs | data))


class FuzzAnswer(NamedTuple):
    """`status`: 0, there was none, and `ended` says why; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    taken_s: float
    ended: str = ""


def exchange(host: str, port: int, request: FuzzRequest) -> FuzzAnswer:
    """Send a request on a connection of its own; return the answer. Of a stream its first events."""
    begun_s = time.monotonic()
    within_s = RAW_S if request.over == RAW else NO_ANSWER_S
    try:
        with socket.create_connection((host, port), timeout=within_s) as connection:
            answer = (
                _over_http_2(connection, request)
                if request.over == HTTP_2
                else _over_http_1(connection, request)
            )
    except TimeoutError:
        answer = FuzzAnswer(0, {}, b"", 0, LATE)
    except (OSError, EOFError):
        answer = FuzzAnswer(0, {}, b"", 0, CLOSED)
    return answer._replace(taken_s=time.monotonic() - begun_s)


def _chunked(body: bytes, parts: int) -> bytes:
    size = max(1, -(-len(body) // parts))
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def _send(connection: socket.socket, data: bytes) -> None:
    # The server may answer before it has all, and close.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)


def _over_http_1(connection: socket.socket, request: FuzzRequest) -> FuzzAnswer:
    _send(connection, request.rendered())
    with connection.makefile("rb") as file:
        status, headers = 100, dict[str, str]()
        while status < 200:
            line = file.readline(65_536)
            found = re.match(rb"HTTP/1\.[01] (\d{3})", line)
            if found is None:
                raise EOFError
            status, headers = int(found[1]), {}
            while (line := file.readline(65_536)).strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            if status == 101:
                break
        if request.method == "HEAD" or status in {101, 204, 304}:
            return FuzzAnswer(status, headers, b"", 0)
        if headers.get("content-type", "").startswith(_STREAM):
            return FuzzAnswer(status, headers, _first_events(connection, file), 0)
        if "content-length" in headers:
            return FuzzAnswer(status, headers, file.read(int(headers["content-length"])), 0)
        if headers.get("transfer-encoding") != "chunked":
            return FuzzAnswer(status, headers, b"" if status == 400 else file.read(), 0)
        body = b""
        while size := int(file.readline().split(b";")[0], 16):
            body += file.read(size)
            file.readline()
        return FuzzAnswer(status, headers, body, 0)


def _first_events(connection: socket.socket, file: Any) -> bytes:
    connection.settimeout(EVENTS_S)
    found = b""
    with contextlib.suppress(OSError):
        while len(found) < 65_536 and (piece := file.readline(65_536)):
            found += piece
    return found


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _length(size: int) -> bytes:
    if size < 127:
        return bytes([size])
    found, size = bytearray([127]), size - 127
    while size >= 128:
        found.append(size % 128 + 128)
        size //= 128
    return bytes([*found, size])


def _literal(name: str, value: str) -> bytes:
    first, second = name.encode("latin-1", "replace"), value.encode("latin-1", "replace")
    return b"\x00" + _length(len(first)) + first + _length(len(second)) + second


def _fields(request: FuzzRequest) -> bytes:
    hosts = [value for name, value in request.headers if name.lower() == "host"]
    pseudo = [(":method", request.method), (":scheme", "http"), (":path", request.target)]
    pseudo += [(":authority", host) for host in hosts[:1]]
    plain = [(name.lower(), value) for name, value in request.headers if name.lower() not in _HOP_BY_HOP]
    return b"".join(_literal(*pair) for pair in (*pseudo, *plain))


def _over_http_2(connection: socket.socket, request: FuzzRequest) -> FuzzAnswer:
    _send(connection, _frames(request))
    reply = _Http2Reply(connection)
    with connection.makefile("rb") as file:
        while not reply.is_over:
            try:
                head = file.read(9)
                if len(head) < 9:
                    raise EOFError
                reply.take(head[3], head[4], file.read(int.from_bytes(head[:3], "big")))
            except TimeoutError:
                if not reply.is_stream:
                    raise
                break
    return FuzzAnswer(reply.status, {}, reply.body, 0, reply.ended)


def _frames(request: FuzzRequest) -> bytes:
    """Return a request as the first and only one of a connection."""
    fields, body = _fields(request), request.body[:_WINDOW_BYTES]
    blocks = [fields[at : at + _FRAME_BYTES] for at in range(0, len(fields), _FRAME_BYTES)]
    sent = _PREFACE + _frame(_SETTINGS, 0, 0, _NO_TABLE + _WIDE) + _frame(_WINDOW_UPDATE, 0, 0, _MORE_ROOM)
    for number, block in enumerate(blocks):
        kind = _CONTINUATION if number else _HEADERS
        flags = (0 if number or body else _END_STREAM) | (_END_HEADERS if number == len(blocks) - 1 else 0)
        sent += _frame(kind, flags, 1, block)
    for at in range(0, len(body), _FRAME_BYTES):
        sent += _frame(_DATA, _END_STREAM * (at + _FRAME_BYTES >= len(body)), 1, body[at : at + _FRAME_BYTES])
    return sent


class _Http2Reply:
    """The reply to it, frame by frame."""

    def __init__(self, connection: socket.socket) -> None:
        self.status, self.body, self.ended, self.is_over = 0, b"", "", False
        self._connection, self._block = connection, b""

    @property
    def is_stream(self) -> bool:
        """Whether it has no end: a stream of events begins so."""
        return self.status == 200 and self.body.startswith(_FIRST_OF_STREAM)

    def take(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags:
            _send(self._connection, _frame(_SETTINGS, 1, 0))
        elif kind == _PING and not flags:
            _send(self._connection, _frame(_PING, 1, 0, payload))
        elif kind in {_RESET, _GOAWAY}:
            self.ended, self.is_over = CLOSED, True
        elif kind in {_HEADERS, _CONTINUATION}:
            self._block += payload
            self.status = self.status or status_of(self._block)
        elif kind == _DATA:
            self.body += payload
            if self.is_stream:
                self._connection.settimeout(EVENTS_S)
        self.is_over = self.is_over or (kind in {_HEADERS, _DATA} and bool(flags & _END_STREAM))


def status_of(block: bytes) -> int:
    """Return the status of a header block that uses no table of its own; it is the first field."""
    at = 0
    while block[at] & 0xE0 == 0x20:  # the size of the table
        at += 1
        if block[at - 1] & 0x1F == 0x1F:
            while block[at] & 0x80:
                at += 1
            at += 1
    if block[at] in _STATUSES:
        return _STATUSES[block[at]]
    size = block[at + 1] & 0x7F
    text = block[at + 2 : at + 2 + size]
    return int(_digits(text) if block[at + 1] & 0x80 else text)


def _digits(data: bytes) -> str:
    """Return digits in HPACK's Huffman code: 0, 1, 2 have five bits, the others six."""
    bits, found = "".join(f"{byte:08b}" for byte in data), ""
    while len(bits) >= _SHORT_DIGIT_BITS and len(found) < 3:
        short = int(bits[:5], 2)
        size = 5 if short <= 2 else 6
        found += str(short if short <= 2 else int(bits[:6], 2) - 0b011001 + 3)
        bits = bits[size:]
    return found
