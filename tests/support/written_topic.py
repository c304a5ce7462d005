"""A topic that is written and moved while it is read: what may happen between any two steps of a reader."""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.builders import NOW_MS, a_layout, a_watermark, entries_of, layout_entry, value_key
from tests.support.fakes import FakeKafka, FakeState, FakeTime

from keylane import routing
from keylane.model.kafka import LogRecord
from keylane.model.records import Options
from keylane.ports import WaitBudget
from keylane.query.changes import ChangeReader
from keylane.query.decoding import ValueDecoder
from keylane.query.lane_snapshot import LaneCut, LaneRows
from keylane.query.layouts import Layouts
from keylane.query.snapshot import SnapshotScan, TopicSnapshot
from keylane.query.store import ReadTerms, Store
from keylane.state import codec
from keylane.state.lanes import Lane, given_key, lane_at, lane_of_key, lanes_of_topic, strays_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.model.records import Layout

KEYS = [b"key-%d" % number for number in range(14)]
_GLOB = re.compile(rb"\\(.)|(\[[^]]*\])|(\*)|(\?)|(.)", re.DOTALL)


def _as_regex(part: re.Match[bytes]) -> bytes:
    """Return the regular expression of a part of one of Redis' patterns."""
    escaped, of_set, star, question, plain = part.groups()
    return of_set or (star and b".*") or (question and b".") or re.escape(escaped or plain)


@dataclass
class ScannedState(FakeState):
    """As `FakeState`, with the steps of scans. A step of a scan looks at `step_keys` keys.

    Keys are in an order of their process. Those of `left` have migrated already: only a step that asks for a
    key that is not there notices it. `before` is called before each step.
    """

    step_keys: int = 3
    process: bytes = b"one"
    left: set[bytes] = field(default_factory=set)
    migrating: bool = False
    before: Callable[[], None] = lambda: None

    def run(self, calls: Any, deadline: Any, *, primary_only: bool = False) -> list[Any]:
        if any(call.script for call in calls):
            assert primary_only, "a replica may be behind the watermark that was seen"
            self.before()
        return super().run(calls, deadline, primary_only=primary_only)

    def _run(self, entries: Mapping[bytes, bytes | None], slot: int, name: bytes, *words: bytes) -> Any:
        if name == b"EVALSHA_RO":
            return self._step(*words[2:])
        return super()._run(entries, slot, name, *words)

    def _step(self, *words: bytes) -> list[Any]:
        watermark, _, strays, length, pattern, cursor, _, _, most_bytes, *named = words
        if self.migrating:
            return [self.process]
        found: list[bytes] = []
        if cursor:
            found, cursor = self._scan(pattern, int(cursor))
        keys = named or found
        values: list[bytes | None] = []
        left = int(most_bytes)
        for key in keys:
            if left <= 0:
                break
            values.append(self.entries.get(key))
            left -= len(values[-1] or b"")
        flat = [word for pair in self.hashes.get(strays, {}).items() for word in pair]
        shown = [key[int(length) :] for key in found]
        return [self.process, self.entries.get(watermark), flat, cursor, shown, values]

    def _scan(self, pattern: bytes, after: int) -> tuple[list[bytes], bytes]:
        matches = re.compile(_GLOB.sub(_as_regex, pattern), re.DOTALL).fullmatch
        there = [key for key in self.entries.keys() - self.left if matches(key)]
        placed = sorted((self._place(key), key) for key in there)
        rest = [(place, key) for place, key in placed if place >= after]
        taken = rest[: self.step_keys]
        cursor = b"0" if len(rest) <= self.step_keys else b"%d" % (taken[-1][0] + 1)
        return [key for _, key in taken], cursor

    def _place(self, key: bytes) -> int:
        return 1 + int.from_bytes(hashlib.blake2b(self.process + key, digest_size=6).digest())


class Written(NamedTuple):
    """A record of the log, and when it was written: that decides between partitions."""

    key: bytes
    value: bytes | None
    time: int


