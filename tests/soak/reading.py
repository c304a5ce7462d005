"""Reads of the soak, of every kind. What one read alone says is judged by the log, the rest here."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.soak.plan import EXPIRING, GROUPS, GROWING, STEADY, TOTALS, WINDOWS

from keylane.errors import KeylaneError
from keylane.model.records import Position

if TYPE_CHECKING:
    from tests.soak.traffic import Traffic
    from tests.soak.writing import Writers
    from tests.support.replies import Reply
    from tests.torture.judge import Judge

MANY, PAGE = 20, 50


class Readers:
    """Reads in random order of kinds; `counts` has the number of keys of topics that are counted."""

    def __init__(self, traffic: Traffic, judge: Judge, writers: Writers, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._traffic, self._judge, self._writers = traffic, judge, writers
        self._chance = random.Random(seed + 1)
        self._totals: Counter[str] = Counter()
        self._kinds = {
            self.latest: 55, self.waited: 12, self.conditional: 6, self.many: 8, self.page: 4,
            self.history: 5, self.count: 2, self.total: 5, self.window_page: 3,
        }  # fmt: skip

    async def one(self) -> None:
        """Read something."""
        (kind,) = self._chance.choices(list(self._kinds), list(self._kinds.values()))
        await kind()

    def _any(self) -> tuple[str, str] | None:
        topic = self._chance.choices((STEADY, GROWING, EXPIRING), (6, 2, 2))[0]
        if topic == STEADY:
            return topic, self._writers.any_steady()
        keys = self._writers.grown if topic == GROWING else self._writers.recent
        return (topic, keys[self._chance.randrange(len(keys))]) if keys else None

    async def latest(self) -> None:
        """Read any key."""
        if chosen := self._any():
            self.check(*chosen, await self._get("read", *chosen))

    async def waited(self) -> None:
        """Write a key, and read it at the position of that write."""
        key = self._writers.any_steady()
        if position := await self._writers.put(STEADY, key):
            reply = await self._get("read at position", STEADY, key, Keylane_Min_Position=position)
            if reply.status == 412:
                self._traffic.fail("read at position 412")
                return
            self.check(STEADY, key, reply, Position.parse(position))

    async def conditional(self) -> None:
        """Read a key twice, the second time only if it has changed: 304 says that it has not."""
        key = self._writers.any_steady()
        first = await self._get("read", STEADY, key)
        tag = first.headers.get("etag")
        if first.status != 200 or tag is None:
            return
        reply = await self._get("conditional read", STEADY, key, If_None_Match=tag)
        if reply.status == 304:
            reply = reply._replace(status=200, headers={**first.headers, **reply.headers}, body=first.body)
        self.check(STEADY, key, reply)

    async def many(self) -> None:
        """Read many keys with one request."""
        await self.read_many(STEADY, [self._writers.any_steady() for _ in range(MANY)])

    async def read_many(self, topic: str, keys: list[str]) -> bool:
        """Read keys and check each; return whether they were answered."""
        body = json.dumps({"keys": keys}).encode()
        reply = await self._traffic.ask("read many", "POST", f"/topics/{topic}/keys:read", body)
        if reply.status != 200:
            return False
        try:
            found = self._judge.answers.many(topic, [key.encode() for key in keys], reply)
        except KeylaneError as error:
            self._traffic.fault(f"{topic}: {error}")
            return True
        for key, each in found:
            self._judge.note(topic, key, each, reply, kind="many")
        return True

    async def page(self) -> None:
        """Read a page of an index."""
        prefix = f"s{self._chance.randrange(20):02}"
        reply = await self._traffic.ask("page", "GET", f"/topics/{STEADY}/keys?prefix={prefix}&limit={PAGE}")
        if reply.status == 200:
            rows = self._judge.answers.page(STEADY, reply)
            names = [key.decode() for key, _ in rows]
            if names != sorted(set(names)) or not all(name.startswith(prefix) for name in names):
                self._traffic.fault(f"{STEADY}: a page of {prefix} has {names}")
            for key, found in rows:
                self._judge.note(STEADY, key, found, reply, kind="range")

    async def history(self) -> None:
        """Read the records of a key, which come newest first."""
        key = self._writers.any_steady()
        reply = await self._traffic.ask("history", "GET", f"/topics/{STEADY}/keys/{key}/history")
        if reply.status == 200:
            found, entries = self._judge.answers.history(STEADY, key.encode(), reply)
            self._judge.note(STEADY, key.encode(), found, reply, kind="history", entries=tuple(entries))

    async def count(self) -> None:
        """Count the keys of a topic."""
        topic = self._chance.choice((STEADY, EXPIRING))
        reply = await self._traffic.ask("count", "GET", f"/topics/{topic}/count")
        if reply.status == 200:
            self.counts[topic] = reply.document["count"]

    async def total(self) -> None:
        """Read how many records a key had: never fewer than before, never more than were written."""
        key = self._writers.any_steady()
        before = self._totals[key]
        reply = await self._traffic.ask("view", "GET", f"/views/{TOTALS}/keys/{key}")
        if reply.status != 200:
            return
        self._note_age(f"view {TOTALS}", reply.document)
        rows = reply.document["windows"]
        number = rows[0]["values"]["n"] if rows else 0
        if not before <= number <= self._writers.begun[key]:
            self._traffic.fault(
                f"view of {key}: {number}, after {before}, of {self._writers.begun[key]} written"
            )
        self._totals[key] = max(number, self._totals[key])

    async def window_page(self) -> None:
        """Read the windows of a group: none counts more than was written for it."""
        group = f"group-{self._chance.randrange(GROUPS)}"
        for row in await self.read_windows(group):
            written = self._writers.windows_begun[group, row["start"]]
            if row["values"]["n"] > written:
                self._traffic.fault(f"view of {group}: {row}, of {written} written")

    async def read_windows(self, group: str) -> list[dict[str, Any]]:
        reply = await self._traffic.ask("view", "GET", f"/views/{WINDOWS}/keys/{group}")
        if reply.status != 200:
            return []
        self._note_age(f"view {WINDOWS}", reply.document)
        windows: list[dict[str, Any]] = reply.document["windows"]
        return windows

    def check(self, topic: str, key: str, reply: Reply, waited_for: Position | None = None) -> None:
        """Have the answer to a read of one key judged."""
        if reply.is_of_key:
            self._traffic.note_age(topic, float(reply.headers["keylane-age-ms"]))
            self._judge.note_latest(topic, key.encode(), reply, waited_for=waited_for)
        elif reply.status and reply.status < 500:
            self._traffic.fault(f"{topic}/{key}: {reply}")

    def _note_age(self, name: str, document: Any) -> None:
        if "age_ms" in document:
            self._traffic.note_age(name, document["age_ms"])

    async def _get(self, kind: str, topic: str, key: str, **headers: str) -> Reply:
        return await self._traffic.ask(kind, "GET", f"/topics/{topic}/keys/{key}", **headers)
