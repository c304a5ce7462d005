"""The model's world: a small log, a real Redis, and the job's own code between them.

Only Spark and Kafka are simulated. What opens lanes, folds, routes, sends, notes strays, proves completeness,
beats, builds the next generation, switches to it and removes the old one is the job's code, and the server
side is the library in Redis. Readers are the application's code over what Redis holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from tests.model import promises
from tests.model.connections import CRASH, Fault, SharedCluster, tag_of
from tests.model.finds import Finds
from tests.model.fingerprint import Packed, pack, unpack
from tests.model.job import Broken, Jobs
from tests.model.log import TOMBSTONES_LAST_MS, TOPIC, Kafka
from tests.model.shards import EXPIRY, FAILOVER, HOUR, Inspector, kind_of
from tests.support import lanes as t

from keylane.model.records import Layout
from keylane.ports import Clock
from keylane.state import codec, redis_keys
from keylane_spark.config.topics import TopicConfig
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.topic_record import TopicRecord

if TYPE_CHECKING:
    from tests.model.connections import Late
    from tests.model.job import Ends, Job
    from tests.model.shards import Contents, Keys

    from keylane.model.records import Watermark
    from keylane_spark.stream.topic_query import TopicQuery

_OF_KAFKA = tuple(each.name for each in fields(Kafka))
_ROUNDS = 12
"""So often the job tries to settle."""


@dataclass(slots=True)
class Snapshot:
    """Everything that a step may change."""

    keys: Keys
    calls: dict[bytes, tuple[bytes, ...]]
    late: Late | None
    kafka: tuple[Any, ...]
    job: Packed
    zombie: Packed
    seen: promises.Seen
    changed: int


@dataclass
class World(Kafka):
    """One topic. Its steps are methods that return whether they did something.

    `job`: the process that runs; `zombie`: one that was replaced, and may wake up. `seen`: what readers know.
    `changed`: when a batch was written last, or a lane lost calls.
    """

    nodes: str = ""
    topic: TopicConfig = field(default_factory=TopicConfig)
    job: Job | None = None
    zombie: Job | None = None
    seen: promises.Seen = promises.NOTHING_SEEN
    changed: int = 0
    finds: Finds = field(default_factory=Finds)
    _keys: Keys | None = None
    _contents: Contents = field(default_factory=dict)

    def __enter__(self) -> Self:
        settings = t.settings(self.nodes)
        self.cluster = SharedCluster(settings)
        self.inspector = Inspector(settings, self.cluster)
        self._empty = self.inspector.save()
        clock = Clock(now_ms=lambda: self.now, pause_s=lambda _: None, await_s=lambda _: None)
        self.jobs = Jobs(self, settings, self.cluster, clock)
        self.jobs.__enter__()
        self.context = self.jobs.context
        self.configure(self.topic)
        return self

    def __exit__(self, *_: object) -> None:
        self.jobs.__exit__()
        self.inspector.restore(self._empty)
        self.inspector.close()
        self.cluster.close()

    def configure(self, topic: TopicConfig) -> None:
        self.context.config.topics[TOPIC] = self.topic = topic
        self.layout = Layout(TOPIC, self.partition_count, options=topic.options)

    # What runs.

    @property
    def query(self) -> Any:
        """The query that serves; set it to None, and no job runs."""
        return self.job.query if self.job else None

    @query.setter
    def query(self, _: None) -> None:
        self.job = None

    # Steps of the job.

    def open(self, crash_at: int | None = None) -> bool:
        """A process of the job starts. The one before may wake up later."""
        if self.job and self.job.serving:
            self.zombie = self.job
        return self._open(self.jobs.start(), crash_at)

    def reopen(self, crash_at: int | None = None) -> bool:
        """The process that runs opens its lanes again."""
        return self._open(self._running, crash_at)

    def _open(self, job: Job, crash_at: int | None) -> bool:
        self.now += 1
        self._disturb(CRASH, crash_at)
        self.job = job if self.jobs.open(job) else None
        return self._was_met(crash_at)

    def read(self, partition: int, *, building: bool = False) -> bool:
        """The job reads one record of a partition."""
        query = self._query(building=building)
        return self._advance(query, self._ends_after(query, partition, 1))

    def read_all(self, partition: int, kind: str, at: int) -> bool:
        """The job reads a partition to its end, and a fault meets what it sends."""
        self._disturb(kind, at)
        self._advance(self.query, self._ends_after(self.query, partition, len(self.log)))
        return self._was_met(at)

    def beat(self, *, building: bool = False) -> bool:
        """The job's heartbeat."""
        self.now += 1
        self._keep(self.jobs.beat(self._running, self._query(building=building)))
        return True

    def switch(self, crash_at: int | None = None) -> bool:
        """Readers are switched to the generation that was built."""
        self.now += 1
        self._disturb(CRASH, crash_at)
        self._keep(self.jobs.switch(self._running, self._read_on))
        return self._was_met(crash_at)

    def _read_on(self, building: TopicQuery) -> bool:
        """What runs beside a switch."""
        self.jobs.write(building, building.positions | self._log_ends(building))
        self.now += 1
        self.jobs.beat_once(building)
        return False

    def sweep(self, crash_at: int | None = None) -> bool:
        """What is not used any more is removed."""
        self.now += 1
        self._disturb(CRASH, crash_at)
        self._keep(self.jobs.sweep(self._running))
        return self._was_met(crash_at)

    def _disturb(self, kind: str, at: int | None) -> None:
        self.cluster.fault = None if at is None else Fault(kind, at)

    def _was_met(self, at: int | None) -> bool:
        """Whether a fault that was planned has met something."""
        fault, self.cluster.fault = self.cluster.fault, None
        return at is None or fault is None

    def _advance(self, query: TopicQuery, ends: Ends) -> bool:
        self.now += 1
        self.changed = self.now
        self._keep(self.jobs.read(self._running, query, ends))
        return True

    def _keep(self, goes_on: bool) -> None:
        if not goes_on:
            self.job = None

    @property
    def _running(self) -> Job:
        assert self.job is not None
        return self.job

    def _query(self, *, building: bool) -> TopicQuery:
        query = self._running.building if building else self._running.query
        assert query is not None
        return query

    def _ends_after(self, query: TopicQuery, partition: int, count: int) -> Ends:
        positions, own = query.positions, (TOPIC, partition)
        return positions | {own: max(positions[own], min(positions[own] + count, self.end(partition)))}

    def _log_ends(self, query: TopicQuery) -> Ends:
        return {place: self.end(place[1]) for place in query.positions}

    # Steps of others.

    def wake(self, partition: int, *, over_new: bool = False) -> bool:
        """A job that was replaced reads a partition to its end, as if it were still the writer.

        `over_new`: its connections broke while it slept.
        """
        query = self.zombie.query if self.zombie else None
        assert self.zombie is not None
        assert query is not None
        if over_new:
            query._cluster.close()
        self.now += 1
        self.changed = self.now
        with promises.old_writer(self, self.zombie.epoch):
            goes_on = self.jobs.read(self.zombie, query, self._ends_after(query, partition, len(self.log)))
        if not goes_on or self.zombie.serving is None:
            self.zombie = None
        return True

    def wake_and_switch(self) -> bool:
        """A job that was replaced switches readers, as if it were still the writer."""
        zombie = self.zombie
        if zombie is None or zombie.building is None or zombie.query is None:
            return False
        self.now += 1
        with promises.old_writer(self, zombie.epoch):
            self.jobs.switch(zombie, lambda _: True)
        self.zombie = None
        return True

    def arrive(self) -> bool:
        """What was sent over a connection that broke arrives."""
        late = self.cluster.late
        if late is None:
            return False
        self.now += 1
        self.changed = self.now
        with promises.old_writer(self, late.epoch):
            self.cluster.arrive()
        return True

    def expire(self) -> bool:
        """A day goes by: markers of tombstones expire, and records do. No failover takes that back."""
        self.now += 1
        self._note_all(EXPIRY)
        if self.topic.ttl is not None:
            self.expired = len(self.log)
            # A record that is read again is there again: only Redis knows that time has gone by.
            self.seen = self.seen._replace(shown=())
        return self.inspector.expire(self.tags)

    def clean(self) -> bool:
        """An hour goes by, after which compaction removes tombstones. A job that runs beats meanwhile."""
        self.now += TOMBSTONES_LAST_MS
        if self.query is not None:
            self.beat()
        self._note_all(HOUR)
        return self.compact()

    def _note_all(self, what: bytes) -> None:
        self.cluster.calls = {tag: (*self.cluster.calls.get(tag, ()), what) for tag in self.tags}

    def lose(self, tag: bytes, count: int | None) -> bool:
        """A failover of one shard takes back its last calls; None: all, the shard comes back empty."""
        self.now += 1
        calls = self.cluster.calls.get(tag, ())
        kept = () if count is None else (*calls[:-count], FAILOVER)
        self.changed = self.now
        # The watermarks of what was lost go back with it, and so may what sends readers to a newer layout.
        # A lane may stand again where it was before the topic's first stray was read.
        self.seen = promises.NOTHING_SEEN
        self.inspector.lose(tag, kept)
        self.cluster.calls = self.cluster.calls | {tag: kept}
        self._break_connections(tag)
        return True

    @property
    def is_taken_back(self) -> bool:
        """Whether a shard has received nothing since a failover took its last calls back."""
        return any(calls[-1:] == (FAILOVER,) for calls in self.cluster.calls.values())

    def can_lose(self, tag: bytes, count: int) -> bool:
        """Whether a failover may take so many calls back from a shard."""
        calls = self.cluster.calls.get(tag, ())
        return len(calls) >= count and not {EXPIRY, FAILOVER, HOUR} & set(calls[-count:])

    def _break_connections(self, tag: bytes) -> None:
        """Nobody is connected to the node that has failed, and what was on its way to it is lost."""
        for job in (self.job, self.zombie):
            for query in (job.query, job.building) if job else ():
                if query is not None:
                    query._cluster.close()
        if self.cluster.late and self.cluster.late.is_for(tag):
            self.cluster.late = None

    def settle(self) -> None:
        """Nothing fails any more: the job repairs, reads everything and marks its lanes complete."""
        for _ in range(_ROUNDS):
            if self.query is None:
                self.reopen() if self.job else self.open()
            for building in (False, True):
                self.read_on(building=building)
            if self.can_switch:
                self.switch()
            self.check()
            if self.is_settled:
                if self.topic.ttl is not None:
                    self.beat()  # it removes from indexes what has expired
                # With what the check before has seen: after a failover that has to be seen again.
                self.check()
                promises.check_cleaned(self)
                return
        raise Broken("the job does not recover")

    def read_on(self, *, building: bool = False) -> None:
        """A query reads everything and beats; nothing where there is none."""
        if self.job and (query := self.job.building if building else self.job.query):
            self._advance(query, query.positions | self._log_ends(query))
        if self.job and (self.job.building if building else self.job.query):
            self.beat(building=building)

    # States.

    def unread(self, query: TopicQuery, partition: int) -> int:
        """How many offsets of a partition a query has not read; 0 where it does not read it."""
        return self.end(partition) - query.positions.get((TOPIC, partition), self.end(partition))

    def is_watching(self, query: Any) -> bool:
        """Whether a query's connections watch a lane."""
        return bool(query._cluster.watched())

    @property
    def can_switch(self) -> bool:
        """Whether the job would switch to the next generation."""
        serving = self.job.serving if self.job else None
        return bool(serving and serving._building and serving._is_near(serving._building))

    @property
    def can_sweep(self) -> bool:
        """Whether the topic's record lists generations that are to be removed."""
        data, _ = self.contents().get(redis_keys.record_key(TOPIC), (None, False))
        return data is not None and bool(TopicRecord.from_json(data).remove)

    @property
    def is_settled(self) -> bool:
        """Whether the job has read everything, builds nothing, and its lanes have been marked since the last
        change."""
        if self.query is None or self._running.building is not None:
            return False
        layout = self.query._opening.writer.layouts[TOPIC]
        if layout.partition_count != self.partition_count or any(
            self.unread(self.query, number) for number in range(self.partition_count)
        ):
            return False
        last = max((self.changed, *(record.acked for record in self.log)))
        marks = [self.watermark(number, layout) for number in range(self.partition_count)]
        return all(mark is not None and mark.complete_as_of_ms >= last for mark in marks)

    def check(self) -> None:
        """Raise Broken where what readers find breaks a promise."""
        self.seen = promises.check(self)

    def watermark(self, number: int, layout: Layout | None = None) -> Watermark | None:
        """A lane's, None where it has none; `layout`: of what serves at first unless given."""
        lane = LaneTarget.of(layout or self.layout, number, 0)
        data, _ = self.contents().get(lane.watermark_key, (None, False))
        return None if data is None else codec.decode_watermark(data)

    @property
    def tags(self) -> list[bytes]:
        """The hash tags of the slots that have lanes."""
        return sorted({tag_of(key) for key in self.contents() if kind_of(key)})

    def contents(self) -> Contents:
        """What Redis holds."""
        keys = self.inspector.save()
        if keys is not self._keys:
            self._keys, self._contents = keys, self.inspector.contents()
        return self._contents

    def save(self) -> Snapshot:
        """Everything, to come back to."""
        shared = self.jobs.shared_parts
        return Snapshot(
            self.inspector.save(),
            self.cluster.calls,
            self.cluster.late,
            tuple(getattr(self, name) for name in _OF_KAFKA),
            pack(self.job, shared),
            pack(self.zombie, shared),
            self.seen,
            self.changed,
        )

    def restore(self, saved: Snapshot) -> None:
        """Come back to a saved state, which may be restored again."""
        self.inspector.restore(saved.keys)
        self.cluster.calls, self.cluster.late = saved.calls, saved.late
        for name, value in zip(_OF_KAFKA, saved.kafka, strict=True):
            setattr(self, name, value)
        self.job, self.zombie = unpack(saved.job), unpack(saved.zombie)
        self.seen, self.changed = saved.seen, saved.changed
