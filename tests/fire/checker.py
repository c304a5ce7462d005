"""The light process beside the load: reads and writes at a steady rate, and notes each answer.

`python -m tests.fire.checker`: the plan as a line of JSON on standard input. Further lines:

    {"mark": NAME}               the phase NAME begins
    {"close": {KEY: POSITION}}   the load is over: read every key at the position of its last acknowledged
                                 write, those of others too, and print what was found as one line of JSON

The trial judges what it prints (`Checker.found`).
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
from tests.fire.wire import Caller, now_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.replies import Reply

LAG_EVERY_S = 0.02
KEYS_OF_A_WRITER = 4
READ_WITHIN_S = 300.0
PRIORITY = -5
CLOSE = "at the end"
READ, WRITE, POSITIONED, LIVE, LAG = "read", "write", "positioned read", "live", "lag of the checker"


class Checker:
    """`plan`: host, port, topic, headers, readers, reads_per_s, writers, writes_per_s."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.events: list[Event] = []
        self.uncertain = 0
        self.acks: list[tuple[int, int, int, str, int]] = []
        """Time, partition, offset, key and number of each acknowledged write."""
        self.reads: list[tuple[Any, ...]] = []
        """Phase, key, the position that was waited for, and the answer of each read that has one."""
        self._plan = plan
        self._phase = "start"
        self._numbers = itertools.count()
        self._over = asyncio.Event()
        self._path = f"/topics/{plan['topic']}/keys/"
        self._written: dict[str, str] = {}
        """The position of each key's last acknowledged write."""

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

    def found(self, lost: list[str]) -> dict[str, Any]:
        """Return all that the trial is to know; `lost`: see `close`."""
        return {
            "events": self.events,
            "reads": self.reads,
            "acks": self.acks,
            "uncertain": self.uncertain,
            "lost": lost,
        }

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

    async def _timed(self, kind: str, caller: Caller, *request: Any, **headers: str) -> Reply:
        """Send a request and note it."""
        begun_s = time.monotonic()
        reply = await caller.ask(*request, **headers)
        self._note(kind, begun_s, reply.status)
        return reply

    def _note(self, kind: str, begun_s: float, status: int) -> None:
        taken_ms = round((time.monotonic() - begun_s) * 1000, 3)
        self.events.append(Event(self._phase, kind, round(begun_s, 3), taken_ms, status))

    async def _live(self, caller: Caller) -> None:
        await self._timed(LIVE, caller, "GET", "/health/live")

    async def _read(self, caller: Caller) -> None:
        if not self._written:
            return
        keys = list(self._written)
        key = keys[next(self._numbers) % len(keys)]
        self._keep(key, await self._timed(READ, caller, "GET", self._path + key))

    async def _write(self, caller: Caller, key: str) -> None:
        number = next(self._numbers)
        body = json.dumps({"number": number}).encode()
        reply = await self._timed(WRITE, caller, "PUT", self._path + key, body)
        if reply.status != 201:
            self.uncertain += 1
            return
        position = self._written[key] = reply.document["position"]
        partition, _, offset = position.partition(":")
        self.acks.append((now_ms(), int(partition), int(offset), key, number))
        if number and number % 4 == 0:
            waiting = _wait_for(position, 5)
            reply = await self._timed(POSITIONED, caller, "GET", self._path + key, **waiting)
            self._keep(key, reply, position)

    def _keep(self, key: str, reply: Reply, waited_for: str = "") -> None:
        if reply.is_of_key:
            claims = {name: value for name, value in reply.headers.items() if name.startswith("keylane-")}
            answer = reply.status, claims, reply.body.decode(), reply.began_ms, reply.ended_ms
            self.reads.append((self._phase, key, waited_for, *answer))

    async def close(self, others: dict[str, str]) -> list[str]:
        """Read every key at the position of its last acknowledged write; return what can't be read."""
        self._phase = CLOSE
        caller, until_s, lost = self._caller(), time.monotonic() + READ_WITHIN_S, []
        for key, position in (self._written | others).items():
            waiting = _wait_for(position, 20)
            while not (reply := await caller.ask("GET", self._path + key, **waiting)).is_of_key:
                if time.monotonic() > until_s:
                    lost.append(f"{key} at {position} is not readable")
                    break
                await asyncio.sleep(0.05)
            self._keep(key, reply, position)
        caller.close()
        return lost


def _wait_for(position: str, seconds: int) -> dict[str, str]:
    """Return the headers of a read that waits for a position."""
    return {"Keylane-Min-Position": position, "Prefer": f"wait={seconds}"}


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
        print(json.dumps(checker.found(await checker.close(command["close"]))), flush=True)
        return


if __name__ == "__main__":
    asyncio.run(main())
