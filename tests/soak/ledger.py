"""What the load has written, and whether what a read returns can be true.

Times are wall-clock milliseconds of this machine, on which all servers run. Each key's records are in its own
partition, so offsets are the order of a key's records.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.torture.acknowledged import Acknowledged

KEPT_OF_A_KEY = 50
"""Records of a key that the ledger remembers: a read is at most some seconds behind."""
EXPIRY_SLACK_MS = 1_000


@dataclass(slots=True)
class Write:
    """A write that has begun. `number`: of its value; None: it is a tombstone."""

    topic: str
    key: str
    number: int | None
    begun_ms: float


class Ack(NamedTuple):
    """A write that Kafka has, as its answer says."""

    offset: int
    number: int | None
    begun_ms: float
    at_ms: float


class Seen(NamedTuple):
    """What a read returned for a key. `offset`: None, it is absent; `number`: None, its value was not sent.

    `is_own`: the watermark is that of the key's lane alone, not the least one of several lanes.
    """

    partition: int
    next_offset: int
    offset: int | None
    number: int | None
    sent_ms: float
    received_ms: float
    age_ms: float
    is_own: bool = True


@dataclass(slots=True)
class KeyBook:
    """One key: its newest acknowledged records, by offset, and how many writes have no answer yet."""

    acks: list[Ack] = field(default_factory=list)
    open_sets: int = 0
    open_deletes: int = 0

    def newest_below(self, next_offset: int) -> Ack | None:
        """The newest acknowledged record below an offset."""
        index = bisect.bisect_left(self.acks, next_offset, key=lambda ack: ack.offset)
        return self.acks[index - 1] if index else None


class Ledger:
    """All writes of the load. `ttl_ms`: of the topics whose records expire."""

    def __init__(self, ttl_ms: dict[str, float]) -> None:
        self._ttl_ms = ttl_ms
        self.keys: dict[str, dict[str, KeyBook]] = {}
        self.acknowledged: Counter[str] = Counter()
        self.uncertain = 0
        self._times = Acknowledged()

    def begin(self, write: Write) -> None:
        """Note a write before it is sent."""
        book = self.keys.setdefault(write.topic, {}).setdefault(write.key, KeyBook())
        if write.number is None:
            book.open_deletes += 1
        else:
            book.open_sets += 1

    def acknowledge(self, write: Write, partition: int, offset: int, at_ms: float) -> None:
        """Note the answer of a write. One without an answer stays open: it may be in Kafka or not."""
        book = self.keys[write.topic][write.key]
        if write.number is None:
            book.open_deletes -= 1
        else:
            book.open_sets -= 1
        self.acknowledged[write.topic] += 1
        bisect.insort(book.acks, Ack(offset, write.number, write.begun_ms, at_ms))
        del book.acks[:-KEPT_OF_A_KEY]
        self._times.note(at_ms, [(write.topic, partition, offset)])

    def ends(self) -> dict[tuple[str, int], int]:
        """The highest acknowledged offset of each partition."""
        return {source: below - 1 for source, below in self._times.ends().items()}

    def forget(self, topic: str, key: str) -> None:
        """Forget a key that nobody will read again."""
        self.keys[topic].pop(key, None)

    def check(self, topic: str, key: str, seen: Seen) -> str | None:
        """Return what is wrong with a read, or None."""
        fault = self._check_age(topic, seen) or self._check_record(topic, key, seen)
        return fault and f"{topic}/{key}: {fault} ({seen})"

    def _check_age(self, topic: str, seen: Seen) -> str | None:
        due = self._times.next_offset(topic, seen.partition, seen.sent_ms - seen.age_ms)
        if seen.next_offset < due:
            return f"the age is not true: offset {due - 1} was acknowledged before"
        return None

    def _check_record(self, topic: str, key: str, seen: Seen) -> str | None:
        book = self.keys.get(topic, {}).get(key, KeyBook())
        newest = book.newest_below(seen.next_offset)
        if seen.offset is None:
            return self._check_absence(topic, book, newest, seen)
        if seen.is_own and seen.offset >= seen.next_offset:
            return "a record beyond its watermark"
        if newest is None or seen.offset > newest.offset:
            return None  # its write is not answered yet
        if seen.offset < newest.offset:
            return f"an older record than {newest}"
        if newest.number is None or seen.number not in (None, newest.number):
            return f"another value than {newest}"
        gone_ms = newest.at_ms + self._ttl_ms.get(topic, float("inf")) + EXPIRY_SLACK_MS
        return f"a record that has expired, {newest}" if seen.sent_ms > gone_ms else None

    def _check_absence(self, topic: str, book: KeyBook, newest: Ack | None, seen: Seen) -> str | None:
        if newest is None or newest.number is None or book.open_deletes:
            return None
        if any(ack.number is None for ack in book.acks if ack.offset > newest.offset) and not seen.is_own:
            return None
        ttl_ms = self._ttl_ms.get(topic)
        if ttl_ms is not None and seen.received_ms >= newest.begun_ms + ttl_ms:
            return None
        return f"absent, though there is {newest}"


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
