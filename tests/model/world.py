"""The model's world: a small log, a real Redis, and the job's own code between them.

Only Spark and Kafka are simulated. What opens lanes, folds, routes, sends, notes strays, proves completeness
and beats is the job's code (`open_topics`, `TopicQuery`, `Heartbeat`, `BatchWriter`, `LaneWriter`), and the
server side is the library in Redis. Each lane counts as a shard of its own. Time is the number of the step.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from tests.model import copies
from tests.model.log import TOPIC, Batch, Kind, Logged
from tests.model.redis_world import EXPIRY, FAILOVER, Crash, Inspector, LoggingCluster
from tests.support import lanes as t

from keylane import routing
from keylane.errors import KeylaneError
from keylane.model.records import Layout
from keylane.ports import Clock
from keylane.state import codec
from keylane_spark.adapters.function_library import FunctionLibrary, WriteOptions
from keylane_spark.adapters.kafka_admin import LogEnd, TopicShape
from keylane_spark.adapters.lane import LaneTarget
from keylane_spark.config.topics import Config
from keylane_spark.generations import ownership
from keylane_spark.serving import open_topics
from keylane_spark.stream import batch_writer, heartbeat, topic_query
from keylane_spark.telemetry.metrics import JobMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence


class Broken(AssertionError):
    """A promise that a state of the world breaks."""


@dataclass(slots=True)
class Snapshot:
    """Everything that a step may change. `changed`: when a batch was written last, or a lane lost calls."""

    keys: dict[bytes, Any]
    calls: dict[bytes, tuple[bytes, ...]]
    log: tuple[Logged, ...]
    now: int
    query: copies.Packed
    zombie: copies.Packed
    knows_strays: bool
    changed: int


@dataclass
class World:
    """One topic. Its steps are methods that return whether they did something."""

    nodes: str
    partition_count: int = 2
    log: tuple[Logged, ...] = ()
    now: int = 1
    query: Any = None
    zombie: Any = None
    knows_strays: bool = False
    changed: int = 0
    removed_below: dict[int, int] = field(default_factory=dict)
    """The oldest offset of partitions that retention has removed records of."""
    compacted_after: float = math.inf
    """For how long compaction leaves tombstones in the log."""
    _found: list[dict[bytes, Any]] = field(default_factory=list)
    _read_at: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.layout = Layout(TOPIC, self.partition_count)
        self.lanes = [LaneTarget.of(self.layout, number, 0) for number in range(self.partition_count)]
        self.key = next(
            key
            for key in (b"%d" % number for number in range(1000))
            if routing.partition_for(key, self.partition_count) == 0
        )
        settings = t.settings(self.nodes)
        self.cluster = LoggingCluster(settings)
        self.inspector = Inspector(settings, self.cluster)
        self._empty = self.inspector.save()
        clock = Clock(now_ms=lambda: self.now, pause_s=lambda _: None)
        options = WriteOptions(retry_budget_s=20)
        self.context: Any = SimpleNamespace(
            # Rows come as from Spark: the model has no broker to read from.
            config=Config.model_validate({"job": {"reader": "spark"}, "topics": {TOPIC: {}}}),
            spark=SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1)),
            broker=self,
            redis=settings,
            checkpoint=Path("/nowhere"),
            clock=clock,
            epoch_ends=lambda _: {},
            spans=None,
            claim_clock=SimpleNamespace(
                now_ms=lambda: self.now, compare=lambda *_: None, largest_skew=lambda: None
            ),
            say=lambda _: None,
            write=lambda _: None,
            write_options=options,
            library=lambda cluster: FunctionLibrary(cluster, clock, options),
        )
        self._shared: list[Any] = [self.context, self.cluster, self, clock, settings, options]
        patch, enter = mock.patch.object, self._stack.enter_context
        for module in (open_topics, ownership, topic_query, heartbeat):
            enter(patch(module, "Cluster", return_value=self.cluster))
        # Chunks of one record: a batch is several calls, pipelined as those of a large one.
        enter(patch(batch_writer, "MAX_RECORDS", 1))
        enter(patch(batch_writer, "COMPARED_RECORDS", 1))
        enter(patch(open_topics, "check_eviction_policy"))
        enter(patch(topic_query, "batch_ends", side_effect=lambda *_: self._ends))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.inspector.restore(self._empty)
        self.inspector.close()

    # What the job asks of Kafka.

    def describe(self, topics: Sequence[str]) -> dict[str, TopicShape]:
        return {topic: TopicShape("id", self.partition_count) for topic in topics}

    def oldest_offsets(self, counts: Any) -> dict[tuple[str, int], int]:  # noqa: ARG002
        partitions = range(self.partition_count)
        return {(TOPIC, partition): self.removed_below.get(partition, 0) for partition in partitions}

    def tombstones_last_ms(self, topic: str) -> float:  # noqa: ARG002
        return self.compacted_after

    def end_offsets(self, counts: Any) -> dict[tuple[str, int], int]:  # noqa: ARG002
        sizes = Counter(record.partition for record in self.log)
        return {(TOPIC, partition): sizes[partition] for partition in range(self.partition_count)}

    def ends(self, counts: Any) -> dict[tuple[str, int], LogEnd]:
        return {place: LogEnd(end, 0) for place, end in self.end_offsets(counts).items()}

    # Steps.

    def write(self, kind: Kind) -> None:
        """Kafka acknowledges a record."""
        self.now += 1
        offset = self.end_offsets(None)[TOPIC, kind.partition]
        value = b"%d" % len(self.log) if kind.is_set else None
        record = Logged(kind.partition, offset, self.key, value, len(self.log), self.now)
        self.log = (*self.log, record)

    def open(self) -> bool:
        """A job starts. The one before may wake up later."""
        self.now += 1
        before, self.query = self.query, None
        try:
            openings = open_topics.open_topics(
                self.context, ownership.Ownership(self.context.redis, self.context.clock)
            )
            totals: Any = SimpleNamespace(add=lambda *_, **__: None)
            metrics = JobMetrics(self.context.clock)
            self.query = topic_query.TopicQuery(self.context, openings.serving, totals, metrics)
        except KeylaneError as error:
            raise Broken(f"the job can't open its lanes: {error}") from error
        self.zombie = before or self.zombie
        return True

    def read(self, partition: int) -> bool:
        """The job reads one record of a partition."""
        return self._advance(self._ends_after(self.query, partition, 1))

    def read_all(
        self, partition: int, *, crash_after: int | None = None, delay_at: int | None = None
    ) -> bool:
        """The job reads a partition to its end; it crashes after some calls, or Redis delays one of them."""
        self.cluster.crash_after, self.cluster.delay_at = crash_after, delay_at
        return self._advance(self._ends_after(self.query, partition, len(self.log)))

    def wake(self, partition: int) -> bool:
        """A job that was replaced reads one record of a partition, as if it were still the writer."""
        if self.zombie is None or self.unread(self.zombie, partition) <= 0:
            return False
        if not self._write(self.zombie, self._ends_after(self.zombie, partition, 1)):
            self.zombie = None
        return True

    def _ends_after(self, query: Any, partition: int, count: int) -> dict[tuple[str, int], int]:
        ends, positions = self.end_offsets(None), query.positions
        own = TOPIC, partition
        return positions | {own: max(positions[own], min(positions[own] + count, ends[own]))}

    def _advance(self, ends: dict[tuple[str, int], int]) -> bool:
        if not self._write(self.query, ends):
            self.query = None
        return True

    def _write(self, query: Any, ends: dict[tuple[str, int], int]) -> bool:
        """A job writes a batch that ends at these offsets; returns whether it goes on."""
        self.now += 1
        self.changed = self.now
        begins = query.positions
        rows = [row for row in self.log if row.offset in range(begins[row.place], ends[row.place])]
        self._ends = ends
        try:
            query.write(Batch(rows), 0)
        except KeylaneError:
            return False
        except Crash:
            self.cluster.finish()
            return False
        finally:
            self.cluster.crash_after = self.cluster.delay_at = None
        return True

    def beat(self) -> bool:
        """The job's heartbeat."""
        self.now += 1
        try:
            self.query._heartbeat._beat()
        except KeylaneError:
            self.query = None
        return True

    def expire(self) -> bool:
        """A day goes by: markers of tombstones expire."""
        self.now += 1
        for lane in self.lanes:
            calls = self.cluster.calls.get(lane.watermark_key, ())
            self.cluster.calls[lane.watermark_key] = (*calls, EXPIRY)
        return self.inspector.expire_markers(self.lanes)

    def lose(self, number: int, count: int | None) -> bool:
        """A failover of one lane's shard takes back its last calls; None: all, the shard comes back empty.

        No failover takes back a day.
        """
        self.now += 1
        lane = self.lanes[number]
        calls = self.cluster.calls.get(lane.watermark_key, ())
        if count is None:
            kept: tuple[bytes, ...] = ()
        elif len(calls) < count or {EXPIRY, FAILOVER} & set(calls[-count:]):
            return False
        else:
            kept = (*calls[:-count], FAILOVER)
        self.changed = self.now
        self.inspector.lose(lane, kept)
        self.cluster.calls[lane.watermark_key] = kept
        return True

    def settle(self) -> None:
        """Nothing fails any more: the job repairs, reads everything and marks its lanes complete."""
        for _ in range(8):
            if self.query is None:
                self.open()
            if not self.is_at_ends:
                self._advance(self.query.positions | self.end_offsets(None))
            if self.query is not None:
                self.beat()
            self.check()
            if self.is_settled:
                return
        raise Broken("the job does not recover")

    # States.

    def unread(self, query: Any, partition: int) -> int:
        """How many records of a partition a job has not read."""
        return self.end_offsets(None)[TOPIC, partition] - query.positions[TOPIC, partition]

    @property
    def is_at_ends(self) -> bool:
        """Whether the job has read everything."""
        return all(self.unread(self.query, number) <= 0 for number in range(self.partition_count))

    @property
    def is_settled(self) -> bool:
        """Whether the job runs, has read everything, and has said so of every lane since the last change."""
        if self.query is None or not self.is_at_ends:
            return False
        last = max((self.changed, *(record.acked for record in self.log)))
        marks = [self.watermark(number) for number in range(self.partition_count)]
        return all(mark is not None and mark.complete_as_of_ms >= last for mark in marks)

    def check(self) -> None:
        """Raise Broken where a lane lacks what it claims, or where a settled state is not the fold."""
        has_strays = any(record.partition for record in self.log)
        settled = self.is_settled
        mark = self.watermark(0)
        if mark is None:
            return
        claimed = [r for r in self.log if r.acked <= mark.complete_as_of_ms]
        # Before a topic's first stray was read nobody waits for other partitions: no promise covers that.
        if claimed and (self.knows_strays or not has_strays or settled):
            self._check_key(claimed[-1], settled=settled)
        self.knows_strays = self.knows_strays or (settled and has_strays)

    def _check_key(self, newest: Logged, *, settled: bool) -> None:
        stored = self._stored()
        later = [record for record in self.log if record.number > newest.number]
        if stored is not None:
            fine = stored.number >= newest.number and (stored.value is not None)
        else:
            fine = newest.value is None or any(record.value is None for record in later)
        if not fine:
            when = "after everything was repaired" if settled else "a lane claims to be complete, and"
            expected = "absent" if newest.value is None else f"record {newest.number}"
            found = "absent" if stored is None else f"record {stored.number}"
            raise Broken(f"{when} the key is {found}, not {expected}")

    def _stored(self) -> Logged | None:
        data, _ = self.contents()[0].get(b"v:" + self.key, (None, False))
        record = None if data is None else codec.decode_record(self.key, data, 0)
        if record is None:
            return None
        found = (record.partition, record.offset)
        return next(each for each in self.log if (each.partition, each.offset) == found)

    def watermark(self, number: int) -> Any:
        data, _ = self.contents()[number].get(b"w:%d.0" % number, (None, False))
        return None if data is None else codec.decode_watermark(data)

    def contents(self) -> list[dict[bytes, Any]]:
        """What the lanes hold, read once after each step."""
        if self._read_at != self.now:
            self._found, self._read_at = self.inspector.contents(self.lanes), self.now
        return self._found

    def save(self) -> Snapshot:
        """Everything, to come back to."""
        return Snapshot(
            self.inspector.save(),
            dict(self.cluster.calls),
            self.log,
            self.now,
            copies.pack(self.query, self._shared),
            copies.pack(self.zombie, self._shared),
            self.knows_strays,
            self.changed,
        )

    def restore(self, saved: Snapshot) -> None:
        """Come back to a saved state, which may be restored again."""
        self.inspector.restore(saved.keys)
        self._read_at = 0
        self.cluster.calls = dict(saved.calls)
        self.log, self.now, self.knows_strays = saved.log, saved.now, saved.knows_strays
        self.changed = saved.changed
        self.query, self.zombie = copies.unpack(saved.query), copies.unpack(saved.zombie)
