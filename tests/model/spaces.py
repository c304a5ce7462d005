"""The spaces that the model visits: where the steps begin, and which steps there are.

It leaves out:

- more than three keys and a few records, stripes, histories, `insert_once`, partitioners, and views;
- threads: a batch, a beat and a read come one after the other, and a switch has only the next generation's
  reading beside it;
- replicas that answer readers, parked lanes, migrating slots beyond a refused call, full nodes, and clocks
  that differ: the torture and the integration tests have them;
- Kafka's leaders and their epochs, open transactions, topics that are deleted or created again;
- the loss of a topic's records (`{keylane}`) or of its stray totals, which always lack what there is;
- a first stray that retention removes before anything has read one, a record that compaction has left in
  another partition, and readers that keep an older layout over a failover.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.model.finds import FIELDS, INDEXES
from tests.model.log import TOMBSTONES_LAST_MS, Kind

from keylane_spark.config.topics import TopicConfig

if TYPE_CHECKING:
    from tests.model.world import World

SET, DELETE = Kind(0, is_set=True), Kind(0, is_set=False)
STRAY, STRAY_DELETE = Kind(1, is_set=True), Kind(1, is_set=False)
MOVED, MOVED_DELETE = Kind(2, is_set=True), Kind(2, is_set=False)
OTHER_STRAY, OTHER = Kind(0, is_set=True, key=1), Kind(0, is_set=True, key=2)
BESIDE = Kind(1, is_set=True, key=1)
KINDS = (SET, DELETE, STRAY, STRAY_DELETE)

RUNNING, OPENED, DOWN, EXPIRED = "running", "opened", "down", "expired"
GROWN, BUILDING, BUILT = "grown", "building", "built"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far to look: steps after a start, and faults and days among them."""

    steps: int
    faults: int


@dataclass(frozen=True, slots=True)
class Start:
    """Where steps begin: a log of which the job has not read the last `unread` records.

    `phase`: RUNNING; OPENED, the job has opened its lanes, and has not beaten yet; DOWN, no job runs;
    EXPIRED, a day has gone by; GROWN, the topic has another partition, and `later` in its log, which the job
    has not noticed; BUILDING, it has opened its lanes since, and builds the next generation; BUILT, that has
    everything. `last`: what is written after that. `further`: steps beyond the bounds that it is followed.
    """

    kinds: tuple[Kind, ...]
    unread: int = 0
    phase: str = RUNNING
    later: tuple[Kind, ...] = ()
    last: tuple[Kind, ...] = ()
    further: int = 0

    def __str__(self) -> str:
        text = "; ".join(map(str, self.kinds)) or "nothing"
        if self.unread:
            text += f", {'not' if self.unread == len(self.kinds) else f'the last {self.unread} not'} read yet"
        if self.later:
            text += f"; the topic grows; {'; '.join(map(str, self.later))}"
        if self.phase != RUNNING:
            text += f" ({self.phase})"
        return f"{text}; {'; '.join(map(str, self.last))}" if self.last else text

    def arrange(self, world: World) -> None:
        """Bring the world there. Raises Broken."""
        read = len(self.kinds) - self.unread
        for kind in self.kinds[:read]:
            world.write(kind)
        world.open()
        world.settle()
        for kind in self.kinds[read:]:
            world.write(kind)
        self._begin_phase(world)
        for kind in self.last:
            world.write(kind)

    def _begin_phase(self, world: World) -> None:
        if self.phase == DOWN:
            world.query = None
        if self.phase == EXPIRED:
            world.expire()
        if self.phase in (GROWN, BUILDING, BUILT):
            world.grow()
            for kind in self.later:
                world.write(kind)
        if self.phase in (OPENED, BUILDING, BUILT):
            world.open()
            world.zombie = None
        if self.phase == BUILT:
            for building in (False, True):
                world.read_on(building=building)


@dataclass(frozen=True, slots=True)
class Space:
    """A name, what is in the gate, what is visited by default, and what may happen beside the usual faults.

    `topic`: its options. `retention`: Kafka removes a partition's oldest records. `compaction`: it removes
    what compaction does. `crashes`: a job may crash while it opens its lanes, switches and sweeps.
    """

    name: str
    gate: Bounds
    default: Bounds
    starts: tuple[Start, ...]
    in_gate: tuple[Start, ...]
    topic: TopicConfig = field(default_factory=TopicConfig)
    retention: bool = False
    compaction: bool = False
    crashes: bool = False

    def enter(self, world: World) -> None:
        """Set the world up for this space."""
        world.configure(self.topic)
        world.compacted_after = TOMBSTONES_LAST_MS if self.compaction else float("inf")


def _logs(count: int) -> tuple[Start, ...]:
    """All logs of at most so many records, read to their ends, or but for the last record."""
    logs = itertools.chain.from_iterable(itertools.product(KINDS, repeat=n) for n in range(1, count + 1))
    return tuple(
        Start(kinds, unread) for kinds, unread in itertools.product(logs, (0, 1)) if unread < len(kinds)
    )


