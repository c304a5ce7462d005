"""The light process beside the load: reads and writes at a steady rate, each read checked, each write noted.

`python -m tests.fire.checker`: the plan as a line of JSON on standard input. Further lines:

    {"mark": NAME}          the phase NAME begins
    {"close": {KEY: ACK}}   the load is over: read every key at its position, those of others too, and print
                            what was found as one line of JSON

An ACK is [partition, offset, number] of a key's last acknowledged write.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.fire.figures import Event
from tests.fire.wire import Caller
from tests.soak.ledger import Ledger, Seen, Write

from keylane import routing
from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fire.wire import WireReply

LAG_EVERY_S = 0.02
KEYS_OF_A_WRITER = 4
READ_WITHIN_S = 300.0
MOST_FAULTS = 20
PRIORITY = -5
ABSENT = b"urn:keylane:problem:key-absent"
READ, WRITE, POSITIONED, LIVE, LAG = "read", "write", "positioned read", "live", "lag of the checker"


class Checker:
    """`plan`: host, port, topic, partitions, headers, readers, reads_per_s, writers, writes_per_s, has_ages.

    `has_ages`: whether the server's clock is this machine's, so that its ages can be judged.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.events: list[Event] = []
        self.faults: list[str] = []
        self.fault_count = 0
        self.uncertain = 0
        self.acks: list[tuple[int, int, str, int]] = []
        """Partition, offset, key and number of each acknowledged write."""
        self._plan = plan
        self._phase = "start"
        self._ledger = Ledger({})
        self._numbers = itertools.count()
        self._over = asyncio.Event()
        self._path = f"/topics/{plan['topic']}/keys/"
        self._written: list[str] = []

    def mark(self, phase: str) -> None:
        self._phase = phase

    async def run(self) -> None:
        """Read and write until `stop`."""
        plan = self._plan
        loops: list[Awaitable[None]] = [self._watch_lag(), self._steadily(10, self._live, self._caller())]
        rate = plan["reads_per_s"] / plan["readers"]
        loops += [self._steadily(rate, self._read, self._caller()) for _ in range(plan["readers"])]
        for number in range(plan["writers"]):
            rate = plan["writes_per_s"] / plan["writers"]
            keys = itertools.cycle(f"c{os.getpid()}-{number}-{each}" for each in range(KEYS_OF_A_WRITER))
            loops.append(
                self._steadily(
                    rate, lambda caller, keys=keys: self._write(caller, next(keys)), self._caller()
                )
            )
        await asyncio.gather(*loops)

    def stop(self) -> None:
        self._over.set()

    def _caller(self) -> Caller:
        return Caller(self._plan["host"], self._plan["port"], self._plan["headers"])

    async def _steadily(self, per_s: float, one: Callable[[Caller], Awaitable[None]], caller: Caller) -> None:
        """Call `one` at a rate, one call after the other: what is due meanwhile is left out."""
        begun_s = time.monotonic()
        for number in itertools.count():
            if self._over.is_set():
                break
            due_s = begun_s + number / per_s
            late_s = time.monotonic() - due_s
            if late_s > 1 / per_s:
                begun_s += late_s
            elif late_s < 0:
                await asyncio.sleep(-late_s)
            await one(caller)
        caller.close()

    async def _watch_lag(self) -> None:
        while not self._over.is_set():
            due_s = time.monotonic() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._note(LAG, due_s, 200)

    async def _timed(
        self, kind: str, caller: Caller, *request: Any, **headers: str
    ) -> tuple[WireReply, float]:
        """Send a request and note it; return the answer and the wall-clock ms at which it was sent."""
        sent_ms, begun_s = time.time() * 1000, time.monotonic()
        reply = await caller.ask(*request, **headers)
        self._note(kind, begun_s, reply.status)
        return reply, sent_ms

    def _note(self, kind: str, begun_s: float, status: int) -> None:
        taken_ms = round((time.monotonic() - begun_s) * 1000, 3)
        self.events.append(Event(self._phase, kind, round(begun_s, 3), taken_ms, status))

    async def _live(self, caller: Caller) -> None:
        await self._timed(LIVE, caller, "GET", "/health/live")

    async def _read(self, caller: Caller) -> None:
        if not self._written:
            return
        key = self._written[next(self._numbers) % len(self._written)]
        reply, sent_ms = await self._timed(READ, caller, "GET", self._path + key)
        self._check(key, reply, sent_ms)

    async def _write(self, caller: Caller, key: str) -> None:
        write = Write(self._plan["topic"], key, next(self._numbers), time.time() * 1000)
        self._ledger.begin(write)
        body = json.dumps({"number": write.number}).encode()
        reply, _ = await self._timed(WRITE, caller, "PUT", self._path + key, body)
        if reply.status != 201:
            self.uncertain += 1
            return
        at = Position.parse(reply.document["position"])
        self._ledger.acknowledge(write, at.partition, at.offset, time.time() * 1000)
        self.acks.append((at.partition, at.offset, key, write.number or 0))
        if key not in self._written:
            self._written.append(key)
        if write.number and write.number % 4 == 0:
            await self._read_at(caller, key, at)

    async def _read_at(self, caller: Caller, key: str, at: Position) -> None:
        headers = {"Keylane-Min-Position": str(at), "Prefer": "wait=5"}
        reply, sent_ms = await self._timed(POSITIONED, caller, "GET", self._path + key, b"", **headers)
        self._check(key, reply, sent_ms, at.offset)

    def _check(self, key: str, reply: WireReply, sent_ms: float, least_offset: int = -1) -> None:
        if (seen := self._seen(reply, sent_ms)) is None:
            return
        self._fault(self._ledger.check(self._plan["topic"], key, seen))
        if seen.next_offset <= least_offset:
            self._fault(f"{key}: this was to be at {least_offset}: {seen}")

    def _seen(self, reply: WireReply, sent_ms: float) -> Seen | None:
        """Return what a read has found; None if it was not answered by a record or its absence."""
        is_absent = reply.status == 404 and ABSENT in reply.body
        if reply.status != 200 and not is_absent:
            return None
        offset = None if is_absent else Position.parse(reply.headers["keylane-position"]).offset
        number = None if is_absent else reply.document["number"]
        age_ms = float(reply.headers["keylane-age-ms"])
        if age_ms < 0:
            self._fault(f"an age of {age_ms} ms")
        if not self._plan["has_ages"]:
            age_ms = float("inf")
        below = Position.parse(reply.headers["keylane-watermark"])
        received_ms = time.time() * 1000
        return Seen(below.partition, below.offset, offset, number, sent_ms, received_ms, age_ms)

    def _fault(self, fault: str | None) -> None:
        if fault:
            self.fault_count += 1
            if len(self.faults) < MOST_FAULTS:
                self.faults.append(f"{self._phase}: {fault}")

    async def close(self, others: dict[str, list[int]]) -> list[str]:
        """Read every key at the position of its last acknowledged write; return what is lost."""
        for key, (partition, offset, number) in others.items():
            write = Write(self._plan["topic"], key, number, 0)
            self._ledger.begin(write)
            self._ledger.acknowledge(write, partition, offset, 0)
        books = self._ledger.keys.get(self._plan["topic"], {})
        caller, until_s, lost = self._caller(), time.monotonic() + READ_WITHIN_S, []
        for key in [key for key, book in books.items() if book.acks]:
            last = books[key].acks[-1].offset
            partition = routing.partition_for(key.encode(), self._plan["partitions"])
            headers = {"Keylane-Min-Position": f"{partition}:{last}", "Prefer": "wait=20"}
            seen = None
            while seen is None and time.monotonic() < until_s:
                sent_ms = time.time() * 1000
                seen = self._seen(await caller.ask("GET", self._path + key, **headers), sent_ms)
                if seen is None:
                    await asyncio.sleep(0.05)
            if seen is None:
                lost.append(f"{key} at {partition}:{last} is not readable")
            elif fault := self._ledger.check(self._plan["topic"], key, seen._replace(age_ms=float("inf"))):
                lost.append(fault)
        caller.close()
        return lost


async def main() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    commands = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    checker = Checker(json.loads(await commands.readline()))
    running = asyncio.create_task(checker.run())
    while line := await commands.readline():
        command = json.loads(line)
        if "mark" in command:
            checker.mark(command["mark"])
            continue
        checker.stop()
        await running
        lost = await checker.close(command["close"])
        found = {
            "events": checker.events, "faults": checker.faults, "fault_count": checker.fault_count,
            "uncertain": checker.uncertain, "acks": checker.acks, "lost": lost,
        }  # fmt: skip
        print(json.dumps(found), flush=True)
        return


if __name__ == "__main__":
    asyncio.run(main())
