"""Answers that are sent, of which a client may read nothing: what waits is counted, and its time ends.

granian takes an answer of one piece and keeps it until the client has read it, or has gone: 200 requests of
an HTTP/2 connection whose window is 0 kept 36 MB. So a large answer is given to it in pieces, and the next
one when there is room. What has not been given yet is counted: for its connection, its address, all of them.

1. Over a bound an answer is refused with 503.
2. A client that takes no piece in PIECE_S, or all of it too slowly, gets no more of it, and its connection is
   closed: over HTTP/2 only once there is no room, because others may use it. Until then its bytes count.
3. Small answers are not counted: a connection has one of them at a time, or STREAMS over HTTP/2.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from keylane_server.admission import Overloaded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from keylane_server.admission import AdmissionControl

    Client = tuple[str, int]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

HTTP_2 = "2"
DIRECT_BYTES, DIRECT_BYTES_2 = 32 * 1024, 8 * 1024
"""Answers that are given to granian whole, over HTTP/1 and HTTP/2."""
PIECE_BYTES, PIECE_BYTES_2 = 64 * 1024, 16 * 1024
STREAMS = 64
"""Requests of one HTTP/2 connection at a time."""
QUEUED = 5
"""Pieces that granian takes before the client has read one: what is before them has been given to it."""
PIECE_S = 20.0
LEAST_BYTES_PER_S = 4_096
"""At which rate an answer is read at least, after its first PIECE_S."""
CONNECTION_SHARE, ADDRESS_SHARE = 1 / 8, 1 / 2
"""The parts of all bytes that may wait for one connection, and for one address."""


class Outbox:
    """The answers of one process that wait to be read. For the loop's thread."""

    def __init__(self, admission: AdmissionControl) -> None:
        self._limit_bytes = admission.limits.sending_bytes
        self._time_limits = admission.body_limits
        self.waiting_bytes = 0
        self._of_connection: Counter[Client] = Counter()
        self._of_address: Counter[str] = Counter()
        self._stalled: Counter[Client] = Counter()

    def hold(self, client: Client, size_bytes: int) -> None:
        """Count bytes that wait; `release` follows. Raises Overloaded."""
        limit = self._limit_bytes
        if self.waiting_bytes + size_bytes > limit:
            self._close_slowest(list(self._stalled))
            raise Overloaded(f"{self.waiting_bytes} bytes of answers wait to be read")
        address, connection = self._of_address[client[0]], self._of_connection[client]
        # One answer fits, however large: bounds of parts are for many.
        if connection and connection + size_bytes > limit * CONNECTION_SHARE:
            raise Overloaded(f"{connection} bytes of this connection's answers wait to be read")
        if address and address + size_bytes > limit * ADDRESS_SHARE:
            self._close_slowest([each for each in self._stalled if each[0] == client[0]])
            raise Overloaded(f"{address} bytes of this address's answers wait to be read")
        self.waiting_bytes += size_bytes
        self._of_connection[client] += size_bytes
        self._of_address[client[0]] += size_bytes

    def release(self, client: Client, size_bytes: int) -> None:
        """Stop counting bytes that waited."""
        self.waiting_bytes -= size_bytes
        _take(self._of_connection, client, size_bytes)
        _take(self._of_address, client[0], size_bytes)

    async def send(
        self, send: Send, receive: Receive, scope: dict[str, Any], start: dict[str, Any], body: bytes | str
    ) -> None:
        """Send an answer, which is bytes or ASCII, in pieces. Raises Overloaded before anything is sent."""
        client = scope["client"] or ("", 0)
        self.hold(client, len(body))
        sending = _PiecewiseAnswer(send, scope["http_version"] == HTTP_2)
        try:
            start["headers"].append((b"content-length", b"%d" % len(body)))
            if await sending.run(start, body, self._time_limits) or not sending.is_http_2:
                return  # granian closes a connection whose answer ends early
            # Nothing ends the request of an HTTP/2 connection but its client.
            self._stalled[client] += len(body)
            try:
                while (await receive())["type"] != "http.disconnect":
                    pass
            finally:
                _take(self._stalled, client, len(body))
        finally:
            self.release(client, len(body))

    def _close_slowest(self, stalled: list[Client]) -> None:
        """Close the connection with the most bytes whose time is over, if there is one."""
        if stalled:
            shut_down(max(stalled, key=self._stalled.__getitem__))


def is_direct(body: bytes | str, scope: dict[str, Any]) -> bool:
    """Return whether an answer is so small that it is given to granian whole. A text is not."""
    if isinstance(body, str):
        return False
    size = len(body)
    return size <= DIRECT_BYTES_2 or (size <= DIRECT_BYTES and scope["http_version"] != HTTP_2)


class _PiecewiseAnswer:
    """One answer that is given to granian piece by piece."""

    def __init__(self, send: Send, is_http_2: bool) -> None:
        self._send = send
        self.is_http_2 = is_http_2
        self._is_late = False
        self._task: asyncio.Task[Any] | None = None

    async def run(self, start: dict[str, Any], body: bytes | str, limits: Any) -> bool:
        """Return whether all of it was read in time."""
        self._task = asyncio.current_task()
        begun_s = time.monotonic()
        size = PIECE_BYTES_2 if self.is_http_2 else PIECE_BYTES
        try:
            await self._send(start)
            for at in range(0, len(body), size):
                left_s = begun_s + PIECE_S + at / LEAST_BYTES_PER_S - time.monotonic()
                limits.begin(self, min(PIECE_S, left_s))
                piece = body[at : at + size]
                await self._send(_piece(piece.encode() if isinstance(piece, str) else piece))
            limits.begin(self, PIECE_S)
            for _ in range(QUEUED):
                await self._send(_piece(b""))
        except asyncio.CancelledError:
            if not self._is_late or self._task is None:
                raise
            self._task.uncancel()
            return False
        finally:
            limits.end(self)
        await self._send({"type": "http.response.body", "body": b""})
        return True

    def give_up(self) -> None:
        """End `run`: its client reads nothing."""
        self._is_late = True
        if self._task is not None:
            self._task.cancel()


def _piece(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


def _take(counter: Counter[Any], key: Any, number: int) -> None:
    counter[key] -= number
    if counter[key] <= 0:
        del counter[key]


def shut_down(client: Client) -> None:
    """Close a client's connection: granian has no name for it, so its socket is looked for."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            descriptor = os.dup(int(name))  # granian keeps its own
            try:
                found = socket.socket(fileno=descriptor)
            except OSError:  # it is no socket
                os.close(descriptor)
                continue
            with found:
                if found.getpeername()[:2] == client:
                    found.shutdown(socket.SHUT_RDWR)