_CHUNKS = (
    # The first chunk of a batch of two is a transaction; before the first beat all are.
    Start((OTHER, SET), 2),
    Start((OTHER, SET), 2, OPENED),
    # An older stray is read after what replaces it.
    Start((STRAY, DELETE), 2),
    # Partition 0 is read again for another lane, and its own lane has its records already.
    Start((SET, SET, OTHER_STRAY)),
)
_GROWING = tuple(
    Start(kinds, 0, phase, later, last)
    for phase, last in (
        (GROWN, ()),
        (BUILDING, ()),
        (BUILT, (MOVED,)),
        (BUILT, (MOVED_DELETE,)),
        (BUILT, (SET,)),
    )
    for kinds in ((SET,), (SET, DELETE), (SET, STRAY))
    for later in ((MOVED,), (MOVED_DELETE,), (SET,))
)
_COMPACTED = tuple(
    Start(kinds, unread, phase)
    for kinds in ((SET, DELETE), (DELETE, SET), (SET, STRAY), (SET, STRAY_DELETE), (STRAY, DELETE))
    for unread, phase in ((0, RUNNING), (1, RUNNING), (1, DOWN))
)

_PAIRS = ((SET,), (STRAY,), (SET, OTHER), (SET, STRAY), (OTHER_STRAY, OTHER))

SPACES = (
    # Batches of one record after the other, of which all but the last go as transactions.
    Space(
        *("plain", Bounds(2, 1), Bounds(4, 1)),
        (*_logs(2), *_CHUNKS),
        # A chunk that is applied twice shows in the third step.
        (
            *(replace(start, further=1) for start in (*_logs(1), *_CHUNKS)),
            *(start for start in _logs(2) if len(start.kinds) > 1),
        ),
    ),
    Space(
        *("index", Bounds(2, 1), Bounds(3, 1)),
        _logs(2),
        tuple(Start(kinds, 1) for kinds in ((SET, SET), (SET, DELETE), (STRAY, DELETE), (SET, STRAY_DELETE))),
        topic=TopicConfig(index=True, index_parts=2),
    ),
    Space(
        *("fields", Bounds(2, 1), Bounds(3, 1)),
        (*_logs(2), *_GROWING),
        (
            # Small chunks of two lanes are encoded together.
            Start((BESIDE, SET, SET), 1),
            Start((STRAY, DELETE), 1),
            Start((SET, OTHER, OTHER_STRAY), 1),
            Start((SET, STRAY), 0, BUILT, (MOVED,), (SET,)),
        ),
        topic=TopicConfig(index_parts=2, fields=FIELDS, indexes=INDEXES),
    ),
    # The same of values that are compressed: the functions see envelopes of their own version.
    Space(
        *("compressed", Bounds(2, 1), Bounds(3, 1)),
        (*_logs(2), *_GROWING),
        (Start((STRAY, DELETE), 1), Start((SET, OTHER), 1)),
        topic=TopicConfig(index_parts=2, fields=FIELDS, indexes=INDEXES, compression="zstd"),
    ),
    Space(
        *("expiry", Bounds(2, 1), Bounds(3, 1)),
        tuple(Start(kinds, 0, EXPIRED, last=(last,)) for kinds in _PAIRS for last in KINDS),
        (
            Start((SET, OTHER), 0, EXPIRED, last=(SET,)),
            Start((SET,), 0, EXPIRED, last=(DELETE,)),
            Start((STRAY,), 0, EXPIRED, last=(SET,)),
            Start((SET, OTHER_STRAY), 0, EXPIRED, last=(OTHER_STRAY, STRAY)),
        ),
        # The model's records are from 2023.
        topic=TopicConfig(ttl="3650d", fields=FIELDS, indexes=INDEXES),
    ),
    Space(
        *("retention", Bounds(2, 2), Bounds(2, 2)),
        _logs(2),
        (
            *(Start((STRAY, STRAY), 1), Start((SET, STRAY), 1), Start((STRAY, SET), 1), Start((SET, SET), 1)),
            # What was read is removed, and the lane that has it is emptied.
            Start((STRAY, SET), 0),
        ),
        retention=True,
    ),
    Space(
        *("compaction", Bounds(3, 1), Bounds(4, 1)),
        _COMPACTED,
        (Start((SET, DELETE), 1, DOWN), Start((SET, DELETE), 1), Start((SET, STRAY_DELETE), 1, DOWN)),
        compaction=True,
        crashes=True,
    ),
    Space(
        *("growth", Bounds(2, 1), Bounds(2, 1)),
        _GROWING,
        (
            Start((SET,), 0, BUILT, (MOVED,), (MOVED,)),
            Start((SET, STRAY), 0, BUILT, (), (SET,)),
            Start((SET,), 0, BUILDING, (MOVED_DELETE,)),
        ),
        crashes=True,
    ),
)


def space_named(name: str) -> Space:
    return next(space for space in SPACES if space.name == name)
