"""Runs one schedule on a running stack: carries it out, repairs the stack, compares the state."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.servers.own import CLOCK
from tests.torture.checks import Facts, check_seen
from tests.torture.faults.world import Trouble
from tests.torture.leftovers import KnownKeys, check_leftovers, check_replicas
from tests.torture.nemesis import Nemesis
from tests.torture.oracle import Log
from tests.torture.producing import Producers
from tests.torture.readers import FAILED, Readers, count_by_source
from tests.torture.schedule import Event, Pause, Produce, Schedule
from tests.torture.scoped import ScopedReader
from tests.torture.snapshots import check_snapshots
from tests.torture.sources import SERVER
from tests.torture.stack import TortureStack, wait_until
from tests.torture.stored import check_indexed, check_state, check_watermarks
from tests.torture.streams import StreamChecks
from tests.torture.views import check_documents, check_view
from tests.torture.witness import unexplained
from tests.torture.writing import Writers
from tests.torture.written import Queued, check_written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.torture.reading import Seen

REACHED_WITHIN_S = 120
REBUILT_PER_S = 1_000
"""The least speed at which an emptied Redis is rebuilt; the job's batches are small here."""
MAX_FAULTS, MAX_CHARACTERS = 4, 2_000
"""Faults reported for one schedule: the first ones say most."""


