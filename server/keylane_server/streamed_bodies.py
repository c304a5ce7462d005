"""Bodies that are made while their clients read them, piece by piece: events, and the lines of snapshots."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable

PIECE_BYTES = 32 * 1024
"""What is given to a client at a time. granian keeps some pieces for one that reads nothing."""
PIECES_OF_TICK = 4
"""How many pieces of all clients are given to granian in one tick of the loop."""
SEND_TIMEOUT_S = 60.0
"""How long a client may read nothing while there is something to read."""


class StreamedBody:
    """The body of one client. `count_cut` is called once if it is cut off, as its client reads too slowly."""

    def __init__(self, count_cut: Callable[[], object]) -> None:
        self._count_cut = count_cut
        self._is_cut = False
        self._sending: asyncio.Timeout | None = None

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Give the block the time in which the client has to take a piece. Raises TimeoutError."""
        async with asyncio.timeout(SEND_TIMEOUT_S) as sending:
            self._sending = sending
            try:
                yield
            finally:
                self._sending = None

    def stop_sending(self) -> None:
        """End the time of the piece that the client has not taken."""
        if self._sending is not None:
            self._sending.reschedule(0)

    def count_as_cut(self) -> None:
        """Count the body, once, as one that ends because its client reads too slowly."""
        if not self._is_cut:
            self._is_cut = True
            self._count_cut()


class Turns:
    """So many have their turn in one tick of the loop, and the others in the next ones, in their order.

    300 listeners of a large event took 24 ms of each tick, and a read has several.
    """

    def __init__(self, of_tick: int = PIECES_OF_TICK) -> None:
        self._of_tick = of_tick
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        if not self._taken:
            loop.call_soon(self._begin_tick)
        if self._taken < self._of_tick:
            self._taken += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _begin_tick(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < self._of_tick:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._taken += 1
        if self._taken:
            asyncio.get_running_loop().call_soon(self._begin_tick)
