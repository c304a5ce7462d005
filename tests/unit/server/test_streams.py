"""Streams of changes over a source that a test controls, in a real loop."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from tests.support.becoming import becomes
from tests.support.fakes import FakeMetrics

from keylane.errors import BadRequest, CorruptState, StateUnavailable
from keylane.model.changes import KEY, PROBLEM, RECORD, ChangeEvent
from keylane_server import streams
from keylane_server.greenlets import pause_s, run_request
from keylane_server.streams import ChangeStreams, EventStream


class FakeSource:
    """Gives what a test adds: batches of events, or errors. A listener of an older position lacks one."""

    kind = KEY
    identity = "one"
    instead = ""

    def __init__(self) -> None:
        self.steps: deque[list[ChangeEvent] | Exception] = deque()
        self.starts = 0
        self.waits = 0
        self.is_idle = False

    def start(self) -> None:
        self.starts += 1
        pause_s(0)

    def wait(self, _: float) -> list[ChangeEvent]:
        self.waits += 1
        while not self.steps:
            self.is_idle = True
            pause_s(0.001)
        self.is_idle = False
        step = self.steps.popleft()
        if isinstance(step, Exception):
            raise step
        return step

    async def give(self, events: list[ChangeEvent]) -> None:
        """Add a step, and return once its feed has handed it to the listeners and waits for the next."""
        self.steps.append(events)
        await becomes(lambda: not self.steps and self.is_idle)

    def catch_up(self, position, _):
        return ([], None) if position is None else ([event("missed")], None)


def event(text: str, key: bytes = b"k") -> ChangeEvent:
    return ChangeEvent(RECORD, text, "1:1", key)


async def opened(of: ChangeStreams, source: FakeSource, position: object = None) -> EventStream:
    return await run_request(lambda: of.open(source, position, lambda key: key.startswith(b"k")))


async def read(stream: EventStream, until: str, refuse=lambda: None) -> str:
    """Read until a text comes, or the stream ends."""
    found = b""
    async with asyncio.timeout(20):
        async for chunk in stream.chunks(refuse):
            found += chunk
            if until and until.encode() in found:
                break
    return found.decode()


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


async def test_two_listeners_share_a_source_and_one_that_comes_back_catches_up_first(source: FakeSource):
    shared = ChangeStreams(FakeMetrics())
    one, two = await asyncio.gather(opened(shared, source), opened(shared, source, "older"))
    reading = [asyncio.ensure_future(read(each, "last")) for each in (one, two)]
    await becomes(lambda: len(one.feed.listeners) == 2)
    source.steps.append([event("other", b"x"), event("last")])
    texts = await asyncio.gather(*reading)
    assert ["missed" in each for each in texts] == [False, True]
    assert not any("other" in each for each in texts)
    assert one.feed is two.feed
    waits = source.waits
    assert waits <= 2
    for each in (one, two):
        each.close()
    await becomes(lambda: one.feed.is_over)


async def test_a_listener_that_chooses_is_sent_its_own_events_and_ends_by_its_own_error(source: FakeSource):
    def choose(given: ChangeEvent) -> ChangeEvent | None:
        if given.data == "wrong":
            raise BadRequest("there is no such field any more")
        return None if given.data == "no" else given._replace(name=given.data)

    shared = ChangeStreams(FakeMetrics())
    plain = await opened(shared, source)
    chosen = await run_request(lambda: shared.open(source, "older", lambda _: True, choose))
    assert chosen.feed is plain.feed
    reading = [asyncio.ensure_future(read(each, "last")) for each in (plain, chosen)]
    await becomes(lambda: len(plain.feed.listeners) == 2)
    source.steps.append([event("left"), event("no"), event("wrong")])
    source.steps.append([event("last")])
    texts = await asyncio.gather(*reading)
    assert [text.count("event: record") for text in texts] == [4, 0]
    assert "event: missed" in texts[1]
    assert texts[1].count("event: ") == 2, "what it was sent at once with the error is left out"
    assert "no such field any more" in texts[1]
    for each in (plain, chosen):
        each.close()


async def test_a_failure_that_may_pass_is_said_once_and_the_stream_goes_on(
    source: FakeSource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "AFTER_FAILURE_S", 0.001)

    stream = await opened(ChangeStreams(FakeMetrics()), source)
    source.steps.extend([StateUnavailable("away"), StateUnavailable("away"), [event("back")]])
    text = await read(stream, "back")
    assert text.count("state-unavailable") == 1
    stream.close()


async def test_another_failure_ends_the_stream_and_the_next_one_begins_again(source: FakeSource):
    shared = ChangeStreams(FakeMetrics())
    stream = await opened(shared, source)
    source.steps.append(CorruptState("key", "why"))
    assert "corrupt-state" in await read(stream, "")
    again = await opened(shared, source)
    source.steps.append([event("after")])
    assert "after" in await read(again, "after")
    assert source.starts == 2
    for each in (stream, again):
        each.close()


async def test_a_stream_whose_token_is_no_longer_valid_ends_even_while_changes_come(
    source: FakeSource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    answers = iter([None, None, ChangeEvent(PROBLEM, "refused")])

    stream = await opened(ChangeStreams(FakeMetrics()), source)

    async def feed() -> None:
        while True:
            source.steps.append([event("more")])
            await asyncio.sleep(0.002)

    feeding = asyncio.ensure_future(feed())
    text = await read(stream, "", lambda: next(answers))
    assert text.endswith("event: problem\ndata: refused\n\n")
    feeding.cancel()
    stream.close()


class LongPast(FakeSource):
    """Has more and more for a listener that comes back, in batches of this text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def catch_up(self, position, _):
        return [event(self.text)], position


