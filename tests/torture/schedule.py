"""Draws a schedule from a seed: equal seeds give equal schedules. Nothing is run here."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from keylane import routing
from keylane.model.records import WHOLE_KEY, Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHARDS = 3
_GROUPS = 11
"""So many beginnings have the keys of a schedule: what stands before the `_`."""
_LASTING_MS = 3_600_000
_UNAWARE = 0.2
"""How many records of a mixed topic come from producers that don't know its `partition_by`."""
_DEFAULTS = Options()

EVENTS = {
    # name: relative frequency
    "empty-redis": 3,
    "empty-shard": 4,
    "empty-keylane-shard": 3,
    "lose-shard": 4,  # primary and replica are killed, and come back without their data
    "kill-driver": 12,  # the job's whole process group, or every process it has started
    "kill-worker": 12,  # one of Spark's Python workers, under a burst
    "cut-rows": 8,  # the rows of a task end early, without an error
    "kill-primary": 10,  # of Redis; comes back as a replica
    "kill-two-primaries": 6,
    "kill-broker": 6,
    "pause-primary": 10,  # SIGSTOP, for a moment or until its replica has taken over
    "pause-broker": 6,
    "pause-driver": 8,
    "lose-checkpoint": 8,  # under the running job
    "lose-writes": 12,  # a replica kept from catching up is promoted
    "stale-replica": 6,  # readers reach only a replica that lacks records
    "zombie": 8,  # a second job takes over while the first is stopped; then the first wakes up
    "part-job": 10,  # the job's connections to a primary are cut, or hold what they are given
    "part-readers": 10,  # the same for the readers, and a primary or a replica
    "slow-links": 6,
    "fail-over": 6,  # by hand, with or without what the replica lacks
    "reshard": 6,  # a lane's slot moves to another shard and back
    "flush-functions": 4,
    "out-of-memory": 6,
    "part-kafka": 10,  # the job's connections to a broker are cut, slow, or hold what they are given
    "clock-jump": 6,  # of the job
    "hang-transaction": 8,  # open beside plain records, then committed, aborted or expired
    "recreate-topic": 4,  # a side topic: only events write those
    "grow-topic": 3,
    "lose-log": 4,  # the broker is killed, and the side topic's files are gone when it comes back
    "clean-log": 4,  # Kafka compacts a topic under the running job
    "miss-deletions": 2,  # the job is away until keys and their tombstones are gone from the log
    "grow-compacted": 2,  # deleted keys are in the log of an old partition, and the topic is rebuilt
    "delete-records": 4,  # by DeleteRecords, before or after the job has read them
    "grow-and-forget": 3,  # the first records of a new partition are gone before the job reads any
    "lose-acks": 6,  # of functions and server, whose connections are then cut, at times with a broker killed
    "rotate-password": 4,  # of functions and server, at Kafka and in the secret store one after the other
    "refuse-record": 6,  # by Kafka, for its time or its size, among good ones of every client
    "kill-drain": 6,  # while it writes a batch, or before its messages are deleted
    "freeze-function": 6,  # SIGSTOP while it writes, until its time is over
    "grow-table": 3,  # rows change in their new partitions; a view is added, which reads these first
    "large-values": 3,  # in one lane, by an index in parts
    "switch-layout": 3,  # a generation with other stripes is built while the present one serves
}

DEAL = 25
"""Of so many seeds in a row, each kind of event has one: that of its seat, `seed % DEAL`."""


def _seats() -> tuple[tuple[str, ...], ...]:
    """Deal the kinds to the seats, in an order that is the same for ever; the last seat gets none."""
    kinds = sorted(EVENTS)
    random.Random(DEAL).shuffle(kinds)
    return *(tuple(kinds[seat :: DEAL - 1]) for seat in range(DEAL - 1)), ()


SEATS = _seats()


