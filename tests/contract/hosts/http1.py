"""HTTP/1.1 over a plain socket: requests go out as they are, whatever a library would think of them."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from tests.contract.hosts.case import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Case

HOST = "api.example.org"
TIMEOUT_S = 60
NO_BODY = {204, 304}
CLOSED = Answer(0)


def request_bytes(case: Case) -> bytes:
    """What is sent for a request: its own headers, and those that HTTP needs."""
    if case.raw:
        return case.raw
    given = {name.lower() for name, _ in case.headers}
    lines = [f"{case.method} {case.target} HTTP/1.1"]
    lines += [] if "host" in given else [f"Host: {HOST}"]
    lines += [f"{name}: {value}" for name, value in case.headers]
    needs_length = case.body or case.method not in {"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"}
    if needs_length and not given & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(case.body)}")
    head = "\r\n".join(lines).encode("utf-8", "surrogateescape")
    return head + b"\r\n\r\n" + case.body


def exchange(port: int, case: Case) -> Answer:
    """Send a request over a connection of its own; return the answer, as far as there is one."""
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # The server may answer and close before it has read all.
                connection.sendall(request_bytes(case))
            return _Received(connection).answer(is_head=_method(case) == b"HEAD", events=case.events)
    except (ConnectionError, TimeoutError) as error:
        return CLOSED._replace(body=type(error).__name__.encode())


def _method(case: Case) -> bytes:
    return request_bytes(case).partition(b" ")[0] if case.raw else case.method.encode()


class _Received:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = b""
        self._is_over = False

    def answer(self, *, is_head: bool, events: int) -> Answer:
        while True:
            head = self._until(b"\r\n\r\n")
            if head is None:
                return CLOSED
            first, *lines = head.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            if status >= 200:
                break
        pairs = [line.partition(":")[::2] for line in lines]
        answer = Answer(status, tuple((name, value.strip()) for name, value in pairs))
        if is_head or status in NO_BODY:
            return answer
        if answer.header("transfer-encoding"):
            return answer._replace(body=self._chunked(events))
        if answer.header("content-length"):
            return answer._replace(body=self._exactly(int(answer.header("content-length"))))
        return answer._replace(body=self._rest())

    def _chunked(self, events: int) -> bytes:
        """The body, or its beginning with so many events."""
        body = b""
        for chunk in self._chunks():
            body += chunk
            if events and body.count(b"\n\n") >= events:
                break
        return body

    def _chunks(self) -> Iterator[bytes]:
        while line := self._until(b"\r\n"):
            size = int(line, 16)
            chunk = self._exactly(size + 2)[:-2]
            if not size:
                return
            yield chunk

    def _until(self, end: bytes) -> bytes | None:
        while end not in self._data:
            if not self._receive():
                return None
        found, _, self._data = self._data.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._data) < size and self._receive():
            pass
        found, self._data = self._data[:size], self._data[size:]
        return found

    def _rest(self) -> bytes:
        while self._receive():
            pass
        return self._data

    def _receive(self) -> bool:
        part = b"" if self._is_over else self._connection.recv(1 << 20)
        self._is_over = self._is_over or not part
        self._data += part
        return bool(part)
