"""Streams of changes: one feed for each key or topic that anybody listens to, and its listeners.

    1. A feed waits for changes in a request of its own, and passes them to all its listeners.
    2. A listener that comes with an older position catches up by itself, then joins the feed.
    3. A listener has a buffer. One that does not read is cut off when it is full: the others are not held up.
    4. A feed without listeners ends.

All of this is for the loop's thread.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from typing import Any

from keylane.api.http.problems import Problem, correlated, problem, response_to
from keylane.errors import KeylaneError, Unavailable
from keylane.metrics.meter import MetricSink
from keylane.model.changes import CLOSING, KINDS, PROBLEM, ChangeEvent, ChangeSource, Choose
from keylane_server.greenlets import RequestCancelled, RequestGreenlet, begin, pause_s, run_request

HEARTBEAT_S = 15.0
"""Proxies close connections that are idle for a minute; and so the server notices clients that have gone."""
RECONNECT_MS = 1_000
BUFFER_BYTES = 4 * 1024 * 1024
BUFFER_EVENTS = 10_000
AFTER_FAILURE_S = 1.0
SLOW_READER = Problem(503, "slow-reader", "The client reads more slowly than changes come")
_HEARTBEAT = b":\n\n"
_RETRY = b"retry: %d\n\n" % RECONNECT_MS
_log = logging.getLogger("keylane.serve")


class ChangeStreams:
    """The streams of one process."""

    def __init__(self, metrics: MetricSink) -> None:
        self._metrics = metrics
        self._feeds: dict[Hashable, ChangeFeed] = {}
        self._streams: set[EventStream] = set()
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
            feed = self._feeds[source.identity] = ChangeFeed(source)
        stream = EventStream(self, feed, position, is_wanted, choose)
        self._streams.add(stream)
        self._report_open()
        feed.holders.add(stream)
        return stream

    def _find(self, identity: Hashable) -> "ChangeFeed | None":
        """Return a feed that still runs: one that failed may have streams that are about to end."""
        found = self._feeds.get(identity)
        return None if found is None or found.is_over else found

    def close(self, stream: "EventStream") -> None:
        """End a stream, and its feed if it was the last one."""
        self._streams.discard(stream)
        self._report_open()
        feed = stream.feed
        feed.holders.discard(stream)
        if not feed.holders and self._feeds.get(feed.source.identity) is feed:
            del self._feeds[feed.source.identity]
            feed.stop()

    def end_all(self) -> None:
        """End all streams with an event that says so: the server is being stopped."""
        for stream in list(self._streams):
            stream.end(ChangeEvent(CLOSING, "{}"))


class ChangeFeed:
    """Waits for the changes of one source. `holders`: its streams, `listeners`: those that have caught up."""

    def __init__(self, source: ChangeSource) -> None:
        self.source = source
        self.holders: set[EventStream] = set()
        self.listeners: set[EventStream] = set()
        self.is_over = False
        self._running: RequestGreenlet | None = None

    def join(self, stream: "EventStream") -> None:
        """Pass the next changes to a stream, too."""
        self.listeners.add(stream)
        if self._running is None:
            asyncio.get_running_loop().call_soon(self._begin)

    def stop(self) -> None:
        """End the wait."""
        self.is_over = True
        if self._running is not None:
            self._running.cancel()

    def _begin(self) -> None:
        if self._running is None and not self.is_over:
            self._running = begin(self._run, self._end, is_cancellable=True)

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
        rendered = [(event, event.render()) for event in events]
        for stream in list(self.listeners):
            stream.take(rendered)

    def _end(self, _: None, error: BaseException | None) -> None:
        self.is_over = True
        if error is None or isinstance(error, RequestCancelled):
            return
        event = problem_event(error)
        for stream in list(self.holders):
            stream.end(event)


class EventStream:
    """The events of one client: the body of its response."""

    def __init__(
        self,
        streams: ChangeStreams,
        feed: ChangeFeed,
        position: Any,
        is_wanted: Callable[[bytes], bool],
        choose: Choose | None,
    ) -> None:
        self.feed = feed
        self._is_wanted = is_wanted
        self._choose = choose
        self._streams = streams
        self._position = position
        self._buffer: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._last: ChangeEvent | None = None
        self._has_news = asyncio.Event()
        self._is_left = False
        self._is_cut = False

    def take(self, events: Sequence[tuple[ChangeEvent, bytes]]) -> None:
        """Take those of the feed's events that the client wants, each with its lines."""
        wanted = [(event, data) for event, data in events if not event.key or self._is_wanted(event.key)]
        if self._choose is None:
            self._push([data for _, data in wanted])
            return
        try:
            chosen = [(self._choose(event), event, data) for event, data in wanted]
        except KeylaneError as error:
            self.end(problem_event(error))
            return
        self._push([data if own is event else own.render() for own, event, data in chosen if own])

    def _push(self, events: Sequence[bytes]) -> None:
        """Buffer events for the client, which is cut off if it has not read those before."""
        self._buffer.extend(events)
        self._buffered_bytes += sum(map(len, events))
        if self._buffered_bytes > BUFFER_BYTES or len(self._buffer) > BUFFER_EVENTS:
            self.count_as_cut()
            detail = "events were left out: connect again with Last-Event-ID to get them"
            self.end(ChangeEvent(PROBLEM, str(problem(SLOW_READER, detail, "stream").body)))
            self._buffer.clear()
        if events:
            self._has_news.set()

    def count_as_cut(self) -> None:
        """Count the stream, once, as one that ends because its client reads too slowly."""
        if not self._is_cut:
            self._is_cut = True
            self._streams.count_cut()

    def end(self, last: ChangeEvent) -> None:
        """End the stream with this event, after those that are in the buffer."""
        self.feed.listeners.discard(self)
        self._last = self._last or last
        self._has_news.set()

    def leave(self) -> None:
        """End the stream without a word: its client has gone."""
        self._is_left = True
        self._has_news.set()

    def close(self) -> None:
        """Let go of the feed."""
        self.feed.listeners.discard(self)
        self._streams.close(self)

    async def chunks(self, refuse: Callable[[], ChangeEvent | None]) -> AsyncIterator[bytes]:
        """Yield the stream's bytes. `refuse` is asked every HEARTBEAT_S for a reason to end the stream."""
        yield _RETRY
        async for chunk in self._catch_up():
            yield chunk
        check_at_s = time.monotonic() + HEARTBEAT_S
        while not self._is_left:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, check_at_s - time.monotonic())):
                    await self._has_news.wait()
            if time.monotonic() >= check_at_s:
                check_at_s = time.monotonic() + HEARTBEAT_S
                if refusal := refuse():
                    self.end(refusal)
                elif not self._has_news.is_set():
                    yield _HEARTBEAT
            self._has_news.clear()
            if self._buffer:
                chunk = b"".join(self._buffer)
                self._buffer.clear()
                self._buffered_bytes = 0
                yield chunk
            if self._last and not self._buffer:
                yield self._last.render()
                return

    async def _catch_up(self) -> AsyncIterator[bytes]:
        """Yield what the client missed, one batch at a time, until it has what the feed has."""
        while not self._is_left and self._last is None:
            try:
                events, is_joined = await run_request(self._catch_up_once)
            except KeylaneError as error:
                self.end(problem_event(error))
                return
            if events:
                yield b"".join(event.render() for event in events)
            if is_joined:
                return

    def _catch_up_once(self) -> tuple[Sequence[ChangeEvent], bool]:
        events, self._position = self.feed.source.catch_up(self._position, self._is_wanted)
        if self._choose is not None:
            events = [own for event in events if (own := self._choose(event))]
        is_joined = self._position is None
        if is_joined:
            self.feed.join(self)
        return events, is_joined


def problem_event(error: BaseException) -> ChangeEvent:
    """Return the event of an error, as its problem document, and log it as other requests do."""
    if not isinstance(error, Exception):
        _log.error("a stream ended by %r", error, extra=correlated("stream"))
        error = RuntimeError(str(error))
    return ChangeEvent(PROBLEM, str(response_to(error, "stream").body))
