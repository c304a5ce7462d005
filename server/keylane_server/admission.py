"""Back-pressure: how many requests run and wait, and how many bytes of bodies are in memory.

A request over a bound is refused at once, with 503 and Retry-After: in a queue that grows, a client gets its
answer when it has long given up. What waits for others has bounds of its own, so that reads go on: writes,
which wait for Kafka, and requests that wait for a change (`Prefer: wait`), which take time and no work. What
still arrives takes no place: a request enters when its body is there.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from keylane_server.greenlets import bounds_of_request
from keylane_server.time_limits import TimeLimits

MIB = 1024 * 1024
LOOK_S = 1.0
"""How late the time limit of a body may be noticed."""
OFTEN, LOOKS_PER_S, LONGEST_PAUSE_S = 100, 2_000, 0.5
"""How many may look as often as they like, how often more of them look together, and how long one pauses at
most."""
SPREAD = 0.25
"""The part by which pauses differ: 600 clients that begin together would look together, too."""
WRITES_SHARE = 0.75
"""The part of all bodies' bytes that a write may fill: while Kafka stalls, bodies of reads have the rest."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one process.

    `running`: reads that run at a time; `writing`: writes; `waiting`: how many of each wait for their turn,
    for `wait_s` at most.
    `long_polls`: requests that wait for a change, and as many that wait for a position.
    `body_bytes`: of one body; `bodies_bytes`: of all of them.
    `of_address`: requests of one address at a time, those whose bodies arrive included; 0: without a bound.
    `connections`: further ones wait until another one ends. `sending_bytes`: of answers that wait to be read.
    """

    running: int = 256
    writing: int = 256
    waiting: int = 1_024
    wait_s: float = 2.0
    long_polls: int = 1_000
    of_address: int = 0
    connections: int = 8_192
    body_bytes: int = 6 * MIB
    bodies_bytes: int = 256 * MIB
    sending_bytes: int = 96 * MIB


class Overloaded(Exception):
    """The request is refused; the text says which bound it exceeds."""


class AddressBusy(Exception):
    """The request's address has as many requests as one may have; the text says how many."""


class WaitRefused(BaseException):
    """A read may not wait, as too many do: no operation answers that. The text says how many."""


class Places:
    """So many requests run at a time; further ones wait for their turn. For the loop's thread."""

    def __init__(self, limit: int, limits: Limits) -> None:
        self._limit = limit
        self._limits = limits
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._waiting)

    def enter_at_once(self) -> bool:
        """Begin to run if there is room; `leave` follows. Most requests need not wait."""
        if self.running >= self._limit:
            return False
        self.running += 1
        return True

    async def enter(self) -> None:
        """Wait for a turn to run; `leave` follows. Raises Overloaded."""
        if self.enter_at_once():
            return
        if len(self._waiting) >= self._limits.waiting:
            raise Overloaded(f"{self.running} requests run and {len(self._waiting)} wait")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave()  # it got a turn just as it gave up
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise Overloaded(f"{self.running} requests run: this one waited too long") from None
            raise

    def leave(self) -> None:
        """End a request that ran: the first that waits has its turn."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1


def shared_pause_s(pause_s: float, waiting: int) -> float:
    """Return how long one of so many requests pauses that look again and again whether something is there.

    They would take all of the process's time: a thousand that look every 10 ms look 100,000 times a second.
    """
    if waiting <= OFTEN:
        return pause_s
    shared_s = max(pause_s, min((waiting - OFTEN) / LOOKS_PER_S, LONGEST_PAUSE_S))
    return shared_s * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311 (no secret)


class ReadPlace:
    """The place of one read that runs, which it gives to others once it waits. `leave` follows.

    `has_paused`: it has waited for what others do, so that what was decided before may no longer count.
    """

    __slots__ = ("_admission", "_is_waiting", "has_paused")

    def __init__(self, admission: "AdmissionControl") -> None:
        self._admission = admission
        self._is_waiting = False
        self.has_paused = False

    def give(self, pause_s: float) -> float:
        """Give the place to others: the read waits, as one of `long_polls` at most. Raises WaitRefused.

        Returns how long it pauses, which it would do for `pause_s`.
        """
        admission = self._admission
        if not self._is_waiting:
            if admission.waiting >= admission.limits.long_polls:
                raise WaitRefused(f"{admission.waiting} reads wait for a position")
            admission.waiting += 1
            self._is_waiting = True
            admission.reads.leave()
        self.has_paused |= pause_s > 0  # else it writes
        return shared_pause_s(pause_s, admission.waiting)

    def leave(self) -> None:
        """End the read."""
        if self._is_waiting:
            self._admission.waiting -= 1
        else:
            self._admission.reads.leave()


class AdmissionControl:
    """Counts the requests of one process, in the loop's thread. `body_limits`: for reading their bodies."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.reads = Places(limits.running, limits)
        self.writes = Places(limits.writing, limits)
        self.long_polls = 0
        self.waiting = 0
        self.held_bytes = 0
        self.body_limits = TimeLimits(LOOK_S)
        self._of_address: Counter[str] = Counter()

    def enter_long_poll(self) -> None:
        """Begin a request that waits for a change; `leave_long_poll` follows. Raises Overloaded."""
        if self.long_polls >= self.limits.long_polls:
            raise Overloaded(f"{self.long_polls} requests wait for a change")
        self.long_polls += 1

    def pause_long_poll_s(self, pause_s: float) -> float:
        """Return how long a request that waits for a change pauses."""
        return shared_pause_s(pause_s, self.long_polls)

    def leave_long_poll(self) -> None:
        """End a request that waited for a change."""
        self.long_polls -= 1

    @contextmanager
    def write_of_read(self) -> Iterator[None]:
        """Let a request that runs as a read write: it takes a place of the writes, and gives its own.

        Raises WaitRefused: it has no turn to wait for.
        """
        if (give := bounds_of_request().before_waiting) is not None:
            give(0.0)
        if not self.writes.enter_at_once():
            raise WaitRefused(f"{self.writes.running} writes run")
        try:
            yield
        finally:
            self.writes.leave()

    def begin(self, address: str) -> None:
        """Count a request of an address; `end` follows, also where it raises AddressBusy."""
        if not self.limits.of_address:
            return
        self._of_address[address] += 1
        if self._of_address[address] > self.limits.of_address:
            raise AddressBusy(f"{self.limits.of_address} requests of {address} are not answered yet")

    def end(self, address: str) -> None:
        """Stop counting a request of an address."""
        if not self.limits.of_address:
            return
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def hold(self, size_bytes: int, *, is_write: bool) -> None:
        """Count bytes of a body; `release` follows. Raises Overloaded."""
        limit_bytes = self.limits.bodies_bytes
        if is_write:
            limit_bytes = round(limit_bytes * WRITES_SHARE)
        if self.held_bytes + size_bytes > limit_bytes:
            raise Overloaded(f"{self.held_bytes} bytes of other requests are in memory")
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Stop counting bytes of a body."""
        self.held_bytes -= size_bytes