@pytest.mark.parametrize(
    ("text", "is_said"), [("past", True), ("x" * 100_000, False)], ids=["between events", "within one"]
)
async def test_a_stream_whose_token_is_no_longer_valid_ends_also_while_it_catches_up(
    monkeypatch: pytest.MonkeyPatch, text: str, is_said: bool
):
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.0)
    answers = iter([None, ChangeEvent(PROBLEM, "refused")])
    stream = await opened(ChangeStreams(FakeMetrics()), LongPast(text), "older")
    found = await read(stream, "", lambda: next(answers))
    assert text[:4] in found
    assert found.endswith("event: problem\ndata: refused\n\n") == is_said
    assert is_said or found.endswith("x"), "what is not whole has no event behind it"
    stream.close()


async def test_a_listener_that_does_not_read_is_cut_off_with_a_problem(
    source: FakeSource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "BUFFER_BYTES", 1_000)

    metrics = FakeMetrics()
    shared = ChangeStreams(metrics)
    stream = await opened(shared, source)
    chunks = stream.chunks(lambda: None)
    await anext(chunks)
    source.steps.append([event("first")])
    await anext(chunks)
    source.steps.append([event("x" * 2_000), event("y" * 2_000)])
    rest = b"".join([chunk async for chunk in chunks]).decode()
    assert "slow-reader" in rest
    assert "xxx" not in rest
    stream.count_as_cut()  # as the server does if the client does not read the problem either
    opened_of = {("StreamsOpen", "key"): 1, ("StreamsOpen", "topic"): 0}
    assert metrics.numbers == {**opened_of, ("StreamsCut",): 1}
    stream.close()
    assert metrics.numbers["StreamsOpen", "key"] == 0


async def test_a_listener_that_reads_gets_an_event_that_is_larger_than_what_is_kept_for_slow_ones(
    source: FakeSource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "BUFFER_BYTES", 1_000)
    shared = ChangeStreams(FakeMetrics())
    stream = await opened(shared, source)
    reading = asyncio.ensure_future(read(stream, "last"))
    await becomes(lambda: stream in stream.feed.listeners)
    await source.give([event("x" * 2_000)])
    await source.give([event("last")])
    text = await reading
    assert "x" * 2_000 in text
    assert "slow-reader" not in text
    stream.close()


