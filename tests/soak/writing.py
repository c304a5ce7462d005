"""Writes of the soak: keys that are overwritten and deleted, new keys, keys that expire, and bursts."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.own import CLOCK
from tests.soak.plan import EXPIRING, GROUPS, GROWING, HOT_KEYS, STEADY, STEADY_KEYS, VALUE_BYTES, Plan
from tests.soak.traffic import partition_of

from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.soak.listening import ChangeBook
    from tests.soak.traffic import Traffic
    from tests.support.replies import Reply
    from tests.torture.judge import Judge

HOT = [f"hot-{number}" for number in range(HOT_KEYS)]
PARTS = ((STEADY, 0.45), (GROWING, 0.3), (EXPIRING, 0.25))
DELETED = 0.1
RECENT_BEYOND_TTL_S = 30
"""For so long expired keys are still read."""


class Write(NamedTuple):
    """A write that has begun. `number`: of its value; None: it is a tombstone."""

    topic: str
    key: str
    number: int | None
    begun_ms: int


class Writers:
    """Writes, and what others need to know of them. `books`: the listeners of each topic."""

    def __init__(self, traffic: Traffic, judge: Judge, plan: Plan) -> None:
        self.acknowledged: Counter[str] = Counter()
        """Writes by topic, ..."""
        self.uncertain = 0
        """... and those without an answer: Kafka may have them or not."""
        self.books: dict[str, list[ChangeBook]] = {STEADY: [], GROWING: [], EXPIRING: []}
        self.grown: list[str] = []
        self.recent: deque[str] = deque()
        """Keys of `expiring`, the newest last."""
        self.counted: Counter[str] = Counter()
        """Acknowledged values of `steady` by key, as the view of totals counts them, ..."""
        self.begun: Counter[str] = Counter()
        """... and all that may be in Kafka."""
        self.windows: Counter[tuple[str, int]] = Counter()
        """Acknowledged values of `steady` by group and start of their window."""
        self.windows_begun: Counter[tuple[str, int]] = Counter()
        self._traffic, self._judge, self._plan = traffic, judge, plan
        self._recent = int(plan.writes_per_s * dict(PARTS)[EXPIRING] * (plan.ttl_s + RECENT_BEYOND_TTL_S))
        self._chance = random.Random(plan.seed)
        self._numbers = itertools.count()
        self._steady = [f"s{number:04}" for number in range(STEADY_KEYS)]

    def any_steady(self) -> str:
        """A key of `steady`, the hot ones more often than others."""
        return self._chance.choice(HOT if self._chance.random() < 0.02 else self._steady)

    async def one(self) -> None:
        """Write one record, as the parts say."""
        topics, parts = zip(*PARTS, strict=True)
        (topic,) = self._chance.choices(topics, parts)
        if topic == STEADY:
            await self.put(topic, self.any_steady(), delete=self._chance.random() < DELETED)
        else:
            await self.put(topic, self.new_key(topic))

    async def hot(self) -> None:
        """Write to each key that has listeners of its own."""
        for key in HOT:
            await self.put(STEADY, key, delete=self._chance.random() < DELETED)

    async def burst(self) -> None:
        """Write many records with one request."""
        writes = []
        records = []
        for _ in range(self._plan.burst_records):
            key = self._chance.choice(self._steady)
            write, value = self._begin(STEADY, key)
            writes.append(write)
            records.append({"topic": STEADY, "key": key, "data": value})
        body = json.dumps({"records": records, "wait_for_send": True}).encode()
        reply = await self._traffic.ask("burst", "POST", "/push", body)
        positions: Sequence[str | None] = [None] * len(writes)
        if reply.status == 200:
            positions = reply.document["positions"]
        for write, position in zip(writes, positions, strict=True):
            self._end(write, position, reply.ended_ms)

    def new_key(self, topic: str) -> str:
        """A key that no other record has."""
        return f"{topic[0]}{next(self._numbers):09}"

    async def put(self, topic: str, key: str, *, delete: bool = False) -> str | None:
        """Write a record or a tombstone; return its position."""
        write, value = self._begin(topic, key, delete=delete)
        path = f"/topics/{topic}/keys/{key}"
        reply = await (
            self._traffic.ask("delete", "DELETE", path)
            if delete
            else self._traffic.ask("put", "PUT", path, value.encode())
        )
        return self._end(write, _position(reply), reply.ended_ms)

    def _begin(self, topic: str, key: str, *, delete: bool = False) -> tuple[Write, str]:
        number, begun_ms = next(self._numbers), CLOCK.now_ms()
        write = Write(topic, key, None if delete else number, begun_ms)
        if topic == STEADY and not delete:
            self.begun[key] += 1
            self.windows_begun[self._window(write)] += 1
        fields = {"number": number, "group": _group(number), "at": begun_ms}
        text = json.dumps(fields)
        return write, f'{text[:-1]}, "filler": "{"x" * (VALUE_BYTES - len(text) - 14)}"}}'

    def _end(self, write: Write, position: str | None, at_ms: int) -> str | None:
        if position is None:
            self.uncertain += 1
            return None
        at = Position.parse(position)
        if at.partition != partition_of(write.key):
            self._traffic.fault(f"{write} is in partition {at.partition}")
        self.acknowledged[write.topic] += 1
        self._judge.acknowledged.note(at_ms, [(write.topic, at.partition, at.offset)])
        for book in self.books[write.topic]:
            book.acknowledge(write.key, at.offset, at_ms)
        if write.topic == GROWING:
            self.grown.append(write.key)
        elif write.topic == EXPIRING:
            self.recent.append(write.key)
            if len(self.recent) > self._recent:
                self.recent.popleft()
        elif write.number is not None:
            self.counted[write.key] += 1
            self.windows[self._window(write)] += 1
        return position

    def _window(self, write: Write) -> tuple[str, int]:
        return _group(write.number or 0), write.begun_ms - write.begun_ms % self._plan.window_ms


def _group(number: int) -> str:
    return f"group-{number % GROUPS}"


def _position(reply: Reply) -> str | None:
    return str(reply.document["position"]) if reply.status in (200, 201) else None