@dataclass(frozen=True, slots=True)
class Write:
    """One record. `placed_by`: a partitioner, a partition's number, or (WHOLE_KEY) the hash of the whole key.

    `size` None: a tombstone.

    `time_ms` counts from the start of the schedule. `serial` is unique within the schedule.
    """

    serial: int
    key: int
    size: int | None
    placed_by: str | int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Produce:
    """Records sent in this order, in a transaction or (None) without."""

    topic: str
    writes: tuple[Write, ...]
    transaction: Literal["commit", "abort"] | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Trouble that begins now, while the next steps run. Fields that a kind does not need are drawn too."""

    kind: str
    shard: int
    seconds: float
    variant: bool
    choice: int
    """Of four."""


@dataclass(frozen=True, slots=True)
class Pause:
    """No new step for a moment."""

    seconds: float


Step = Produce | Event | Pause


@dataclass(frozen=True, slots=True)
class Schedule:
    """All steps of one seed. `run`: which repetition this is; each has keys of its own."""

    seed: int
    steps: tuple[Step, ...]
    run: int = 0

    @property
    def prefix(self) -> bytes:
        """What all its keys begin with: schedules share no keys.

        No byte of a key needs percent-encoding, so the server reads it on its fast path.
        """
        return b"%d.%d-" % (self.seed, self.run) if self.run else b"%d-" % self.seed

    @property
    def events(self) -> list[str]:
        """The kinds of its events in their order."""
        return [step.kind for step in self.steps if isinstance(step, Event)]

    def key(self, number: int) -> bytes:
        """The bytes of a key, some of which share what stands before the `_`."""
        return b"%b%d_%03d" % (self.prefix, number % _GROUPS, number)

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
    """A topic. `mixed`: its records are placed by several partitioners."""

    name: str
    partitions: int
    mixed: bool = False
    stripes: int = 1
    options: Options = _DEFAULTS
    partition_by: str = WHOLE_KEY

    def partition_of(self, key: bytes, partitioner: str = "murmur2") -> int:
        """The partition to which a producer writes a key that knows `partition_by`."""
        return routing.partition_for(
            routing.partition_key(key, self.partition_by), self.partitions, partitioner
        )

    @property
    def lanes(self) -> tuple[int, int, str]:
        """What determines the lane of a key. Topics for which it is equal can be joined."""
        return self.partitions, self.stripes, self.partition_by

    @property
    def is_forgetful(self) -> bool:
        """Whether tombstones are soon forgotten, so that older strays may bring their keys back."""
        return self.mixed and self.options.marker_ms < _LASTING_MS


def draw(
    seed: int, topics: tuple[Shape, ...], focus: str | None = None, *, only: Sequence[str] = ()
) -> Schedule:
    """The schedule of a seed; `focus`: its first event; `only`: all its events, in their order."""
    return Schedule(seed, tuple(_drawing(seed, topics).steps(focus, only)))


def kinds_of(seed: int) -> list[str]:
    """The kinds of a schedule's events, without what it writes."""
    return _drawing(seed, ()).kinds()


def _drawing(seed: int, topics: tuple[Shape, ...]) -> _Drawing:
    return _Drawing(random.Random(seed), topics, SEATS[seed % DEAL])


class _Drawing:
    def __init__(self, source: random.Random, topics: tuple[Shape, ...], dealt: tuple[str, ...]) -> None:
        self._source = source
        self._topics = topics
        self._dealt = dealt
        self._serial = 0
        self._time_ms = self._newest_ms = 0
        self._keys = source.choice((8, 40, 120))

    def kinds(self) -> list[str]:
        """The seat's kinds of events, which are the same every DEAL seeds, and what they meet this time."""
        source = self._source
        more = source.choices(list(EVENTS), list(EVENTS.values()), k=source.choice((0, 0, 0, 0, 1, 1, 2)))
        kinds = [*self._dealt, *more]
        source.shuffle(kinds)
        return kinds

    def steps(self, focus: str | None, only: Sequence[str]) -> Iterator[Step]:
        source = self._source
        kinds = self.kinds()
        if focus is not None:
            kinds = [focus, *kinds[1:]]
        if only:
            kinds = list(only)
        count = source.randint(5, 10)
        at = sorted(source.randrange(1, count) for _ in kinds)
        for number in range(count):
            for step, kind in zip(at, kinds, strict=True):
                if step == number:
                    yield from self._event(kind)
            yield self._produce()
            yield Pause(source.choice((0.0, 0.0, 0.02, 0.1, 0.3)))

    def _event(self, kind: str) -> Iterator[Step]:
        source = self._source
        event = Event(
            kind,
            source.randrange(SHARDS),
            round(source.uniform(0.1, 0.6), 2),
            source.random() < 0.5,
            source.randrange(4),
        )
        if kind in ("kill-worker", "kill-driver") or source.random() < 0.3:
            yield self._burst()
        yield event
        if kind == "cut-rows":
            yield Produce(self._topics[0].name, self._writes(self._topics[0], 6_000, (0, 60)))
        # Give the event something to spoil: records of every topic while it lasts.
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
        """More than one chunk for a lane: many bytes, few keys very often, or many records."""
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
        # Chunks without a tombstone take another way into Redis.
        tombstones = 0.0 if self._source.random() < 1 / 3 else 0.2
        return tuple(self._write(topic, sizes, tombstones) for _ in range(count))

    def _write(self, topic: Shape, sizes: tuple[int, int], tombstones: float) -> Write:
        source = self._source
        self._serial += 1
        # The clocks of several producers: mostly forward, many ties, sometimes back.
        self._time_ms += (
            source.choice((0, 0, 0, 1, 1, 2)) if source.random() < 0.97 else -source.randint(1, 40)
        )
        self._time_ms = max(0, self._time_ms)
        self._newest_ms = max(self._newest_ms, self._time_ms)
        placed_by: str | int = "murmur2"
        if topic.mixed:
            placed_by = source.choice(
                ("murmur2", "murmur2", "crc32", "fnv1a", source.randrange(topic.partitions))
            )
            if topic.partition_by != WHOLE_KEY and source.random() < _UNAWARE:
                placed_by = WHOLE_KEY
        size = None if source.random() < tombstones else source.randint(*sizes)
        # A tombstone that is forgotten takes its order with it: where times go back, the result would depend
        # on when its marker expired.
        time_ms = self._newest_ms if topic.is_forgetful else self._time_ms
        return Write(self._serial, source.randrange(self._keys), size, placed_by, time_ms)
