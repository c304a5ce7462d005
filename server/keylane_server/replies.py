"""Redis' replies to reads of many records: how much of them is in the process at a time.

A page of large values is 32 MiB of replies at most. On the one connection to a node a small read waited
behind 16 of them, until its time was over, and one that was too large broke the connection for all. So reads
of many records have a connection of their own to each node, a few of them read at a time, and what they have
read counts until they are answered. For the loop's thread.
"""

import asyncio
import time
from collections import deque

from keylane_server.admission import WaitRefused
from keylane_server.greenlets import Suspension

READING = 4
"""How many requests read at a time."""
PATIENCE_S = 0.5
"""How long a request waits to read: half of what a read may take."""
HELD_BYTES = 64 * 1024 * 1024
"""Over this, requests that hold nothing wait until others are answered."""


class ReplyBudget:
    """The replies of one process."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._reading = 0
        self._waiting: deque[tuple[Suspension[bool], bool]] = deque()

    def enter(self, *, holds: bool) -> None:
        """Begin to read, as a request; `leave` follows. Raises WaitRefused after PATIENCE_S."""
        if (holds or not self._waiting) and self._has_room(holds):
            self._reading += 1
            return
        turn: Suspension[bool] = Suspension()
        waits = turn, holds
        # Those that hold replies go first: they let go of them.
        (self._waiting.appendleft if holds else self._waiting.append)(waits)
        timer = asyncio.get_running_loop().call_later(PATIENCE_S, turn.resume, False)
        try:
            if not turn.wait():
                raise WaitRefused(f"{self._reading} requests read many records")
        finally:
            timer.cancel()
            if waits in self._waiting:
                self._waiting.remove(waits)

    def leave(self) -> None:
        """End to read: the next one begins."""
        self._reading -= 1
        self._go_on()

    def hold(self, size_bytes: int) -> None:
        """Count replies; `release` follows."""
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Stop counting replies: their request is answered."""
        self.held_bytes -= size_bytes
        self._go_on()

    def _has_room(self, holds: bool) -> bool:
        return self._reading < READING and (holds or self.held_bytes < HELD_BYTES)

    def _go_on(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][1]):
            turn, _ = self._waiting.popleft()
            if not turn.is_over:
                self._reading += 1
                turn.resume(True)


class RequestReplies:
    """The replies of one request that reads many records."""

    __slots__ = ("_budget", "_entered", "_open", "size_bytes")

    def __init__(self, budget: ReplyBudget) -> None:
        self._budget = budget
        self._open = self._entered = 0
        self.size_bytes = 0

    def begin(self) -> float:
        """Ask a node; `end` follows. Return the seconds that it waited. Raises WaitRefused."""
        begun_s = time.monotonic()
        if not self._open:
            self._budget.enter(holds=self.size_bytes > 0)
            self._entered += 1  # again where another part of the request has waited meanwhile
        self._open += 1
        return time.monotonic() - begun_s

    def end(self, size_bytes: int = 0) -> None:
        """Take a node's replies, of so many bytes."""
        self.size_bytes += size_bytes
        self._budget.hold(size_bytes)
        self._open -= 1
        while self._entered and not self._open:
            self._entered -= 1
            self._budget.leave()

    def release(self) -> None:
        """End the request."""
        self._budget.release(self.size_bytes)
        self.size_bytes = 0
