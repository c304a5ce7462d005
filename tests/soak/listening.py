"""Listeners of changes, by key and by topic: some stay, some reconnect, and some come and go.

What they must have received follows from the writes that Kafka has acknowledged. Each key's records are in
its own partition, so offsets are the order of a key's records."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
from tests.servers.own import CLOCK
from tests.soak.plan import EXPIRING, GROWING, STEADY
from tests.soak.traffic import KEPT_AGES_S
from tests.soak.writing import HOT
from tests.support.events import EventLines

from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.soak.plan import Plan
    from tests.soak.traffic import Traffic
    from tests.soak.writing import Writers
    from tests.support.events import ReceivedEvent


@dataclass(slots=True)
class ChangeBook:
    """What a listener has received of each key, and what it still has to. `only`: the key it listens to."""

    name: str
    only: str | None = None
    latest: dict[str, int] = field(default_factory=dict)
    pending: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """By key: offsets, each with the time at which it was acknowledged."""
    received: int = 0

    def acknowledge(self, key: str, offset: int, at_ms: float) -> None:
        """Expect an event of the key that has this record or a newer one."""
        if self.only in (None, key) and self.latest.get(key, -1) < offset:
            self.pending.setdefault(key, []).append((offset, at_ms))

    def receive(self, key: str, offset: int) -> str | None:
        """Note an event that has all records of the key up to an offset; return what is wrong with it."""
        self.received += 1
        before = self.latest.get(key, -1)
        self.latest[key] = max(before, offset)
        left = [each for each in self.pending.pop(key, ()) if each[0] > offset]
        if left:
            self.pending[key] = left
        return f"{self.name}: {key} went back from {before} to {offset}" if offset < before else None

    def overdue(self, before_ms: float) -> list[str]:
        """Return the changes, acknowledged before a time, that were not received; they are not awaited on."""
        late = {
            key: min(offsets)
            for key, waited in self.pending.items()
            if (offsets := [offset for offset, at_ms in waited if at_ms < before_ms])
        }
        for key in late:
            del self.pending[key]
        return [f"{self.name}: {key} at {offset} was not received" for key, offset in late.items()]


RECEIVED_WITHIN_S = 30.0
"""After the state has a change."""
SILENCE_S = 45
"""The server sends a comment every 15 s."""
RECONNECT_S = 20.0
STAYS_EVERY = 10
"""Of those that come and go, one in so many stays until its key expires."""


@dataclass(slots=True)
class Listener:
    """One listener. `drops_every_s`: how long a connection lasts until it resumes with another one."""

    traffic: Traffic
    path: str
    book: ChangeBook
    drops_every_s: float | None = None
    connections: int = 0
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    _last_id: str = ""

    async def run(self) -> None:
        """Listen until cancelled, with the last id after each end of a connection."""
        while True:
            self.connections += 1
            until_s = time.monotonic() + (self.drops_every_s or float("inf"))
            try:
                async with aclosing(listen(self.traffic, self.path, self._last_id)) as events:
                    async for event in events:
                        self._take(event)
                        if time.monotonic() > until_s:
                            break
            except (aiohttp.ClientError, TimeoutError) as error:
                self.traffic.fail(f"stream {type(error).__name__}")
                await asyncio.sleep(1)

    def _take(self, event: ReceivedEvent) -> None:
        if event.name in ("record", "absent"):
            self.traffic.fault(receive(self.book, event))
        elif event.name == "gap":
            self.traffic.fault(f"{self.book.name}: {event}")
        elif event.name:
            self.traffic.fail(f"stream {event.name} {event.data[:100]}")
        if event.id:
            self._last_id = event.id
            self.joined.set()


def receive(book: ChangeBook, event: ReceivedEvent) -> str | None:
    """Note a record or an absence; an absence stands for all records below its watermark."""
    document = event.json
    if event.name == "record":
        return book.receive(document["key"], document["offset"])
    return book.receive(document["key"], Position.parse(document["watermark"]).offset - 1)


async def listen(traffic: Traffic, path: str, last_id: str = "") -> AsyncGenerator[ReceivedEvent, None]:
    """Yield the events of one connection. Raises aiohttp.ClientError, and TimeoutError after SILENCE_S."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
    timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_S)
    async with traffic.session.get(path, headers=headers, timeout=timeout, read_bufsize=2**22) as answer:
        answer.raise_for_status()
        lines = EventLines()
        async for line in answer.content:
            event = lines.take(line)
            if event is not None:
                yield event


class Listeners:
    """All listeners, and the check that each received what it had to."""

    def __init__(self, traffic: Traffic, writers: Writers, plan: Plan) -> None:
        self.visits = self.expiries = 0
        self._traffic, self._writers, self._plan = traffic, writers, plan
        self.listeners = [
            *(self._topic(topic, drops) for topic in (STEADY, GROWING) for drops in (None, RECONNECT_S)),
            *(self._key(key, RECONNECT_S if number % 2 else None) for number, key in enumerate(HOT)),
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def _topic(self, topic: str, drops_every_s: float | None) -> Listener:
        name = f"listener of {topic}" + (" that reconnects" if drops_every_s else "")
        return Listener(self._traffic, f"/topics/{topic}/changes", ChangeBook(name), drops_every_s)

    def _key(self, key: str, drops_every_s: float | None) -> Listener:
        book = ChangeBook(f"listener of {key}", key)
        return Listener(self._traffic, f"/topics/{STEADY}/keys/{key}/changes", book, drops_every_s)

    async def start(self) -> None:
        """Let all listen; from then on they have to receive what is written."""
        self._tasks = [asyncio.create_task(each.run()) for each in self.listeners]
        for each in self.listeners:
            await asyncio.wait_for(each.joined.wait(), 60)
            topic = GROWING if GROWING in each.book.name else STEADY
            self._writers.books[topic].append(each.book)

    async def stop(self) -> None:
        """End them, after the load has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self, within_s: float | None = None) -> None:
        """Report the changes that should have been received: by default after the state has had them."""
        if within_s is None:
            within_s = RECEIVED_WITHIN_S + self._traffic.oldest_ms(KEPT_AGES_S) / 1000
        before_ms = CLOCK.now_ms() - within_s * 1000
        for each in self.listeners:
            for late in each.book.overdue(before_ms):
                self._traffic.fault(late)

    async def visit(self) -> None:
        """Listen to a key that is new: it is absent, then there, and some of these stay until it expires."""
        self.visits += 1
        key = self._writers.new_key(EXPIRING)
        stays = self.visits % STAYS_EVERY == 0
        names: list[str] = []
        position = None
        written_s = time.monotonic()
        bound_s = RECEIVED_WITHIN_S + (self._plan.ttl_s if stays else 0)
        path = f"/topics/{EXPIRING}/keys/{key}/changes"
        try:
            async with asyncio.timeout(bound_s), aclosing(listen(self._traffic, path)) as events:
                async for event in events:
                    names.append(event.name)
                    if len(names) == 1:
                        position = await self._writers.put(EXPIRING, key)
                    elif not stays or event.name == "absent" or position is None:
                        break
        except (aiohttp.ClientError, TimeoutError) as error:
            names.append(type(error).__name__)
        if position is None:
            return  # the write has failed, and is counted
        seconds = time.monotonic() - written_s
        if names == ["absent", "record", *(["absent"] if stays else [])]:
            self.expiries += stays
        elif self._traffic.oldest_ms(bound_s) > RECEIVED_WITHIN_S * 500:
            self._traffic.fail("visit of a listener, while the state was old")
        else:
            self._traffic.fault(f"listener of {key}, written at {position}: {names} after {seconds:.1f} s")