@dataclass
class WrittenTopic:
    """A topic in the log and the state. `logs`: what was written; `applied`: how far the job is."""

    seed: int
    partitions: int = 2
    stripes: int = 1
    has_strays: bool = False
    markers: bool = True
    complete_as_of_ms: int = NOW_MS
    options: Options = field(default_factory=Options)
    state: ScannedState = field(default_factory=ScannedState)
    kafka: FakeKafka = field(default_factory=FakeKafka)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        options = self.options if self.markers else replace(self.options, marker_ms=0)
        self.layout: Layout = a_layout(
            "written", self.partitions, stripes=self.stripes, incarnation=7, options=options
        )
        self.log = self.kafka.create(self.layout.topic, self.partitions)
        self.logs: list[list[Written]] = [[] for _ in range(self.partitions)]
        self.applied = dict.fromkeys(lanes_of_topic(self.layout), 0)
        self.strays: dict[Lane, dict[int, int]] = {lane: {} for lane in self.applied}
        self.state.entries |= layout_entry(self.layout)
        self.time = FakeTime(NOW_MS)
        self.clock = 0
        self.saved: list[tuple[Any, ...]] = []
        for lane in self.applied:
            self._mark(lane)

    def write(self, key: bytes, value: bytes | None, partition: int | None = None) -> None:
        """Write a record to the log: a stray where another partition than the key's is given."""
        own = routing.partition_for(key, self.partitions) if partition is None else partition
        self.clock += 1
        self.logs[own].append(Written(key, value, self.clock))
        self.log[own].add(LogRecord(len(self.logs[own]) - 1, key, value))

    def write_any(self) -> None:
        """Write a record, sometimes a deletion, and a stray where the topic has such."""
        key, value = self.random.choice(KEYS), b"%d" % self.clock
        partition = self.random.randrange(self.partitions) if self.has_strays else None
        self.write(key, None if self.random.random() < 0.3 else value, partition)

    def apply(self, partition: int, to: int) -> None:
        """Apply the log of a partition up to an offset, as the job does: strays first, then each stripe."""
        own = [lane for lane in self.applied if lane.partition == partition]
        begin = min(self.applied[lane] for lane in own)
        records = list(enumerate(self.logs[partition]))[begin:to]
        for offset, record in records:
            lane = lane_of_key(self.layout, record.key)
            if lane.partition != partition and self.strays[lane].get(partition, 0) <= offset:
                self._store(offset, record, partition)
        for lane in {lane_of_key(self.layout, record.key) for _, record in records}:
            if lane.partition != partition:
                self.strays[lane][partition] = max(to, self.strays[lane].get(partition, 0))
                name = strays_key(self.layout, lane)
                self.state.hashes[name] = {b"%d" % q: b"%d" % end for q, end in self.strays[lane].items()}
                self._mark(lane)
                given = self.state.hashes.setdefault(
                    given_key(self.layout, lane_at(self.layout, partition, 0)), {}
                )
                given[str(lane).encode()] = b"%d" % max(to, int(given.get(str(lane).encode(), 0)))
        for lane in own:
            for offset, record in records:
                if lane_of_key(self.layout, record.key) == lane and offset >= self.applied[lane]:
                    self._store(offset, record, None)
            self.applied[lane] = max(to, self.applied[lane])
            self._mark(lane)

    def apply_any(self) -> None:
        """Apply some of what is written, of one partition."""
        partition = self.random.randrange(self.partitions)
        low = min(end for lane, end in self.applied.items() if lane.partition == partition)
        self.apply(partition, self.random.randint(low, len(self.logs[partition])))

    def apply_all(self) -> None:
        for partition, log in enumerate(self.logs):
            self.apply(partition, len(log))

    def save(self) -> None:
        """Note the state as a replica has it, which takes over in a failover."""
        strays = {lane: dict(own) for lane, own in self.strays.items()}
        hashes = {name: dict(own) for name, own in self.state.hashes.items()}
        self.saved = [(dict(self.state.entries), hashes, dict(self.applied), strays)]

    def fail_over(self) -> None:
        """Go back to what was saved, on another process."""
        if self.saved:
            self.state.entries, self.state.hashes, self.applied, self.strays = self.saved.pop()
        self.move()

    def lose(self, lane: Lane) -> None:
        """Take one lane, which takes strays alone, back to what was saved; the job gives them again."""
        ((entries, hashes, applied, strays),) = self.saved
        for kept, now in ((entries, self.state.entries), (hashes, self.state.hashes)):
            for name in [each for each in now if each.startswith(b"{%b}" % lane.tag)]:
                del now[name]
            now.update({name: each for name, each in kept.items() if name.startswith(b"{%b}" % lane.tag)})
        self.strays[lane] = dict(strays[lane])
        self.applied |= {each: end for each, end in applied.items() if each.partition != lane.partition}
        self.move()

    def move(self) -> None:
        """Have another process answer, to which no cursor means anything."""
        self.state.process = b"%d" % self.random.getrandbits(32)

    def begin_migration(self) -> None:
        """Let some keys leave."""
        self.state.migrating = True
        there = [key for key in self.state.entries if b":v:" in key]
        self.state.left = set(self.random.sample(there, len(there) // 2))

    def end_migration(self) -> None:
        """Have all keys on another node."""
        self.state.migrating, self.state.left = False, set()
        self.move()

    def build_again(self) -> None:
        """Serve another generation."""
        for lane in self.applied:
            mark = a_watermark(self.applied[lane], superseded=True)
            self.state.entries[lane.watermark_key] = codec.encode_watermark(mark)
        layout = replace(self.layout, generation=2)
        self.state.entries |= layout_entry(layout)
        for lane in lanes_of_topic(layout):
            self.state.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(0))

    def _store(self, offset: int, record: Written, source: int | None) -> None:
        name = value_key(self.layout, record.key)
        stored = self.state.entries.get(name)
        if stored is not None and codec.decode_head(stored, 0).timestamp_ms >= record.time:
            return
        if record.value is None and not self.markers:
            self.state.entries.pop(name, None)
            return
        fields = entries_of(record.value, self.layout.options)
        self.state.entries[name] = codec.encode_record(
            record.value, offset, record.time, source, fields=fields
        )

    def _mark(self, lane: Lane) -> None:
        mark = a_watermark(
            self.applied[lane],
            has_strays=bool(self.strays[lane]),
            gave_strays=given_key(self.layout, lane) in self.state.hashes,
            complete_as_of_ms=self.complete_as_of_ms,
        )
        self.state.entries[lane.watermark_key] = codec.encode_watermark(mark)

    def fold(self, lane: Lane, next_offset: int, strays: Mapping[int, int]) -> dict[bytes, bytes]:
        """Return what a lane has by the log alone."""
        newest: dict[bytes, Written] = {}
        for partition, log in enumerate(self.logs):
            end = next_offset if partition == lane.partition else strays.get(partition, 0)
            for record in log[:end]:
                known = newest.get(record.key)
                if lane_of_key(self.layout, record.key) == lane and (
                    known is None or known.time < record.time
                ):
                    newest[record.key] = record
        return {key: record.value for key, record in newest.items() if record.value is not None}

    def changed_since(self, offsets: Mapping[int, int]) -> set[bytes]:
        """Return the keys of which a stream of changes that begins there reports something."""
        return {each.key for partition, log in enumerate(self.logs) for each in log[offsets[partition] :]}

    @property
    def reader(self) -> ChangeReader:
        clock = self.time.clock
        store = Store(self.state, Layouts(self.state, clock, 30), clock)
        return ChangeReader(
            store, lambda: self.kafka, lambda **_: ValueDecoder(lambda: None, WaitBudget(0, clock))
        )

    def snapshot(self, *, partial: bool = False, **scan: Any) -> TopicSnapshot:
        terms = ReadTerms(1000, partial=partial)
        return TopicSnapshot(self.reader, self.layout.topic, SnapshotScan(**scan), terms)


@dataclass
class SnapshotTaker:
    """A client that takes a snapshot: the rows of each lane, and each lane's cut."""

    rows: dict[Lane, dict[bytes, bytes]] = field(default_factory=dict)
    cuts: dict[Lane, LaneCut] = field(default_factory=dict)
    lines: int = 0

    def take(self, part: LaneRows | LaneCut) -> None:
        if isinstance(part, LaneCut):
            self.cuts[part.lane] = part
            self.rows.setdefault(part.lane, {})
            return
        own = self.rows.setdefault(part.lane, {})
        for key, record in part.rows:
            self.lines += 1
            if record is None:
                own.pop(key, None)
            else:
                own[key] = record.value

    @property
    def all_rows(self) -> dict[bytes, bytes]:
        return {key: value for own in self.rows.values() for key, value in own.items()}
