"""What one schedule does, drawn from a seed: equal seeds give equal schedules. Pure: nothing runs here."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARDS = 3

EVENTS = {
    # name: how often it is drawn, in parts
    "kill-driver": 12,  # the job's whole process group, or every process it has started
    "kill-worker": 12,  # one of Spark's Python workers, under a burst
    "kill-primary": 12,  # of Redis; comes back as a replica
    "kill-broker": 6,
    "pause-primary": 12,  # SIGSTOP, for a moment or until its replica has taken over
    "pause-broker": 8,
    "pause-driver": 8,
    "lose-checkpoint": 8,  # under the running job
    "lose-writes": 14,  # a replica kept from catching up is promoted
    "zombie": 8,  # a second job takes over while the first is stopped; then the first wakes up
    "empty-redis": 2,
}


@dataclass(frozen=True, slots=True)
class Write:
    """One record. `place`: whose partitioner puts it, or a partition's number; `size` None: a tombstone.

    `time_ms` counts from the schedule's begin. `serial` is unique within the schedule.
    """

    serial: int
    key: int
    size: int | None
    place: str | int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Produce:
    """Records sent in this order; in a transaction, or (None) without."""

    topic: str
    writes: tuple[Write, ...]
    transaction: Literal["commit", "abort"] | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Trouble that begins now, while the following steps go on. What a kind does not need is drawn too."""

    kind: str
    shard: int
    seconds: float
    variant: bool


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing new for a moment."""

    seconds: float


Step = Produce | Event | Pause


@dataclass(frozen=True, slots=True)
class Schedule:
    """All steps of one seed."""

    seed: int
    steps: tuple[Step, ...]

    @property
    def events(self) -> list[str]:
        """The kinds of its events in their order."""
        return [step.kind for step in self.steps if isinstance(step, Event)]

    def key(self, number: int) -> bytes:
        """The bytes of a key: every schedule of a run has keys of its own."""
        return b"%d/%03d" % (self.seed, number)

    @property
    def keys(self) -> dict[str, list[bytes]]:
        """Every key that it writes, by topic."""
        numbers: dict[str, set[int]] = {}
        for step in self.steps:
            if isinstance(step, Produce):
                numbers.setdefault(step.topic, set()).update(write.key for write in step.writes)
        return {topic: [self.key(number) for number in sorted(found)] for topic, found in numbers.items()}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the schedules need to know of a topic. `mixed`: records land in partitions of all kinds."""

    name: str
    partitions: int
    mixed: bool = False


def draw(seed: int, topics: tuple[Shape, ...], focus: str | None = None, *, alone: bool = False) -> Schedule:
    """The schedule of a seed; `focus` names an event that it has first of all, or `alone`."""
    return Schedule(seed, tuple(_Drawing(random.Random(seed), topics).steps(focus, alone=alone)))


class _Drawing:
    def __init__(self, source: random.Random, topics: tuple[Shape, ...]) -> None:
        self._source = source
        self._topics = topics
        self._serial = 0
        self._time_ms = 0
        self._keys = source.choice((8, 40, 120))

    def steps(self, focus: str | None, *, alone: bool) -> Iterator[Step]:
        source = self._source
        kinds = source.choices(list(EVENTS), list(EVENTS.values()), k=source.choice((0, 1, 1, 1, 1, 2, 2, 3)))
        if focus is not None:
            kinds = [focus] if alone else [focus, *kinds[1:]]
        count = source.randint(5, 10)
        at = sorted(source.randrange(1, count) for _ in kinds)
        for number in range(count):
            for place, kind in zip(at, kinds, strict=True):
                if place == number:
                    yield from self._event(kind)
            yield self._produce()
            yield Pause(source.choice((0.0, 0.0, 0.02, 0.1, 0.3)))

    def _event(self, kind: str) -> Iterator[Step]:
        source = self._source
        event = Event(
            kind, source.randrange(SHARDS), round(source.uniform(0.1, 0.6), 2), source.random() < 0.5
        )
        if kind in ("kill-worker", "kill-driver") or source.random() < 0.3:
            yield self._burst()
        yield event
        # What the event is there to spoil must be there: records of every partition, while it lasts.
        for topic in self._topics:
            yield Produce(topic.name, self._writes(topic, 60, (0, 400)))
            yield Pause(source.choice((0.02, 0.1, 0.3)))

    def _produce(self) -> Produce:
        source = self._source
        if source.random() < 0.15:
            return self._burst()
        topic = source.choice(self._topics)
        writes = self._writes(topic, source.choice((1, 5, 30, 150)), source.choice(((0, 40), (0, 3_000))))
        transaction = source.choice((None, None, None, "commit", "commit", "abort"))
        return Produce(topic.name, writes, transaction)

    def _burst(self) -> Produce:
        """More than a chunk holds for one lane: by number of keys, or by bytes, or one key very often."""
        source = self._source
        topic = source.choice(self._topics)
        kind = source.random()
        if kind < 0.3:
            return Produce(topic.name, self._writes(topic, 400, (4_000, 30_000)))
        if kind < 0.6:
            self._keys, before = 2, self._keys
            writes = self._writes(topic, 4_000, (0, 20))
            self._keys = before
            return Produce(topic.name, writes)
        return Produce(topic.name, self._writes(topic, 5_000, (0, 60)), source.choice((None, None, "commit")))

    def _writes(self, topic: Shape, count: int, sizes: tuple[int, int]) -> tuple[Write, ...]:
        return tuple(self._write(topic, sizes) for _ in range(count))

    def _write(self, topic: Shape, sizes: tuple[int, int]) -> Write:
        source = self._source
        self._serial += 1
        # Clocks of several producers: mostly forward, many ties, at times back.
        self._time_ms += (
            source.choice((0, 0, 0, 1, 1, 2)) if source.random() < 0.97 else -source.randint(1, 40)
        )
        self._time_ms = max(0, self._time_ms)
        place: str | int = "murmur2"
        if topic.mixed:
            place = source.choice(
                ("murmur2", "murmur2", "crc32", "fnv1a", source.randrange(topic.partitions))
            )
        size = None if source.random() < 0.2 else source.randint(*sizes)
        return Write(self._serial, source.randrange(self._keys), size, place, self._time_ms)
