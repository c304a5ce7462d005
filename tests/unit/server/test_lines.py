"""Bodies of lines that are made while they are read, in a real loop."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib
from typing import TYPE_CHECKING

import pytest
import zstandard
from tests.support.becoming import becomes
from tests.support.fakes import FakeMetrics

from keylane.errors import UnknownTopic
from keylane.model.changes import PROBLEM, ChangeEvent
from keylane_server import lines
from keylane_server.admission import Overloaded, WaitRefused
from keylane_server.greenlets import pause_s, run_request
from keylane_server.lines import MOST_SNAPSHOTS, LineBodies, LineBody
from keylane_server.refusals import refusal_of
from keylane_server.streamed_bodies import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE = b'{"key": "%07d"}\n'


def some_lines(count: int = 3, each: int = 1) -> Iterator[bytes]:
    for number in range(count):
        pause_s(0)
        yield LINE % number * each


class OpenBodies:
    """The bodies of a process, of which some clients were cut off."""

    def __init__(self) -> None:
        self.cut = 0
        self.bodies = LineBodies(FakeMetrics(), self._count)

    def _count(self) -> None:
        self.cut += 1

    async def open(self, pieces: Iterator[bytes], coding: str | None = None) -> LineBody:
        return await run_request(lambda: self.bodies.open(lambda: pieces, coding))


async def read(body: LineBody, refuse=lambda: None) -> bytes:
    async with asyncio.timeout(20):
        return b"".join([chunk async for chunk in body.chunks(refuse)])


def decoded(data: bytes, coding: str | None) -> bytes:
    """What the beginning of a body is without its coding."""
    if coding is None:
        return data
    reader = zlib.decompressobj(31) if coding == "gzip" else zstandard.ZstdDecompressor().decompressobj()
    return reader.decompress(data)


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
async def test_lines_are_sent_in_pieces_and_may_be_compressed(coding: str | None):
    body = await OpenBodies().open(some_lines(40, 500), coding)
    chunks = [chunk async for chunk in body.chunks(lambda: None)]
    assert max(map(len, chunks)) <= PIECE_BYTES
    data = b"".join(chunks)
    assert decoded(data, coding) == b"".join(LINE % number * 500 for number in range(40))


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
async def test_a_line_does_not_wait_for_many_more(coding: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "FLUSH_S", 0.0)

    body = await OpenBodies().open(some_lines(), coding)
    first = await anext(aiter(body.chunks(lambda: None)))
    assert decoded(first, coding) == LINE % 0


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
async def test_what_comes_before_an_empty_piece_is_sent_at_once(coding: str | None):
    body = await OpenBodies().open(iter([LINE % 0, LINE % 1, b"", LINE % 2]), coding)
    first = await anext(aiter(body.chunks(lambda: None)))
    assert decoded(first, coding) == LINE % 0 + LINE % 1


async def test_others_run_between_pieces():
    ran: list[str] = []

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            ran.append("piece")
            yield LINE % number

    async def run() -> None:
        for _ in range(3):
            ran.append("other")
            await asyncio.sleep(0)

    body = await OpenBodies().open(pieces())
    await asyncio.gather(read(body), run())
    assert ran == ["piece", "other"] * 3


async def test_so_many_are_read_at_a_time_and_one_that_can_t_begin_takes_no_place():
    opened = OpenBodies()

    def fail() -> Iterator[bytes]:
        raise UnknownTopic("nowhere")

    for _ in range(MOST_SNAPSHOTS + 1):
        with pytest.raises(UnknownTopic):
            await run_request(lambda: opened.bodies.open(fail, None))
    bodies = [await opened.open(some_lines()) for _ in range(MOST_SNAPSHOTS)]
    with pytest.raises(WaitRefused):
        await opened.open(some_lines())
    bodies[0].close()
    await opened.open(some_lines())


async def test_a_stop_of_the_server_is_the_last_line_also_of_one_that_waits():
    def waiting() -> Iterator[bytes]:
        yield LINE % 0
        while True:
            pause_s(60)

    opened = OpenBodies()
    reading = asyncio.ensure_future(read(await opened.open(waiting())))
    await asyncio.sleep(0.01)
    opened.bodies.end_all(refusal_of(Overloaded("the server is being stopped"), "stream"))
    first, last = (await reading).splitlines()
    assert json.loads(first) == {"key": "0000000"}
    assert json.loads(last)["problem"]["type"] == "urn:keylane:problem:overloaded"


def slow_lines(pause: float) -> Iterator[bytes]:
    yield LINE % 0
    pause_s(pause)
    yield LINE % 1


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
async def test_bytes_come_while_a_piece_takes_long_and_change_no_line(
    coding: str | None, monkeypatch: pytest.MonkeyPatch
):
    """A proxy would end the connection, and the client ask for the same lane again and again."""
    monkeypatch.setattr(lines, "HEARTBEAT_S", 0.02)
    body = await OpenBodies().open(slow_lines(0.2), coding)
    chunks = [chunk async for chunk in body.chunks(lambda: None)]
    assert len(chunks) > 3
    data = b"".join(chunks)
    if coding == "gzip":
        data = gzip.decompress(data)
    if coding == "zstd":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    assert [json.loads(line) for line in data.splitlines()] == [{"key": "0000000"}, {"key": "0000001"}]


async def test_a_token_that_expires_while_a_piece_takes_long_ends_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "HEARTBEAT_S", 0.02)
    body = await OpenBodies().open(slow_lines(60))
    found = (await read(body, lambda: ChangeEvent(PROBLEM, '{"status": 401}'))).splitlines()
    assert [json.loads(line) for line in found] == [{"key": "0000000"}, {"problem": {"status": 401}}]


async def test_a_body_that_is_closed_while_a_piece_takes_long_ends_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "HEARTBEAT_S", 0.02)
    body = await OpenBodies().open(slow_lines(60))
    chunks = body.chunks(lambda: None)
    await anext(chunks)
    running = body._running
    assert running is not None
    body.close()
    await becomes(lambda: running.dead)


async def test_a_token_that_has_expired_is_the_last_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "HEARTBEAT_S", 0.0)

    body = await OpenBodies().open(iter([LINE % number for number in range(9)]))
    found = (await read(body, lambda: ChangeEvent(PROBLEM, '{"status": 401}'))).splitlines()
    assert (len(found), json.loads(found[-1])) == (2, {"problem": {"status": 401}})


def test_a_client_that_has_gone_ends_what_makes_its_lines():
    ended = []

    def forever() -> Iterator[bytes]:
        try:
            while True:
                yield LINE % 0
                pause_s(0.001)
        finally:
            ended.append(True)

    async def scenario() -> list[bool]:
        body = await OpenBodies().open(forever())
        reading = asyncio.ensure_future(read(body))
        await asyncio.sleep(0.02)
        body.leave()
        await reading
        body.close()
        return list(ended)

    assert asyncio.run(scenario())
    assert ended


async def test_a_client_that_goes_between_two_pieces_ends_what_makes_them_too():
    ended = []

    def pieces() -> Iterator[bytes]:
        try:
            yield LINE % 0
            yield b""
            yield LINE % 1
        finally:
            ended.append(True)

    body = await OpenBodies().open(pieces())
    chunks = aiter(body.chunks(lambda: None))
    assert await anext(chunks) == LINE % 0
    body.leave()
    assert not ended
    body.close()
    assert ended


async def test_a_client_that_reads_too_slowly_is_counted_once():
    opened = OpenBodies()
    body = await opened.open(some_lines())
    body.count_as_cut()
    body.count_as_cut()
    assert opened.cut == 1


async def test_a_client_that_reads_slowly_makes_room_for_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "SLOW_AFTER_S", 0.5)
    opened = OpenBodies()

    async def take(body: LineBody, pause: float) -> bytes:
        """Take the body, pausing at each piece."""
        received = b""
        with contextlib.suppress(TimeoutError):
            async for chunk in body.chunks(lambda: None):
                async with body.sending():
                    await asyncio.sleep(pause)
                received += chunk
        return received

    fast = [await opened.open(some_lines(10, 5_000)) for _ in range(MOST_SNAPSHOTS - 1)]
    slow = await opened.open(some_lines(10, 5_000))
    for each in fast:
        await take(each, 0)
    taking = asyncio.ensure_future(take(slow, 60))
    with pytest.raises(WaitRefused):  # it was not waited for long yet
        await opened.open(some_lines())
    await becomes(lambda: slow.reading_bytes_per_s() <= PIECE_BYTES / 0.5)
    monkeypatch.setattr(lines, "SLOW_BYTES_PER_S", PIECE_BYTES / 0.5 + 1)
    await opened.open(some_lines())
    assert await asyncio.wait_for(taking, 20) == b""
    assert opened.cut == 1
    with pytest.raises(WaitRefused):
        await opened.open(some_lines())


async def test_one_that_is_cut_off_between_pieces_says_why_in_its_last_line():
    opened = OpenBodies()
    body = await opened.open(some_lines())
    chunks = aiter(body.chunks(lambda: None))
    body.cut()
    [line] = [chunk async for chunk in chunks]
    assert json.loads(line)["problem"]["type"] == "urn:keylane:problem:slow-reader"