async def test_at_the_end_of_the_server_all_streams_say_so(source: FakeSource):
    shared = ChangeStreams(FakeMetrics())
    stream = await opened(shared, source)
    reading = asyncio.ensure_future(read(stream, ""))
    await becomes(lambda: stream in stream.feed.listeners)
    shared.end_all()
    assert (await reading).endswith("event: closing\ndata: {}\n\n")
    stream.close()


async def joined(shared: ChangeStreams, source: FakeSource, number: int, choose=None) -> list[EventStream]:
    """Open streams that have caught up, each with what it has read first; none of them reads on."""
    found = []
    for _ in range(number):
        stream = await run_request(lambda: shared.open(source, None, lambda _: True, choose))
        found.append((stream, stream.chunks(lambda: None)))
    for stream, chunks in found:
        await anext(chunks)
        reading = asyncio.ensure_future(anext(chunks))
        await becomes(lambda stream=stream: stream in stream.feed.listeners)
        stream.reading = reading  # type: ignore[attr-defined]
        stream.rest = chunks  # type: ignore[attr-defined]
    return [stream for stream, _ in found]


async def test_many_listeners_share_what_a_feed_keeps_until_all_have_it(source: FakeSource):
    shared = ChangeStreams(FakeMetrics())
    listeners = await joined(shared, source, 50)
    feed = listeners[0].feed
    source.steps.append([event("x" * 100_000)])
    first = [await each.reading for each in listeners]  # type: ignore[attr-defined]
    assert {len(piece) for piece in first} == {streams.PIECE_BYTES}
    assert (shared._own_bytes, feed.kept_bytes) == (0, 0), "all have taken it, nobody has read it"
    await source.give([event("y" * 100_000)])
    assert 100_000 < feed.kept_bytes == shared._kept_bytes < 101_000
    for each in listeners:
        rest = b""
        while b"y\n\n" not in rest:
            rest += await anext(each.rest)  # type: ignore[attr-defined]
    assert feed.kept_bytes == shared._kept_bytes == 0
    for each in listeners:
        each.close()


async def test_what_all_feeds_keep_is_bounded_and_the_largest_lets_go(
    source: FakeSource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "FEEDS_BYTES", 5_000)

    metrics = FakeMetrics()
    shared, other = ChangeStreams(metrics), FakeSource()
    other.identity = "two"
    slow, small = (*await joined(shared, source, 1), *await joined(shared, other, 1))
    for of, size in ((source, 3_000), (other, 1_000), (source, 3_000)):
        await of.give([event("z" * size)])
    # Each has taken its first event, and keeps none.
    for step in range(3):
        for of, size in ((source, 2_000), (other, 100)):
            await of.give([event("z" * size)])
        assert shared._kept_bytes <= 5_000, step
    assert small.number >= small.feed.first
    assert slow.number < slow.feed.first
    text = b"".join([each async for each in slow.rest]).decode()  # type: ignore[attr-defined]
    assert "slow-reader" in text
    slow.close()
    small.close()
    assert shared._kept_bytes == 0


async def test_over_the_bound_of_own_events_who_reads_nothing_for_longest_is_cut_off(
    source: FakeSource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "OWN_BYTES", 250_000)

    metrics = FakeMetrics()
    shared = ChangeStreams(metrics)
    one, *others = await joined(shared, source, 3, lambda given: given._replace(name="own"))
    source.steps.append([event("x" * 100_000)])
    for each in (one, *others):
        await each.reading  # type: ignore[attr-defined]
    assert shared._own_bytes < 250_000
    assert metrics.numbers[("StreamsCut",)] == 1
    left = [each for each in (one, *others) if each.own_bytes]
    assert len(left) == 2
    for each in (one, *others):
        each.close()
    assert shared._own_bytes == 0


async def test_a_stream_that_is_cut_off_ends_while_its_client_takes_nothing(source: FakeSource):
    stream = await opened(ChangeStreams(FakeMetrics()), source)

    begun = asyncio.Event()

    async def send() -> None:
        async with stream.sending():
            begun.set()
            await asyncio.Event().wait()

    sending = asyncio.ensure_future(send())
    await begun.wait()
    stream.cut()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sending, 10)
    stream.cut()  # again, while nothing is sent
    stream.close()
