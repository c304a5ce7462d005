"""Streams of changes: one feed for each key or topic that anybody listens to, and its listeners.

    1. A feed waits for changes in a request of its own, and keeps them until all its listeners have them.
    2. A listener has a position in them. One that comes with an older position catches up by itself first.
    3. What a feed keeps is bounded, and so is what all feeds keep. A listener that is behind it is cut off:
       the others are not held up.
    4. What is rendered for one listener alone (what it missed, large events with its own fields) is bounded
       for all: over that, the listener that has read nothing for the longest time is cut off.
    5. A feed without listeners ends.

All of this is for the loop's thread.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from typing import Any

from keylane.api.http.problems import Problem, correlated, problem, response_to
from keylane.errors import KeylaneError, Unavailable
from keylane.metrics.meter import MetricSink
from keylane.model.changes import CLOSING, KINDS, PROBLEM, ChangeEvent, ChangeSource, Choose
from keylane_server.admission import shared_pause_s
from keylane_server.greenlets import (
    RequestBounds,
    RequestCancelled,
    RequestGreenlet,
    begin,
    pause_s,
    run_request,
)
from keylane_server.streamed_bodies import PIECE_BYTES, StreamedBody

HEARTBEAT_S = 15.0
"""Proxies close connections that are idle for a minute; and so the server notices clients that have gone."""
RECONNECT_MS = 1_000
BUFFER_BYTES = 4 * 1024 * 1024
BUFFER_EVENTS = 10_000
"""What a feed keeps for those of its listeners that are behind."""
FEEDS_BYTES = OWN_BYTES = 32 * 1024 * 1024
"""What all feeds keep, and what is rendered for single listeners."""
AFTER_FAILURE_S = 1.0
SLOW_READER = Problem(503, "slow-reader", "The client reads too slowly")
_HEARTBEAT = b":\n\n"
_RETRY = b"retry: %d\n\n" % RECONNECT_MS
_log = logging.getLogger("keylane.serve")


class ChangeStreams:
    """The streams of one process."""

    def __init__(self, metrics: MetricSink) -> None:
        self._metrics = metrics
        self._feeds: dict[Hashable, ChangeFeed] = {}
        self._streams: set[EventStream] = set()
        self._own_bytes = self._kept_bytes = 0
        self._report_open()
        self.count_cut(0)

    def _report_open(self) -> None:
        counts = Counter(stream.feed.source.kind for stream in self._streams)
        for kind in KINDS:
            self._metrics.add_number("StreamsOpen", (kind,), counts[kind])

    def count_cut(self, number: int = 1) -> None:
        """Count streams that are ended because their clients read too slowly."""
        self._metrics.add_number("StreamsCut", (), number)

    def open(
        self,
        source: ChangeSource,
        position: Any,
        is_wanted: Callable[[bytes], bool],
        choose: Choose | None = None,
    ) -> "EventStream":
        """Open a stream, as a request. `EventStream.close` must follow. Raises as `ChangeSource.start`."""
        feed = self._find(source.identity)
        if feed is None:
            source.start()
            # Another request may have started the same while this one waited.
            feed = self._find(source.identity)
        if feed is None:
            feed = self._feeds[source.identity] = ChangeFeed(source, self)
        stream = EventStream(self, feed, position, is_wanted, choose)
        self._streams.add(stream)
        self._report_open()
        feed.holders.add(stream)
        return stream

    def pause_s(self, pause_s: float) -> float:
        """Return how long a feed pauses before it looks again."""
        return shared_pause_s(pause_s, len(self._feeds))

    def _find(self, identity: Hashable) -> "ChangeFeed | None":
        """Return a feed that still runs: one that failed may have streams that are about to end."""
        found = self._feeds.get(identity)
        return None if found is None or found.is_over else found

    def close(self, stream: "EventStream") -> None:
        """End a stream, and its feed if it was the last one."""
        self._streams.discard(stream)
        self.own(stream, 0)
        self._report_open()
        feed = stream.feed
        feed.holders.discard(stream)
        if not feed.holders and self._feeds.get(feed.source.identity) is feed:
            del self._feeds[feed.source.identity]
            feed.stop()

    def own(self, stream: "EventStream", size_bytes: int) -> None:
        """Note how many bytes are rendered for one stream alone; over the bound cut off who reads nothing."""
        self._own_bytes += size_bytes - stream.own_bytes
        stream.own_bytes = size_bytes
        while self._own_bytes > OWN_BYTES:
            others = [each for each in self._streams if each.own_bytes and each is not stream]
            if not others:
                return
            oldest = min(others, key=lambda each: each.given_s)
            oldest.cut()
            self.own(oldest, 0)

    def keep(self, size_bytes: int) -> None:
        """Note what a feed keeps more, or less; the one that keeps most lets go of it, over the bound."""
        self._kept_bytes += size_bytes
        while self._kept_bytes > FEEDS_BYTES:
            max(self._feeds.values(), key=lambda each: each.kept_bytes).drop_oldest()

    def end_all(self) -> None:
        """End all streams with an event that says so: the server is being stopped."""
        for stream in list(self._streams):
            stream.end(ChangeEvent(CLOSING, "{}"))


class ChangeFeed:
    """Waits for the changes of one source. `holders`: its streams, `listeners`: those that have caught up.

    `end`: the number of the next event; `first`: that of the oldest one that is kept.
    """

    def __init__(self, source: ChangeSource, streams: ChangeStreams) -> None:
        self.source = source
        self.holders: set[EventStream] = set()
        self.listeners: set[EventStream] = set()
        self._behind: set[EventStream] = set()
        self.is_over = False
        self.first = self.end = self.kept_bytes = 0
        self._streams = streams
        self._kept: deque[tuple[ChangeEvent, bytes]] = deque()
        self._running: RequestGreenlet | None = None

    def join(self, stream: "EventStream") -> None:
        """Pass the next changes to a stream, too."""
        self.listeners.add(stream)
        if self._running is None:
            asyncio.get_running_loop().call_soon(self._begin)

    def event(self, number: int) -> tuple[ChangeEvent, bytes]:
        """Return an event that is kept, and its lines."""
        return self._kept[number - self.first]

    def drop_oldest(self) -> None:
        """Let go of the oldest event: who has not taken it is cut off."""
        _, data = self._kept.popleft()
        self.first += 1
        self.kept_bytes -= len(data)
        self._streams.keep(-len(data))

    def has_taken(self, stream: "EventStream") -> None:
        """Let go of all events if none of the listeners is behind: this one is not, or is none any more."""
        self._behind.discard(stream)
        while self._kept and not self._behind:
            self.drop_oldest()

    def stop(self) -> None:
        """End the wait."""
        self.is_over = True
        while self._kept:
            self.drop_oldest()
        if self._running is not None:
            self._running.cancel()

    def _begin(self) -> None:
        if self._running is None and not self.is_over:
            self._running = begin(
                self._run, self._end, is_cancellable=True, bounds=RequestBounds(self._streams.pause_s)
            )

    def _run(self) -> None:
        reported = ""
        while not self.is_over:
            try:
                events = self.source.wait(HEARTBEAT_S)
                reported = ""
            except Unavailable as error:
                # It is temporary: the streams stay, and say it once.
                events = [] if reported == type(error).__name__ else [problem_event(error)]
                reported = type(error).__name__
                self._publish(events)
                pause_s(AFTER_FAILURE_S)
                continue
            self._publish(events)

    def _publish(self, events: Sequence[ChangeEvent]) -> None:
        if not self.listeners:
            return
        for event in events:
            data = event.render()
            self._behind |= self.listeners
            self._kept.append((event, data))
            self.end += 1
            self.kept_bytes += len(data)
            self._streams.keep(len(data))
            # One that is large by itself says nothing of who reads it.
            while len(self._kept) > 1 and (self.kept_bytes > BUFFER_BYTES or len(self._kept) > BUFFER_EVENTS):
                self.drop_oldest()
        for stream in list(self.listeners) if events else ():
            stream.notice()

    def _end(self, _: None, error: BaseException | None) -> None:
        self.is_over = True
        if error is None or isinstance(error, RequestCancelled):
            return
        event = problem_event(error)
        for stream in list(self.holders):
            stream.end(event)


class EventStream(StreamedBody):
    """The events of one client: the body of its response.

    `number`: of the next event that it takes from its feed. `own_bytes`: what is rendered for it alone, and
    `given_s` since when it has been given that.
    """

    def __init__(
        self,
        streams: ChangeStreams,
        feed: ChangeFeed,
        position: Any,
        is_wanted: Callable[[bytes], bool],
        choose: Choose | None,
    ) -> None:
        super().__init__(streams.count_cut)
        self.feed = feed
        self.number = 0
        self.own_bytes = 0
        self.given_s = 0.0
        self._is_wanted = is_wanted
        self._choose = choose
        self._streams = streams
        self._position = position
        self._last: ChangeEvent | None = None
        self._check_at_s = 0.0
        self._has_news = asyncio.Event()
        self._is_left = False

    def notice(self) -> None:
        """Take note that the feed has events. One that is behind all that is kept is cut off."""
        if self.number < self.feed.first and self._last is None:
            self.count_as_cut()
            detail = "events were left out: connect again with Last-Event-ID to get them"
            self.end(ChangeEvent(PROBLEM, str(problem(SLOW_READER, detail, "stream").body)))
        self._has_news.set()

    def cut(self) -> None:
        """End the stream, whatever its client reads."""
        self.count_as_cut()
        self.leave()
        self.stop_sending()

    def _take(self) -> bytes:
        """Take the next events that the client wants, some small ones or a large one; b"" for none."""
        feed, size_bytes, is_own = self.feed, 0, False
        parts: list[bytes] = []
        try:
            while size_bytes < PIECE_BYTES and feed.first <= self.number < feed.end:
                event, data = feed.event(self.number)
                if parts and len(data) > PIECE_BYTES:
                    break  # by itself it is not copied
                self.number += 1
                if event.key and not self._is_wanted(event.key):
                    continue
                own = event if self._choose is None else self._choose(event)
                if own is not None:
                    parts.append(data if own is event else own.render())
                    is_own = is_own or own is not event
                    size_bytes += len(parts[-1])
        except KeylaneError as error:
            parts.clear()
            self.end(problem_event(error))
        if self.number == feed.end:
            feed.has_taken(self)
        self._streams.own(self, size_bytes if is_own and size_bytes > PIECE_BYTES else 0)
        return b"".join(parts)

    def end(self, last: ChangeEvent) -> None:
        """End the stream with this event, after those that are in the buffer."""
        self.feed.listeners.discard(self)
        self.feed.has_taken(self)
        self._last = self._last or last
        self._has_news.set()

    def leave(self) -> None:
        """End the stream without a word: its client has gone."""
        self._is_left = True
        self._has_news.set()

    def close(self) -> None:
        """Let go of the feed."""
        self.feed.listeners.discard(self)
        self.feed.has_taken(self)
        self._streams.close(self)

    async def chunks(self, refuse: Callable[[], ChangeEvent | None]) -> AsyncIterator[bytes]:
        """Yield the stream's bytes. `refuse` is asked every HEARTBEAT_S for a reason to end the stream."""
        yield _RETRY
        self._check_at_s = time.monotonic() + HEARTBEAT_S
        async for chunk in self._catch_up(refuse):
            yield chunk
        while not self._is_left:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._check_at_s - time.monotonic())):
                    await self._has_news.wait()
            is_due = self._last is None and self._is_due
            if is_due and not self._is_refused(refuse) and not self._has_news.is_set():
                yield _HEARTBEAT
            self._has_news.clear()
            while not self._is_left and self._last is None and (data := self._take()):
                for piece in self._pieces(data, refuse):
                    yield piece
                if self._is_due:
                    self._has_news.set()
                    break
            if self._last and not self._has_news.is_set():
                yield self._last.render()
                return

    @property
    def _is_due(self) -> bool:
        """Whether to ask now for a reason to end the stream."""
        return time.monotonic() >= self._check_at_s

    def _is_refused(self, refuse: Callable[[], ChangeEvent | None]) -> bool:
        """Ask for a reason to end the stream, and end it by that."""
        self._check_at_s = time.monotonic() + HEARTBEAT_S
        if refusal := refuse():
            self.end(refusal)
        return refusal is not None

    def _pieces(self, data: bytes, refuse: Callable[[], ChangeEvent | None]) -> Iterator[bytes]:
        """Yield data as it is given to the client. A stream that is refused meanwhile ends without a word."""
        self.given_s = time.monotonic()
        for at in range(0, len(data), PIECE_BYTES):
            if at and self._is_due and self._is_refused(refuse):
                self.leave()
            if self._is_left:
                return
            yield data[at : at + PIECE_BYTES]
            self.given_s = time.monotonic()

    async def _catch_up(self, refuse: Callable[[], ChangeEvent | None]) -> AsyncIterator[bytes]:
        """Yield what the client missed, one batch at a time, until it has what the feed has."""
        while not self._is_left and self._last is None:
            if self._is_due and self._is_refused(refuse):
                return
            try:
                events, is_joined = await run_request(self._catch_up_once)
            except KeylaneError as error:
                self.end(problem_event(error))
                return
            if events:
                data = b"".join(event.render() for event in events)
                del events
                self._streams.own(self, len(data))
                for piece in self._pieces(data, refuse):
                    yield piece
                del data
                self._streams.own(self, 0)
            if is_joined:
                return

    def _catch_up_once(self) -> tuple[Sequence[ChangeEvent], bool]:
        events, self._position = self.feed.source.catch_up(self._position, self._is_wanted)
        if self._choose is not None:
            events = [own for event in events if (own := self._choose(event))]
        is_joined = self._position is None
        if is_joined:
            self.number = self.feed.end
            self.feed.join(self)
        return events, is_joined


def problem_event(error: BaseException) -> ChangeEvent:
    """Return the event of an error, as its problem document, and log it as other requests do."""
    if not isinstance(error, Exception):
        _log.error("a stream ended by %r", error, extra=correlated("stream"))
        error = RuntimeError(str(error))
    return ChangeEvent(PROBLEM, str(response_to(error, "stream").body))
