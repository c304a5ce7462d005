"""Requests to the server, counted and timed by kind, and loops of a steady rate."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.servers.own import CLOCK
from tests.soak.plan import PARTITIONS
from tests.support.figures import percentiles
from tests.support.replies import Reply

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

REQUEST_TIMEOUT_S = 40
"""More than any answer takes: a read at a position waits for 20 s at most."""
MOST_RUNNING = 100
MOST_BEHIND_S = 5.0
MOST_FAULTS = 100
KEPT_AGES_S = 600.0


def partition_of(key: str) -> int:
    """The partition of a key in every topic of the soak."""
    return routing.partition_for(key.encode(), PARTITIONS)


@dataclass(slots=True)
class Minute:
    """What happened since the last report: latencies (ms) and failures by kind, ages (ms) by topic."""

    took_ms: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failed: Counter[str] = field(default_factory=Counter)
    ages_ms: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    left_out: int = 0

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return rates and percentiles."""
        kinds = {
            kind: {"per_s": round(len(took) / seconds, 1), **percentiles(took, 50, 99)}
            for kind, took in sorted(self.took_ms.items())
        }
        ages = {topic: percentiles(ages, 50, 99) for topic, ages in sorted(self.ages_ms.items())}
        return {"requests": kinds, "ages_ms": ages, "failed": dict(self.failed), "left_out": self.left_out}


class Traffic:
    """The connections to the server, and what all loops report; `faults` fail the run."""

    def __init__(self, url: str) -> None:
        self.over = asyncio.Event()
        self.minute = Minute()
        self.faults: list[str] = []
        self.fault_count = 0
        self.failed: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._oldest: deque[tuple[float, float]] = deque()
        self.session = aiohttp.ClientSession(
            url,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
        )

    def fault(self, text: str | None) -> None:
        """Note something wrong, if it is."""
        if text:
            self.fault_count += 1
            if len(self.faults) < MOST_FAULTS:
                self.faults.append(f"{time.strftime('%H:%M:%S')} {text}")

    async def ask(
        self, kind: str, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> Reply:
        """Send a request. What is not answered with less than 500 counts as failed, and so does 429."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent_ms, begun_s = CLOCK.now_ms(), time.perf_counter()
        try:
            async with self.session.request(method, path, data=body, headers=named) as answer:
                content = await answer.read()
                low = {name.lower(): value for name, value in answer.headers.items()}
                reply = Reply(answer.status, low, content, sent_ms, CLOCK.now_ms())
        except (aiohttp.ClientError, TimeoutError) as error:
            reply = Reply(0, {}, repr(error).encode(), sent_ms, CLOCK.now_ms())
        self.sent[kind] += 1
        self.minute.took_ms[kind].append((time.perf_counter() - begun_s) * 1000)
        if reply.status in (0, 429) or reply.status >= 500:
            self.fail(f"{kind} {reply.status} {_reason(reply)}")
        return reply

    def fail(self, name: str) -> None:
        """Count something that did not work, and is not wrong."""
        self.minute.failed[name] += 1
        self.failed[name] += 1

    def note_age(self, name: str, age_ms: float) -> None:
        """Note the age that a read of a topic or view has reported."""
        self.minute.ages_ms[name].append(age_ms)
        self._oldest.append((time.monotonic(), age_ms))

    def oldest_ms(self, within_s: float) -> float:
        """The highest age of the last seconds, which is what the job needs for a change."""
        while self._oldest and self._oldest[0][0] < time.monotonic() - KEPT_AGES_S:
            self._oldest.popleft()
        since_s = time.monotonic() - within_s
        return max((age_ms for at_s, age_ms in self._oldest if at_s >= since_s), default=0.0)

    async def steadily(self, per_s: float, one: Callable[[], Awaitable[None]]) -> None:
        """Start `one` at a steady rate until the end, whether or not those before have returned.

        What the machine is too slow for is left out, and counted.
        """
        tasks: set[asyncio.Task[None]] = set()
        running = asyncio.Semaphore(MOST_RUNNING)
        due_s = time.monotonic()
        while not self.over.is_set():
            due_s += 1 / per_s
            late_s = time.monotonic() - due_s
            if late_s > MOST_BEHIND_S:
                self.minute.left_out += int(late_s * per_s)
                due_s += late_s
            if late_s < 0:
                await asyncio.sleep(-late_s)
            await running.acquire()
            task = asyncio.create_task(self._guard(one()))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(lambda _: running.release())
        await asyncio.gather(*tasks)

    async def _guard(self, one: Coroutine[Any, Any, None] | Awaitable[None]) -> None:
        try:
            await one
        except Exception as error:  # noqa: BLE001 - an answer that cannot be understood is a wrong one
            self.fault(f"{type(error).__name__}: {error}"[:500])


def _reason(reply: Reply) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(reply.document["type"]).rpartition(":")[2]
    return reply.body[:80].decode(errors="replace")
