"""One fake for each port, and a clock that tests move. They record what was asked of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keylane import routing
from keylane.errors import (
    KeylaneError,
    LogUnavailable,
    ProduceFailed,
    StateUnavailable,
    TooLarge,
    UnknownPartition,
    UnknownTopic,
)
from keylane.model import NewRecord, Position
from keylane.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.ports import Call, Deadline, Outcome


class FakeTime:
    """A clock that stands still but for its pauses."""

    def __init__(self, now_ms: int = 1_357_034_400_000) -> None:
        self.now_ms = now_ms
        self.seconds = 1_000.0
        self.pauses: list[float] = []
        self.on_pause: Callable[[], None] = lambda: None

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.move(seconds)
        self.on_pause()

    def move(self, seconds: float) -> None:
        self.seconds += seconds
        self.now_ms += round(seconds * 1000)

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_ms, lambda: self.seconds, self.pause)


@dataclass
class FakeState:
    """The port State over dicts; it refuses keys of another slot than the one named, as a cluster does.

    `moving` slots are read key by key, with `between` called after the first.
    """

    entries: dict[bytes, bytes] = field(default_factory=dict)
    reads: list[list[bytes]] = field(default_factory=list)
    away: bool = False
    moving: set[int] = field(default_factory=set)
    between: Callable[[], None] = lambda: None
    sorted_sets: dict[bytes, dict[bytes, float]] = field(default_factory=dict)
    hashes: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    runs: list[list[tuple[bytes, ...]]] = field(default_factory=list)
    limit_bytes: int = 32 * 1024 * 1024

    def read(self, slot: int, keys: Sequence[bytes], deadline: Deadline) -> list[bytes | None]:
        self.reads.append(list(keys))
        assert {routing.key_slot(key) for key in keys} == {slot}
        if self.away or not deadline.remaining_s:
            raise StateUnavailable("Redis did not answer in time")
        if slot not in self.moving:
            return [self.entries.get(key) for key in keys]
        last = self.entries.get(keys[-1])
        self.between()
        return [*(self.entries.get(key) for key in keys[:-1]), last]

    def run(self, calls: Sequence[Call], deadline: Deadline) -> list[Any]:
        self.runs.append([call.words for call in calls])
        if self.away or not deadline.remaining_s or any(c.atomic and c.slot in self.moving for c in calls):
            raise StateUnavailable("Redis did not answer in time")
        replies = [self._run(call.slot, *call.words) for call in calls]
        size_bytes = sum(map(_size, replies))
        if size_bytes > self.limit_bytes:
            raise TooLarge("answer", size_bytes, self.limit_bytes)
        return replies

    def _run(self, slot: int, name: bytes, *words: bytes) -> Any:
        keys = words if name == b"MGET" else words[:1]
        assert {routing.key_slot(key) for key in keys} == {slot}
        if name == b"MGET":
            return [self.entries.get(key) for key in keys]
        commands: dict[bytes, Callable[..., Any]] = {
            b"GET": self.entries.get,
            b"GETRANGE": lambda key, first, last: self.entries.get(key, b"")[int(first) : int(last) + 1],
            b"HGETALL": lambda key: [word for pair in self.hashes.get(key, {}).items() for word in pair],
            b"ZCARD": lambda key: len(self.sorted_sets.get(key, {})),
            b"ZRANGE": lambda key, first, last: self._ranked(key)[int(first) : int(last) + 1],
            b"ZRANGEBYLEX": self._by_lex,
            b"ZREVRANGEBYSCORE": self._by_score,
        }
        return commands[name](*words)

    def _ranked(self, key: bytes) -> list[bytes]:
        scores = self.sorted_sets.get(key, {})
        return sorted(scores, key=lambda member: (scores[member], member))

    def _by_lex(self, key: bytes, low: bytes, high: bytes, *limit: bytes) -> list[bytes]:
        def is_in(member: bytes) -> bool:
            above = low == b"-" or member > low[1:] or (low[:1] == b"[" and member == low[1:])
            below = high == b"+" or member < high[1:] or (high[:1] == b"[" and member == high[1:])
            return above and below

        found = [member for member in self._ranked(key) if is_in(member)]
        return found[int(limit[1]) : int(limit[1]) + int(limit[2])]

    def _by_score(self, key: bytes, high: bytes, low: bytes, *limit: bytes) -> list[bytes]:
        def is_in(score: float) -> bool:
            above = score > float(low[1:]) if low[:1] == b"(" else score >= float(low)
            below = score < float(high[1:]) if high[:1] == b"(" else score <= float(high)
            return above and below

        scores = self.sorted_sets.get(key, {})
        found = [member for member in reversed(self._ranked(key)) if is_in(scores[member])]
        return found[int(limit[1]) : int(limit[1]) + int(limit[2])] if limit else found

    def hosts(self, slots: Sequence[int], deadline: Deadline) -> list[str]:
        if self.away or not deadline.remaining_s:
            raise StateUnavailable("no node of the Redis Cluster tells its map")
        return [f"redis-{(slot * 3 + 2) // routing.SLOTS}:7000" for slot in slots]


def _size(reply: Any) -> int:
    if isinstance(reply, list):
        return sum(map(_size, reply))
    return len(reply) if isinstance(reply, bytes) else 0


@dataclass
class FakeLog:
    """The port Log over lists: one topic's partitions each; `refusals`: what all records of a topic get."""

    topics: dict[str, list[list[tuple[bytes | None, bytes | None]]]] = field(default_factory=dict)
    sent: list[NewRecord] = field(default_factory=list)
    refusals: dict[str, KeylaneError] = field(default_factory=dict)
    partition_by: dict[str, str] = field(default_factory=dict)
    limit_bytes: int = 1_179_648
    away: bool = False

    def create(self, topic: str, partition_count: int) -> None:
        self.topics[topic] = [[] for _ in range(partition_count)]

    def append(self, topic: str, key: bytes, value: bytes | None, deadline: Deadline) -> Position:
        return self._write(NewRecord(topic, key, value), deadline)

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[Outcome]:
        self.sent += records
        return [self._fate(record, deadline) for record in records]

    def _fate(self, record: NewRecord, deadline: Deadline) -> Outcome:
        try:
            return self._write(record, deadline)
        except KeylaneError as error:
            return error

    def _write(self, record: NewRecord, deadline: Deadline) -> Position:
        if self.away or not deadline.remaining_s:
            raise LogUnavailable("Kafka did not acknowledge the record in time")
        if record.topic in self.refusals:
            raise self.refusals[record.topic]
        if record.topic not in self.topics:
            raise UnknownTopic(record.topic)
        if len(record.key or b"") + len(record.value or b"") > self.limit_bytes:
            raise ProduceFailed("MESSAGE_TOO_LARGE", "Kafka refused the record", retriable=False)
        partitions = self.topics[record.topic]
        partition = record.partition
        if partition is None:
            # A record without a key goes anywhere: here where the empty one does.
            part = routing.partition_key(record.key or b"", self.partition_by.get(record.topic, "key"))
            partition = routing.partition_for(part, len(partitions))
        if partition >= len(partitions):
            raise UnknownPartition(record.topic, partition)
        partitions[partition].append((record.key, record.value))
        return Position(partition, len(partitions[partition]) - 1)
