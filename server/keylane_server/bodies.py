"""Reads a request's body, within the bounds of its size, of all bodies in memory, and of time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from keylane_server.admission import AdmissionControl

    Receive = Callable[[], Awaitable[dict[str, Any]]]

PART_TIMEOUT_S = 20.0
"""How long the next part of a body may take."""
LEAST_BYTES_PER_S = 4_096
"""At which rate a body arrives at least, after its first PART_TIMEOUT_S."""
BODY_TIMEOUT_S = 120.0
"""How long all of it may take."""

DISCARDED_BYTES = 16 * 1024 * 1024
DISCARD_S = 2.0
"""How much is read of the body of a refused request, and for how long: a client that still sends when the
connection is closed does not see its answer."""


class BodyTooLarge(Exception):
    """The body is over the limit; the text says which."""


class BodyTimeout(Exception):
    """The rest of the body did not arrive."""


class BodyBroken(Exception):
    """The body ends too early: the client closed the connection, or its chunks are malformed."""


class Body:
    """The body of one request; `release` when the request is over."""

    __slots__ = (
        "_admission",
        "_held_bytes",
        "_is_complete",
        "_is_late",
        "_is_write",
        "_size_bytes",
        "_task",
        "data",
    )

    def __init__(self, admission: AdmissionControl, *, is_write: bool = False) -> None:
        self._admission = admission
        self._is_write = is_write
        self._held_bytes = 0
        self._size_bytes = 0
        self._is_complete = False
        self._is_late = False
        self._task: asyncio.Task[Any] | None = None
        self.data = b""

    async def read(self, receive: Receive, declared_bytes: int | None) -> None:
        """Read all of it. Raises BodyTooLarge, BodyTimeout, BodyBroken, Overloaded.

        `declared_bytes`: its Content-Length; None: there is none. Nothing is held for it: bytes count when
        they are there.
        """
        if declared_bytes is not None:
            self._check(declared_bytes)
        self._task, limits = asyncio.current_task(), self._admission.body_limits
        begun_s = time.monotonic()
        parts: list[bytes] = []
        try:
            while not self._is_complete:
                limits.begin(self, self._left_s(begun_s))
                self._take(await receive(), parts)
        except asyncio.CancelledError:
            if not self._is_late or self._task is None:
                raise
            self._task.uncancel()
            raise BodyTimeout from None
        finally:
            limits.end(self)
        self.data = parts[0] if len(parts) == 1 else b"".join(parts)

    def give_up(self) -> None:
        """End `read`: the next part takes too long."""
        self._is_late = True
        if self._task is not None:
            self._task.cancel()

    async def discard(self, receive: Receive) -> None:
        """Read the rest of a refused request's body, as far as it is worth it."""
        left_bytes = DISCARDED_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                while not self._is_complete and left_bytes > 0:
                    message = await receive()
                    self._is_complete = not message.get("more_body")
                    left_bytes -= len(message.get("body") or b"")

    def release(self) -> None:
        """Stop counting its bytes."""
        self._admission.release(self._held_bytes)
        self._held_bytes = 0

    def _left_s(self, begun_s: float) -> float:
        """Return how long the next part may take. Raises BodyTimeout."""
        until_s = begun_s + min(BODY_TIMEOUT_S, PART_TIMEOUT_S + self._size_bytes / LEAST_BYTES_PER_S)
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise BodyTimeout
        return min(PART_TIMEOUT_S, left_s)

    def _take(self, message: dict[str, Any], parts: list[bytes]) -> None:
        if message["type"] != "http.request":
            raise BodyBroken("the body is not complete, or its chunks are malformed")
        if part := message.get("body"):
            parts.append(part)
            self._size_bytes += len(part)
        self._is_complete = not message.get("more_body")
        self._check(self._size_bytes)
        self._hold(self._size_bytes - self._held_bytes)

    def _check(self, size_bytes: int) -> None:
        limit_bytes = self._admission.limits.body_bytes
        if size_bytes > limit_bytes:
            raise BodyTooLarge(f"the body has more than {limit_bytes} bytes")

    def _hold(self, size_bytes: int) -> None:
        self._admission.hold(size_bytes, is_write=self._is_write)
        self._held_bytes += size_bytes
