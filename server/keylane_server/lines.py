"""Long bodies that are made while they are read: snapshots of topics, as lines.

Each piece is made in a request of its own, when the client has taken the one before: a client that reads
slowly has no more of the server's memory than a fast one. Few may be read at a time.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator

from keylane.api.http.problems import problem
from keylane.api.http.response import Response
from keylane.metrics.meter import MetricSink
from keylane.model.changes import ChangeEvent
from keylane_server.admission import WaitRefused
from keylane_server.coders import CODERS, PlainCoder
from keylane_server.greenlets import RequestCancelled, RequestGreenlet, begin_awaited
from keylane_server.streamed_bodies import PIECE_BYTES, StreamedBody
from keylane_server.streams import HEARTBEAT_S, SLOW_READER

SNAPSHOT = "snapshot"
MOST_SNAPSHOTS = 8
"""How many are read of one process at a time: each takes as much of it as some dozen look-ups."""
SLOW_BYTES_PER_S, SLOW_AFTER_S = 64 * 1024, 20.0
"""One whose client takes less, once it was waited for that long, makes room for another that is asked for."""
LEAST_PIECE = 8 * 1024
"""Smaller pieces wait for the next one, for FLUSH_S at most."""
FLUSH_S = 0.5
SPACE = b" "
"""Proxies close connections that are idle for a minute, and a lane of which little is wanted may take one."""


class LineBodies:
    """The bodies of one process that are being read."""

    def __init__(self, metrics: MetricSink, count_cut: Callable[[], None]) -> None:
        self._metrics = metrics
        self.count_cut = count_cut
        self._bodies: set[LineBody] = set()
        self._report()

    def open(self, begin: Callable[[], Iterator[bytes]], coding: str | None) -> "LineBody":
        """Open a body, as a request. `LineBody.close` must follow. Raises WaitRefused, and as `begin`."""
        if len(self._bodies) >= MOST_SNAPSHOTS and not self._cut_slowest():
            raise WaitRefused(f"{len(self._bodies)} snapshots are read")
        body = LineBody(self, CODERS[coding]())
        self._bodies.add(body)
        try:
            body.pieces = begin()
        except BaseException:
            self._bodies.discard(body)
            raise
        self._report()
        return body

    def close(self, body: "LineBody") -> None:
        """Let go of a body."""
        self._bodies.discard(body)
        self._report()

    def end_all(self, last: Response[str]) -> None:
        """End all bodies with a problem: the server is being stopped."""
        for body in list(self._bodies):
            body.end(last)

    def _cut_slowest(self) -> bool:
        """Cut off the body whose client reads most slowly, if it is slow: it can go on where it was."""
        slowest = min(self._bodies, key=LineBody.reading_bytes_per_s)
        if slowest.reading_bytes_per_s() >= SLOW_BYTES_PER_S:
            return False
        slowest.cut()
        self._bodies.discard(slowest)
        return True

    def _report(self) -> None:
        self._metrics.add_number("StreamsOpen", (SNAPSHOT,), len(self._bodies))


class LineBody(StreamedBody):
    """The lines of one client: the body of its response. `pieces`: some lines each."""

    def __init__(self, bodies: LineBodies, coder: PlainCoder) -> None:
        super().__init__(bodies.count_cut)
        self.pieces: Iterator[bytes] = iter(())  # an empty one: what came so far is sent at once
        self._bodies = bodies
        self._coder = coder
        self._running: RequestGreenlet | None = None
        self._sent_bytes, self._waited_s, self._given_s = 0, 0.0, 0.0
        self._is_left = False
        self._last = b""

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """See `StreamedBody.sending`; it is noted how long the client takes."""
        self._given_s = time.monotonic()
        try:
            async with super().sending():
                yield
        finally:
            self._waited_s += time.monotonic() - self._given_s

    def reading_bytes_per_s(self) -> float:
        """Return how fast the client takes what it is given; infinite where it was hardly waited for."""
        waited_s = self._waited_s + (time.monotonic() - self._given_s if self._sending else 0)
        return math.inf if waited_s < SLOW_AFTER_S else self._sent_bytes / waited_s

    def cut(self) -> None:
        """End the body, whatever its client reads."""
        self.count_as_cut()
        self.end(
            problem(SLOW_READER, "others asked for snapshots: go on behind the last whole lane", "stream")
        )
        self.stop_sending()

    def leave(self) -> None:
        """End the body where it is: its client has gone."""
        self._is_left = True
        self._cancel()

    def end(self, last: Response[str]) -> None:
        """End the body with a problem."""
        self._end_by(_problem_line(str(last.body)))

    def close(self) -> None:
        """Let go of what makes the pieces: it ends now."""
        self._cancel()
        self.pieces = iter(())
        self._bodies.close(self)

    async def chunks(self, refuse: Callable[[], ChangeEvent | None]) -> AsyncIterator[bytes]:
        """Yield the body's bytes. `refuse` is asked every HEARTBEAT_S for a reason to end it.

        So often there are bytes, too, though a piece takes longer: spaces before its first line.
        """
        flush_at_s = time.monotonic() + FLUSH_S
        check_at_s = time.monotonic() + HEARTBEAT_S
        waiting = b""
        while not self._is_left:
            ended = self._begin_next()
            async for space in self._spaces(ended, refuse):
                for chunk in self._cut_up(waiting + space):
                    yield chunk
                waiting = b""
            piece = self._piece_of(ended)
            if piece is None:
                waiting += self._coder.encode(self._last) + self._coder.end()
                break
            waiting += self._coder.encode(piece)
            # A piece that needed nothing from elsewhere has not let others of this process run.
            await asyncio.sleep(0)
            now_s = time.monotonic()
            if now_s >= check_at_s:
                check_at_s = now_s + HEARTBEAT_S
                self._end_if_refused(refuse)
            if not piece or now_s >= flush_at_s:
                flush_at_s = now_s + FLUSH_S
                waiting += self._coder.flush()
            elif len(waiting) < LEAST_PIECE:
                continue
            for chunk in self._cut_up(waiting):
                yield chunk
            waiting = b""
        for chunk in self._cut_up(waiting):
            yield chunk

    def _begin_next(self) -> asyncio.Future[bytes | None] | None:
        """Begin to make the next piece; None where the body has been ended."""
        if self._last:
            return None
        self._running, ended = begin_awaited(lambda: next(self.pieces, None), is_cancellable=True)
        ended.add_done_callback(asyncio.Future.exception)  # nobody may wait for it any more
        return ended

    async def _spaces(
        self, ended: asyncio.Future[bytes | None] | None, refuse: Callable[[], ChangeEvent | None]
    ) -> AsyncIterator[bytes]:
        """Wait for a piece, and yield what may be sent after each HEARTBEAT_S without one."""
        while ended is not None and not ended.done():
            if (await asyncio.wait([ended], timeout=HEARTBEAT_S))[0]:
                return
            self._end_if_refused(refuse)
            yield self._coder.encode(SPACE) + self._coder.flush()

    def _piece_of(self, ended: asyncio.Future[bytes | None] | None) -> bytes | None:
        """Return the piece, None behind the last one, and where the body has been ended."""
        self._running = None
        try:
            return None if ended is None else ended.result()
        except RequestCancelled:
            return None

    def _end_if_refused(self, refuse: Callable[[], ChangeEvent | None]) -> None:
        """Ask for a reason to end the body, and end it by that."""
        if refusal := refuse():
            self._end_by(_problem_line(refusal.data))

    def _end_by(self, line: bytes) -> None:
        self._last = self._last or line
        self._cancel()

    def _cancel(self) -> None:
        """End the making of the piece that is awaited."""
        if self._running is not None:
            self._running.cancel()

    def _cut_up(self, data: bytes) -> Iterator[bytes]:
        """Yield data as it is given to the client."""
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            self._sent_bytes += len(piece)
            yield piece


def _problem_line(document: str) -> bytes:
    return b'{"problem": %s}\n' % document.encode()
