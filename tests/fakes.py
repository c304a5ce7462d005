"""One fake for each port, and a clock that tests move. They record what was asked of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keylane import routing
from keylane.errors import LogUnavailable, ProduceFailed, StateUnavailable, UnknownTopic
from keylane.model import Position
from keylane.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.ports import Deadline


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
    """The port State over a dict; it refuses keys of another slot than the one named, as a cluster does.

    `moving` slots are read key by key, with `between` called after the first.
    """

    entries: dict[bytes, bytes] = field(default_factory=dict)
    reads: list[list[bytes]] = field(default_factory=list)
    away: bool = False
    moving: set[int] = field(default_factory=set)
    between: Callable[[], None] = lambda: None

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


@dataclass
class FakeLog:
    """The port Log over lists: one topic's partitions each."""

    topics: dict[str, list[list[tuple[bytes, bytes | None]]]] = field(default_factory=dict)
    limit_bytes: int = 1_179_648
    away: bool = False

    def create(self, topic: str, partition_count: int) -> None:
        self.topics[topic] = [[] for _ in range(partition_count)]

    def append(self, topic: str, key: bytes, value: bytes | None, deadline: Deadline) -> Position:
        if self.away or not deadline.remaining_s:
            raise LogUnavailable("Kafka did not acknowledge the record in time")
        if topic not in self.topics:
            raise UnknownTopic(topic)
        if len(key) + len(value or b"") > self.limit_bytes:
            raise ProduceFailed("MESSAGE_TOO_LARGE", "Kafka refused the record", retriable=False)
        partitions = self.topics[topic]
        partition = routing.partition_for(key, len(partitions))
        partitions[partition].append((key, value))
        return Position(partition, len(partitions[partition]) - 1)
