"""Traffic in two regions while the link between one of them and Kafka is cut, and what each of them saw.

A region writes to keys of its own and reads those of both. A reader looks at random keys; another one waits
for each write of the first region, so that it measures how long one takes to be readable.
"""

from __future__ import annotations

import contextlib
import json
import queue
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tests.servers.own import CLOCK
from tests.torture.judge import Judge
from tests.torture.over_http import ServerConnection
from tests.torture.sources import NoAnswer

from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.regions import Region
    from tests.support.replies import Reply
    from tests.torture.oracle import Log
    from tests.torture.schedule import Shape

KEYS, WRITES_PER_S, READS_PER_S = 50, 20, 40
LONGEST_WAIT_S = 20


@dataclass(frozen=True, slots=True)
class Write:
    """A write that was acknowledged."""

    key: bytes
    position: str
    acknowledged_s: float


@dataclass(slots=True)
class RegionReads:
    """What a region's readers saw: times are monotonic, those of `ages` when the read was sent."""

    ages: list[tuple[float, float]] = field(default_factory=list)
    """When, and the age in ms."""
    readable: list[tuple[float, float]] = field(default_factory=list)
    """When a write was acknowledged, and ms until a read that waited for it was answered with it."""
    failed: list[tuple[float, int, bytes]] = field(default_factory=list)
    """When, status and body of reads that did not say what the key has."""

    def ages_between(self, begin_s: float, end_s: float) -> list[float]:
        return [age_ms for at_s, age_ms in self.ages if begin_s <= at_s < end_s]

    def readable_between(self, begin_s: float, end_s: float) -> list[float]:
        return [taken_ms for at_s, taken_ms in self.readable if begin_s <= at_s < end_s]


@dataclass(slots=True)
class RegionTraffic:
    """While its block runs, both regions write and read. Regions and what they saw are in the same order."""

    regions: tuple[Region, Region]
    log: Log
    shape: Shape
    judge: Judge = field(init=False)
    saw: tuple[RegionReads, RegionReads] = field(default_factory=lambda: (RegionReads(), RegionReads()))
    refused: list[tuple[float, int, bytes]] = field(default_factory=list)
    """When, status and body of the second region's writes that were not acknowledged."""
    last: dict[bytes, Write] = field(default_factory=dict)
    """The last acknowledged write of each key."""
    _threads: list[threading.Thread] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _faults: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.judge = Judge(self.log, {self.shape.name: self.shape})

    def __enter__(self) -> Self:
        news: list[queue.Queue[Write]] = [queue.Queue(1) for _ in self.regions]
        for number, region in enumerate(self.regions):
            tag = b"near" if number == 0 else b"far"
            for run in (
                lambda number=number, tag=tag, region=region: self._write(
                    region, tag, news if number == 0 else []
                ),
                lambda number=number, region=region: self._read(region, number),
                lambda number=number, region=region: self._follow(region, number, news[number]),
            ):
                self._threads.append(threading.Thread(target=self._guarded, args=(run,)))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(120)

    def check(self) -> list[str]:
        """Return what is wrong with the reads so far, by the log."""
        assert not self._faults, self._faults
        return self.judge.check()

    def note(self, key: bytes, reply: Reply, *, reader: int = 0, waited_for: str = "") -> None:
        """Have the judge look at a read of a key."""
        position = Position.parse(waited_for) if waited_for else None
        self.judge.note_latest(self.shape.name, key, reply, reader=reader, waited_for=position)

    def path(self, key: bytes) -> str:
        return f"/topics/{self.shape.name}/keys/{key.decode()}"

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            self._faults.append(error)
            raise

    def _write(self, region: Region, tag: bytes, news: list[queue.Queue[Write]]) -> None:
        connection, number = ServerConnection(region.server.port), 0
        while not self._over.wait(1 / WRITES_PER_S):
            number += 1
            key = b"%b-%d" % (tag, number % KEYS)
            sent_s = time.monotonic()
            try:
                reply = connection.ask("PUT", self.path(key), body=json.dumps({"number": number}).encode())
            except NoAnswer as error:
                self.refused.append((sent_s, 0, str(error).encode()))
                continue
            if reply.status != 201:
                self.refused.append((sent_s, reply.status, reply.body))
                continue
            position = Position.parse(reply.document["position"])
            write = Write(key, str(position), time.monotonic())
            self.judge.acknowledged.note(
                CLOCK.now_ms(), [(self.shape.name, position.partition, position.offset)]
            )
            self.last[key] = write
            for each in news:
                with contextlib.suppress(queue.Full):
                    each.put_nowait(write)
        connection.close()

    def _read(self, region: Region, number: int) -> None:
        connection, chance, saw = (
            ServerConnection(region.server.port),
            random.Random(number),
            self.saw[number],
        )
        while not self._over.wait(1 / READS_PER_S):
            if not self.last:
                continue
            key, sent_s = chance.choice(list(self.last)), time.monotonic()
            reply = connection.ask("GET", self.path(key))
            if not reply.is_of_key:
                saw.failed.append((sent_s, reply.status, reply.body))
                continue
            saw.ages.append((sent_s, float(reply.headers["keylane-age-ms"])))
            self.note(key, reply, reader=number + 1)
        connection.close()

    def _follow(self, region: Region, number: int, news: queue.Queue[Write]) -> None:
        connection, saw = ServerConnection(region.server.port), self.saw[number]
        while not self._over.is_set():
            with contextlib.suppress(queue.Empty):
                write = news.get(timeout=0.1)
                headers = {"Keylane-Min-Position": write.position, "Prefer": f"wait={LONGEST_WAIT_S}"}
                reply = connection.ask("GET", self.path(write.key), headers)
                if reply.is_of_key:
                    saw.readable.append(
                        (write.acknowledged_s, (time.monotonic() - write.acknowledged_s) * 1000)
                    )
                    self.note(write.key, reply, waited_for=write.position)
                elif reply.status != 412:
                    saw.failed.append((write.acknowledged_s, reply.status, reply.body))
        connection.close()
