"""Reads a request's body, within the bounds of its size, of all bodies in memory, and of time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from keylane_serve.admission import Admission

    Receive = Callable[[], Awaitable[dict[str, Any]]]

PART_TIMEOUT_S = 20.0
"""How long the next part of a body may take."""


class BodyTooLarge(Exception):
    """The body is over the limit; the text says which."""


class BodyTimeout(Exception):
    """The rest of the body did not arrive."""


class ClientGone(Exception):
    """The client closed the connection."""


class Body:
    """The body of one request; `release` when the request is over."""

    __slots__ = ("_admission", "_held_bytes", "data")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._held_bytes = 0
        self.data = b""

    async def read(self, receive: Receive, declared_bytes: int | None) -> None:
        """Read all of it. Raises BodyTooLarge, BodyTimeout, ClientGone, Overloaded.

        `declared_bytes`: its Content-Length, for which room is made before it arrives; None: there is none.
        """
        limit_bytes = self._admission.limits.body_bytes
        if declared_bytes is not None:
            if declared_bytes > limit_bytes:
                raise BodyTooLarge(f"the body has more than {limit_bytes} bytes")
            self._hold(declared_bytes)
        parts: list[bytes] = []
        size_bytes = 0
        while True:
            try:
                async with asyncio.timeout(PART_TIMEOUT_S):
                    message = await receive()
            except TimeoutError:
                raise BodyTimeout from None
            if message["type"] != "http.request":
                raise ClientGone
            part = message.get("body") or b""
            size_bytes += len(part)
            if size_bytes > limit_bytes:
                raise BodyTooLarge(f"the body has more than {limit_bytes} bytes")
            if size_bytes > self._held_bytes:
                self._hold(size_bytes - self._held_bytes)
            if part:
                parts.append(part)
            if not message.get("more_body"):
                self.data = parts[0] if len(parts) == 1 else b"".join(parts)
                return

    def release(self) -> None:
        """Stop counting its bytes."""
        self._admission.release(self._held_bytes)
        self._held_bytes = 0

    def _hold(self, size_bytes: int) -> None:
        self._admission.hold(size_bytes)
        self._held_bytes += size_bytes
