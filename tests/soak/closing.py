"""The checks after the load: every acknowledged write, every listener, every window, and nothing expired.

Everything is polled with a bound: the job may be some seconds behind.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

from tests.servers.own import CLOCK
from tests.soak.plan import EXPIRING, GROUPS, GROWING, STEADY, TOTALS, WINDOWS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.soak.listening import Listeners
    from tests.soak.plan import Plan
    from tests.soak.reading import Readers
    from tests.soak.traffic import Traffic
    from tests.soak.writing import Writers
    from tests.torture.judge import Judge

WITHIN_S = 180.0
CHUNK = 1_000
KEPT_PART = 0.6
"""Of the ttl: windows that began so long ago at most cannot have been removed yet."""
EXPIRED_AFTER_S = 10.0


class Closing:
    """`found` has the figures of the checks."""

    def __init__(
        self, traffic: Traffic, judge: Judge, writers: Writers, readers: Readers, listeners: Listeners
    ) -> None:
        self.found: dict[str, Any] = {}
        self._traffic, self._judge, self._writers = traffic, judge, writers
        self._readers, self._listeners = readers, listeners

    async def check(self, plan: Plan) -> None:
        """Make all checks; the faults are the traffic's."""
        ended_ms = CLOCK.now_ms()
        await self.check_applied()
        await self._check_windows(plan)
        await self._check_totals()
        await self._eventually("listeners", self._all_received)
        self._listeners.check(within_s=0)
        await self._check_keys()
        await self._check_expired(plan, ended_ms)
        await self.check_reads()

    async def check_reads(self) -> None:
        """Judge the reads since the last call; the faults are the traffic's."""
        for fault in await asyncio.to_thread(self._judge.check):
            self._traffic.fault(fault)

    async def _eventually(self, what: str, holds: Callable[[], Awaitable[str]]) -> None:
        """Poll until `holds` returns nothing; what it returns at last is a fault."""
        until_s = time.monotonic() + WITHIN_S
        while wrong := await holds():
            if time.monotonic() > until_s:
                self._traffic.fault(f"{what}, after {WITHIN_S:.0f} s: {wrong}")
                return
            await asyncio.sleep(0.5)

    async def check_applied(self) -> None:
        """Wait until reads have everything that was acknowledged."""

        async def missing() -> str:
            """Return the first position that no read reaches."""
            for (topic, partition), end in self._judge.acknowledged.ends().items():
                reply = await self._traffic.ask(
                    "end",
                    "GET",
                    f"/topics/{topic}/keys/none",
                    Keylane_Min_Position=f"{partition}:{end - 1}",
                    Prefer="wait=20",
                )
                if reply.status not in (200, 404):
                    return f"{topic} {partition}:{end - 1} {reply}"
            return ""

        await self._eventually("the ends of the log", missing)

    async def _all_received(self) -> str:
        left = {each.book.name: len(each.book.pending) for each in self._listeners.listeners}
        return "; ".join(f"{name} lacks {count}" for name, count in left.items() if count)

    async def _check_keys(self) -> None:
        """Read every key that was written and does not expire."""
        await self.check_reads()
        for topic in (STEADY, GROWING):
            keys = [key.decode() for key in self._judge.log.keys_of(topic)]
            self.found[f"keys of {topic} read"] = len(keys)
            for start in range(0, len(keys), CHUNK):
                chunk = keys[start : start + CHUNK]

                async def unread(topic: str = topic, chunk: list[str] = chunk) -> str:
                    return "" if await self._readers.read_many(topic, chunk) else f"{topic}: {chunk[0]}, ..."

                await self._eventually("keys cannot be read", unread)

        async def miscounted() -> str:
            await self.check_reads()
            newest = [self._judge.log.of(STEADY, key).newest() for key in self._judge.log.keys_of(STEADY)]
            live = sum(bool(each and each.value) for each in newest)
            reply = await self._traffic.ask("end", "GET", f"/topics/{STEADY}/count")
            count = reply.document["count"] if reply.status == 200 else -1
            return "" if count == live else f"{count} keys of {STEADY}, not {live}"

        await self._eventually("the number of keys", miscounted)

    async def _check_totals(self) -> None:
        """The view's totals are the counts of acknowledged values, up to writes without an answer."""

        async def different() -> str:
            rows = await self._pages(f"/views/{TOTALS}/keys", "windows")
            totals = {row["key"]: row["values"]["n"] for row in rows}
            self.found["records in the view's totals"] = sum(totals.values())
            wrong = [
                f"{key}: {totals.get(key, 0)} of {self._writers.counted[key]}"
                for key in self._writers.begun
                if not self._writers.counted[key] <= totals.get(key, 0) <= self._writers.begun[key]
            ]
            return f"{len(wrong)} wrong totals, {wrong[:3]}" if wrong else ""

        await self._eventually("the view's totals", different)

    async def _check_windows(self, plan: Plan) -> None:
        """The windows that have not been removed have the counts of what was written into them."""

        async def different() -> str:
            after_ms = CLOCK.now_ms() - KEPT_PART * plan.ttl_s * 1000
            wanted = {each: n for each, n in self._writers.windows.items() if each[1] > after_ms}
            self.found["windows compared"] = len(wanted)
            reply = await self._traffic.ask("end", "GET", f"/views/{WINDOWS}")
            late = reply.document.get("late", 0) if reply.status == 200 else 0
            self.found["late records of windows"] = late
            shown = {}
            for number in range(GROUPS):
                for row in await self._readers.read_windows(f"group-{number}"):
                    shown[row["key"], row["start"]] = row["values"]["n"]
            wrong = [
                f"{group} {start}: {shown.get((group, start), 0)} of {count}"
                for (group, start), count in wanted.items()
                if not count - late
                <= shown.get((group, start), 0)
                <= self._writers.windows_begun[group, start]
            ]
            return f"{len(wrong)} wrong windows, {wrong[:3]}" if wrong else ""

        await self._eventually("the view's windows", different)

    async def _check_expired(self, plan: Plan, ended_ms: float) -> None:
        """When all of them have expired, no key of the topic and no window is left."""
        await asyncio.sleep(max(0.0, ended_ms / 1000 + plan.ttl_s + EXPIRED_AFTER_S - time.time()))

        async def left() -> str:
            reply = await self._traffic.ask("end", "GET", f"/topics/{EXPIRING}/count")
            count = reply.document["count"] if reply.status == 200 else -1
            keys = await self._pages(f"/topics/{EXPIRING}/keys", "records")
            windows = await self._pages(f"/views/{WINDOWS}/keys", "windows")
            if count or keys or windows:
                return f"count {count}, {len(keys)} keys, {len(windows)} windows"
            return ""

        await self._eventually("what has expired", left)
        recent = list(self._writers.recent)
        self.found["expired keys read"] = len(recent)
        for start in range(0, len(recent), CHUNK):
            await self._readers.read_many(EXPIRING, recent[start : start + CHUNK])

    async def _pages(self, path: str, member: str) -> list[dict[str, Any]]:
        """Return what all pages have; none if one of them is not answered."""
        rows: list[dict[str, Any]] = []
        cursor = ""
        for _ in itertools.count():
            more = f"&cursor={cursor}" if cursor else ""
            reply = await self._traffic.ask("end", "GET", f"{path}?limit={CHUNK}{more}")
            if reply.status != 200:
                return [{"key": "", "values": {"n": -1}, "problem": reply.body.decode()}]
            rows += reply.document[member]
            cursor = reply.document.get("next")
            if not cursor:
                break
        return rows