@dataclass(slots=True)
class Outcome:
    """The result of a schedule. `broken`: the stack can't run another one. `log`: what each step did.

    `results`: how often clients of the product got which result for a record, by client and result.
    `sources`: see `count_by_source`; and what the scoped reader did.
    """

    schedule: Schedule
    seconds: float
    faults: list[str]
    reads: int
    waits: int
    records: int
    broken: bool = False
    log: list[dict[str, Any]] = field(default_factory=list)
    results: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Tormentor:
    """A stack with its producers, readers and log; runs schedules one after the other."""

    stack: TortureStack
    producers: Producers
    writers: Writers
    readers: Readers
    log: Log
    streams: StreamChecks
    scoped: ScopedReader
    schedules: int = 0
    unplanned: int = 0
    """Failovers that no schedule caused: the machine was too busy for the nodes' heartbeats."""
    slow: int = 0
    """How often a node did not answer a reader, or no node of a shard the witness, without trouble."""

    @classmethod
    def of(cls, stack: TortureStack, seed: int) -> Tormentor:
        readers = Readers(stack, seed)
        producers = Producers(stack.kafka.bootstrap, stack.shapes, readers.wait_for)
        log, streams = Log(stack.kafka.bootstrap, stack.shapes), StreamChecks(readers.listeners)
        writers = Writers(stack.hosts, list(stack.shapes), producers.acknowledged, readers.wait_for)
        tormentor = cls(stack, producers, writers, readers, log, streams, ScopedReader(stack, seed))
        tormentor._warm_up()
        return tormentor

    def close(self) -> None:
        self.writers.close()
        self.scoped.close()
        self.readers.close()
        self.log.close()

    def run(self, schedule: Schedule) -> Outcome:
        """Carry out a schedule and check the result."""
        self.schedules += 1
        began_s = time.monotonic()
        nemesis = Nemesis(self.stack, self.writers, schedule.seed)
        before = self._primaries()
        keys = [(topic, key) for topic, own in schedule.keys.items() for key in own]
        self.readers.read_keys(keys + self.writers.keys(schedule))
        self.scoped.begin(schedule, keys + self.writers.keys(schedule))
        self.writers.begin(schedule)
        faults: list[str] = []
        seen: list[list[Seen]] = []
        log: list[dict[str, Any]] = []
        try:
            self._carry_out(schedule, nemesis, log)
            faults += self._heal(nemesis)
            written_ms = CLOCK.now_ms()
            ends = self.log.read_on()
            rebuilt = any(t.lost_data for t in nemesis.troubles) or "switch-layout" in schedule.events
            within_s = REACHED_WITHIN_S + (sum(ends.values()) / REBUILT_PER_S if rebuilt else 0)
            missing = self._wait_reached(ends, written_ms, within_s)
            if missing:
                self.readers.drop_positions()
            seen, lanes = self.readers.take(), self.readers.snapshots.take()
            self.scoped.rest(is_at_rest=not missing)
            faults += blind(count_by_source(seen))
            nemesis.troubles += self._unplanned(before, nemesis.troubles, began_s)
            self._note_slowness(nemesis.troubles)
            facts = Facts(self.log, self.producers.acknowledged, nemesis.troubles, self.stack)
            faults += _first(check_seen(seen, facts)) + self.readers.take_wrong()
            faults += _first(check_snapshots(lanes, facts))
            faults += _first(check_written(self.writers.take(), self.log, self._queued))
            faults += _first(self.scoped.check(facts, is_at_rest=not missing))
            if not missing:
                faults += _first(self.readers.snapshots.check_at_rest(facts))
                faults += _first(self.readers.synced.check_at_rest(facts))
                self.readers.listeners.rest()
                faults += _first(self.streams.check(facts, lambda: self._note_slowness(facts.troubles)))
            if not missing:
                faults += self._check_stored(self._keys_of(schedule), schedule.prefix)
            broken = bool(missing)
            faults += missing
        except Exception as error:  # noqa: BLE001 - a schedule that could not be carried out or checked has failed
            broken = True
            faults.append(repr(error))
        faults += self.readers.broken
        if broken or self.stack.job.has_ended:
            faults.append(
                f"the job {'has ended' if self.stack.job.has_ended else 'runs'}:\n{self.stack.job.report()}"
            )
        return Outcome(
            schedule,
            time.monotonic() - began_s,
            faults,
            sum(len(own) for own in seen),
            sum(one.waited_for is not None for own in seen for one in own),
            sum(len(step.writes) for step in schedule.steps if isinstance(step, Produce)),
            broken or self.stack.job.has_ended or bool(self.readers.broken),
            [_since(began_s, step) for step in log],
            self.writers.counts(),
            sum(
                (self.scoped.counts, self.readers.snapshots.counts(), self.readers.synced.counts()),
                count_by_source(seen),
            ),
        )

    @property
    def _queued(self) -> Queued:
        return Queued(self.writers.drain.deliveries, self.writers.drain.dead)

    def check_all(self) -> list[str]:
        """Compare every key of every schedule once more."""
        keys: dict[str, list[bytes]] = {}
        for topic, key in self.log.keys:
            keys.setdefault(topic, []).append(key)
        return self._check_stored(keys, b"")

    def _keys_of(self, schedule: Schedule) -> dict[str, list[bytes]]:
        """The schedule's keys, and those that only its events wrote."""
        keys = {topic: set(own) for topic, own in schedule.keys.items()}
        for topic, key in self.log.keys:
            if key.startswith(schedule.prefix):
                keys.setdefault(topic, set()).add(key)
        return {topic: sorted(own) for topic, own in keys.items()}

    def _check_stored(self, keys: dict[str, list[bytes]], prefix: bytes) -> list[str]:
        """Compare the state of keys, then what else the nodes have; of records only keys with this prefix."""
        layouts = self.stack.layouts(everything=True)
        faults = _first(check_state(keys, self.log, layouts, self.stack))
        faults += _first(check_indexed(keys, self.log, layouts, self.stack))
        for view in self.stack.configuration.views:
            faults += _first(check_view(view, self.log, self.stack, prefix))
        for view in self.stack.configuration.document_views:
            faults += _first(check_documents(view, self.log, self.stack))
        faults += _first(check_replicas(self.stack, prefix))
        return faults + _first(check_leftovers(layouts, KnownKeys(self.log.keys), self.stack))

    def _warm_up(self) -> None:
        """Let each mixed topic have its first stray, which nobody can foresee, and each view begin."""
        for topic in (shape for shape in self.stack.configuration.shapes if shape.mixed):
            key = b"warm-up-000"
            strange = (topic.partition_of(key) + 1) % topic.partitions
            self.producers.send_one(topic.name, key, strange)
        self.producers.finish()
        written_ms = CLOCK.now_ms()
        missing = self._wait_reached(self.log.read_on(), written_ms, REACHED_WITHIN_S)
        assert not missing, missing
        for view in self.stack.configuration.views:
            assert not list(check_view(view, self.log, self.stack, b"warm-up-"))
        for view in self.stack.configuration.document_views:
            assert not check_documents(view, self.log, self.stack)

    def _carry_out(self, schedule: Schedule, nemesis: Nemesis, log: list[dict[str, Any]]) -> None:
        """`log` gets what each step did; events are still going on when this returns."""
        base_ms = CLOCK.now_ms()
        for step in schedule.steps:
            note: dict[str, Any] = {"began_s": time.monotonic()}
            log.append(note)
            match step:
                case Produce():
                    self.producers.send(schedule, step, base_ms)
                    shape = self.stack.shapes[step.topic]
                    if shape.mixed and shape.options.has_history and step.transaction is None:
                        self.producers.send_tied(schedule, step, base_ms)
                    note["records"] = len(step.writes)
                    note["ended_s"] = time.monotonic()
                case Event():
                    nemesis.begin(step)
                    log[-1] = nemesis.notes[-1]
                case Pause():
                    self.producers.pause(step.seconds)

    def _heal(self, nemesis: Nemesis) -> list[str]:
        nemesis.finish()
        self.stack.wait_repaired()
        self.producers.finish()
        return nemesis.faults + self.producers.take_faults() + self.writers.finish()

    def _wait_reached(self, ends: dict[tuple[str, int], int], written_ms: int, within_s: float) -> list[str]:
        """Wait until every watermark is at the end of its log; returns the faults that are left."""

        def left() -> list[str]:
            layouts = self.stack.layouts()
            missing = [f"{topic} has no layout" for topic in self.stack.shapes if topic not in layouts]
            return missing + list(check_watermarks(ends, written_ms, layouts, self.stack))

        try:
            wait_until(lambda: self.stack.job.has_ended or not left(), within_s, "all watermarks")
        except TimeoutError:
            return [f"after {within_s:.0f} s: {fault}" for fault in _first(left())]
        return _first(left())

    def _primaries(self) -> list[int]:
        return [self.stack.shard(number)[0].port for number in range(self.stack.cluster.shards)]

    def _unplanned(self, before: list[int], planned: list[Trouble], began_s: float) -> list[Trouble]:
        """Troubles for shards whose primary changed without an event."""
        touched = {trouble.shard for trouble in planned}
        changed = [
            shard
            for shard, (old, new) in enumerate(zip(before, self._primaries(), strict=True))
            if old != new and shard not in touched
        ]
        self.unplanned += len(changed)
        return [Trouble("unplanned", shard, began_s) for shard in changed]

    def _note_slowness(self, troubles: list[Trouble]) -> None:
        found = [*self.stack.slowness.take(), *self.stack.witness.take()]
        self.slow += unexplained(found, troubles)
        troubles += found


def blind(counts: Mapping[str, int]) -> list[str]:
    """What the checks of this schedule can't have seen: readers of the server without answers."""
    if counts[SERVER] > counts[FAILED]:
        return []
    return [f"no read from the server was answered: {dict(counts)}"]


def _since(began_s: float, note: dict[str, Any]) -> dict[str, Any]:
    """The note with times since the beginning of the schedule."""
    return {name: round(value - began_s, 3) if name.endswith("_s") else value for name, value in note.items()}


def _first(faults: Iterable[str]) -> list[str]:
    return [fault[:MAX_CHARACTERS] for fault in itertools.islice(faults, MAX_FAULTS)]
