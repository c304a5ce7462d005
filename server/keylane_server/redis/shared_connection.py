"""One connection to a Redis node for all requests of the process.

The commands that requests send in one tick of the loop leave in one write. Redis answers in order, so replies
are matched by a queue. A request sends its bytes in one piece: READONLY and ASKING stay before their command.

- A request that times out leaves its place in the queue, and its replies are dropped when they arrive.
- A connection that breaks, or on which nothing arrives for STALL_S while replies are due, fails all who wait.

Reading and writing are here, not in an asyncio transport, because the socket comes connected, with TLS and
AUTH, and asyncio takes no TLS socket.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from keylane.adapters.redis.cluster import REPLIES_LIMIT_BYTES
from keylane.adapters.redis.connections import RECEIVE_BYTES, Wire
from keylane.adapters.redis.error_replies import InvalidResponse, RedisConnectionError, RedisTimeoutError
from keylane.adapters.redis.resp import INCOMPLETE, new_reader
from keylane.errors import TooLarge
from keylane_server.greenlets import Suspension

STALL_S = 1.0
SWEEP_S = 0.005
"""How often time-outs are looked for: a timer for each request would cost more than the look."""
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Waiting(Protocol):
    """Who waits for replies: a request that is suspended, or another."""

    def resume(self, result: None) -> None:
        """Go on: the exchange has its replies, or its error."""


class Exchange:
    """Commands that were sent together, and their replies."""

    __slots__ = ("error", "expires_s", "missing", "replies", "size_bytes", "waiting")

    def __init__(self, reply_count: int, expires_s: float) -> None:
        self.missing = reply_count
        self.replies: list[Any] = []
        self.expires_s = expires_s
        self.size_bytes = 0
        self.error: Exception | None = None
        self.waiting: Waiting | None = None

    def wait(self) -> list[Any]:
        """Return the replies. Raises RedisError, TooLarge."""
        if self.missing and self.error is None:
            self.waiting = Suspension()
            self.waiting.wait()
        if self.error is not None:
            raise self.error
        return self.replies

    def end(self, error: Exception | None = None) -> None:
        """Let the request go on, if it waits; later replies are dropped."""
        if error is not None and self.error is None:
            self.error = error
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.resume(None)


class SharedConnection:
    """A connected socket in the loop. `on_close` is called when it is closed, for whatever reason."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wire: Wire, on_close: "Callable[[SharedConnection], None]"
    ) -> None:
        self._loop = loop
        self._wire = wire
        self._on_close = on_close
        self._sock: Any = wire.sock
        self._sock.setblocking(False)
        self._is_tls = isinstance(self._sock, ssl.SSLSocket)
        self._fd = self._sock.fileno()
        self._reader = new_reader()
        self._pending: deque[Exchange] = deque()
        self._outbox: list[bytes] = []
        self._is_flush_due = False
        self._is_write_blocked = False
        self._sweep: asyncio.TimerHandle | None = None
        self._progress_s = 0.0
        self._is_retired = False
        self.is_open = True
        loop.add_reader(self._fd, self._read)

    def send(self, packed: bytes, reply_count: int, expires_s: float) -> Exchange:
        """Send commands at the end of the tick; `expires_s`: until when the replies are waited for.

        The exchange has failed already where the connection was closed since the caller got it.
        """
        exchange = Exchange(reply_count, expires_s)
        if not self.is_open:
            exchange.end(RedisConnectionError("the connection was closed"))
            return exchange
        if not self._pending:
            self._progress_s = time.monotonic()
        self._pending.append(exchange)
        self._outbox.append(packed)
        if not self._is_flush_due and not self._is_write_blocked:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        if self._sweep is None:
            self._sweep = self._loop.call_later(SWEEP_S, self._find_late)
        return exchange

    def retire(self) -> None:
        """Close as soon as nobody waits for a reply. Nothing may be sent any more."""
        self._is_retired = True
        if not self._pending:
            self.close(RedisConnectionError("the connection was closed"))

    def close(self, error: Exception) -> None:
        """Close, and fail all who wait."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._fd)
        if self._is_write_blocked:
            self._loop.remove_writer(self._fd)
        if self._sweep is not None:
            self._sweep.cancel()
        self._wire.disconnect()
        self._on_close(self)
        waiting, self._pending = self._pending, deque()
        self._outbox.clear()
        for exchange in waiting:
            exchange.missing = 0  # nothing more comes
            exchange.end(type(error)(*error.args))

    def _flush(self) -> None:
        self._is_flush_due = False
        if not self.is_open or not self._outbox:
            return
        data = self._outbox[0] if len(self._outbox) == 1 else b"".join(self._outbox)
        self._outbox.clear()
        try:
            sent = self._sock.send(data)
        except _WOULD_BLOCK:
            sent = 0
        except OSError:
            self.close(RedisConnectionError("the connection broke"))
            return
        if sent and self._is_write_blocked:
            self._progress_s = time.monotonic()  # the server still takes a large command
        if sent < len(data):
            # Before what is sent next: requests add to the end.
            self._outbox.insert(0, data[sent:])
            if not self._is_write_blocked:
                self._is_write_blocked = True
                self._loop.add_writer(self._fd, self._flush)
        elif self._is_write_blocked:
            self._is_write_blocked = False
            self._loop.remove_writer(self._fd)

    def _read(self) -> None:
        while self.is_open:
            try:
                data = self._sock.recv(RECEIVE_BYTES)
            except _WOULD_BLOCK:
                return
            except OSError:
                self.close(RedisConnectionError("the connection broke"))
                return
            if not data:
                self.close(RedisConnectionError("the server closed the connection"))
                return
            self._take(data)
            if not self._is_tls:
                return  # the loop calls again if there is more; TLS may have more that the loop does not see

    def _take(self, data: bytes) -> None:
        self._progress_s = time.monotonic()
        self._reader.feed(data)
        complete: list[Exchange] = []
        try:
            self._parse(len(data), complete)
        except InvalidResponse as error:
            # Whose replies are wrong is not known.
            self._pending.extendleft(reversed(complete))
            self.close(error)
            return
        for exchange in complete:
            exchange.end()
        if self._is_retired and not self._pending:
            self.close(RedisConnectionError("the connection was closed"))

    def _parse(self, size_bytes: int, complete: list[Exchange]) -> None:
        """Move the exchanges that have all their replies now to `complete`. Raises InvalidResponse."""
        next_reply, pending = self._reader.gets, self._pending
        while pending:
            head = pending[0]
            while head.missing and (reply := next_reply()) is not INCOMPLETE:
                if head.error is None:  # else nobody reads it, and the error's traceback would keep it
                    head.replies.append(reply)
                head.missing -= 1
            if head.missing:
                head.size_bytes += size_bytes
                if head.size_bytes > REPLIES_LIMIT_BYTES:
                    head.end(TooLarge("answer", head.size_bytes, REPLIES_LIMIT_BYTES))
                    self.close(RedisConnectionError("another request's replies were too large"))
                break
            pending.popleft()
            complete.append(head)
        if not pending and self.is_open and next_reply() is not INCOMPLETE:
            raise InvalidResponse("the server sent more replies than commands")

    def _find_late(self) -> None:
        """End the waits that are over; close a connection on which nothing arrives."""
        self._sweep = None
        if not self.is_open:
            return
        if self._late():
            self._read()  # the process may have waited for its turn, and the replies have arrived meanwhile
            if not self.is_open:
                return
        if self._pending and time.monotonic() - self._progress_s > STALL_S:
            self.close(RedisTimeoutError("the server did not answer in time"))
            return
        late = self._late()
        if self._pending and self._sweep is None:
            self._sweep = self._loop.call_later(SWEEP_S, self._find_late)
        for exchange in late:
            exchange.end(RedisTimeoutError("the server did not answer in time"))

    def _late(self) -> list[Exchange]:
        """Return the exchanges whose time is over, all of them on a connection that has stalled."""
        now_s = time.monotonic()
        stalled = bool(self._pending) and now_s - self._progress_s > STALL_S
        return [
            each
            for each in self._pending
            if each.waiting is not None and (stalled or each.expires_s <= now_s)
        ]
