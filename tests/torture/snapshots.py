"""Snapshots of whole topics, taken while a schedule runs; each lane is compared with its fold afterwards."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.own import CLOCK
from tests.torture.checks import ReaderCheck
from tests.torture.oracle import is_same, show
from tests.torture.reading import Seen
from tests.torture.sources import LAYOUT_TTL_S, TERMS

from keylane.adapters.kafka.admin import KafkaAdmin, ReaderSettings
from keylane.adapters.kafka.reader import KafkaReader
from keylane.errors import KeylaneError
from keylane.model.records import Answer
from keylane.ports import WaitBudget
from keylane.query.changes import ChangeReader
from keylane.query.decoding import ValueDecoder
from keylane.query.lane_snapshot import LOG_TIMEOUT_MS, LaneCut
from keylane.query.layouts import Layouts
from keylane.query.snapshot import SnapshotScan, TopicSnapshot
from keylane.query.store import Store
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.checks import Facts
    from tests.torture.oracle import KeyLog
    from tests.torture.stack import TortureStack

    from keylane.model.records import Layout, Record

READER = 100
"""Its number among readers, in faults."""
_PAUSE_S = 0.1
_AT_REST_S = 90


class ReadLane(NamedTuple):
    """A lane of a snapshot that was cut: its rows, and when (monotonic seconds)."""

    layout: Layout
    cut: LaneCut
    rows: dict[bytes, Record]
    began_s: float
    ended_s: float


class _Rests(Exception):
    """The schedule is over: what is being read is given up."""


@dataclass(slots=True)
class Snapshots:
    """A thread that takes a snapshot of one topic after the other. `lanes`: what it got of them."""

    stack: TortureStack
    seed: int
    lanes: list[ReadLane] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    _goes_on: threading.Event = field(default_factory=threading.Event)
    _is_idle: threading.Event = field(default_factory=threading.Event)
    _counts: Counter[str] = field(default_factory=Counter)
    _is_over: bool = False
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Take snapshots from now on."""
        self._is_idle.clear()
        self._goes_on.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="snapshots")
            self._thread.start()

    def rest(self, within_s: float = 60) -> list[ReadLane]:
        """Take no more; return the lanes since the last call."""
        self._goes_on.clear()
        if self._thread and not self._is_idle.wait(within_s) and not self.broken:
            self.broken.append(f"the snapshots have not come to rest within {within_s:.0f} s")
        taken, self.lanes = self.lanes, []
        self._counts["snapshots, lanes"] += len(taken)
        return taken

    def counts(self) -> Counter[str]:
        """How many lanes were compared since the last call, and how many snapshots ended early."""
        taken, self._counts = self._counts, Counter()
        return taken

    def close(self) -> None:
        self._is_over = True
        self._goes_on.set()
        if self._thread is not None:
            self._thread.join(20)

    def check_at_rest(self, facts: Facts) -> Iterator[str]:
        """Take one where nothing is in the way any more: it must succeed, and be right."""
        topic = random.Random(f"{self.seed}/{len(self.lanes)}/rest").choice(list(self.stack.shapes))
        until_s = time.monotonic() + _AT_REST_S
        while True:
            try:
                lanes = list(self._take(topic, may_rest=False))
                break
            except KeylaneError as error:
                if time.monotonic() > until_s:
                    yield f"{topic}: at rest there is no snapshot: {error!r}"
                    return
                time.sleep(_PAUSE_S)
        yield from check_snapshots(lanes, facts)

    def _run(self) -> None:
        source = random.Random(f"{self.seed}/snapshots")
        try:
            while not self._is_over:
                if not self._goes_on.is_set():
                    self._is_idle.set()
                    self._goes_on.wait()
                    continue
                try:
                    self.lanes.extend(self._take(source.choice(list(self.stack.shapes)), may_rest=True))
                    self._counts["snapshots"] += 1
                except (KeylaneError, _Rests) as error:
                    # Lanes that were cut before are there: a problem ends the rest alone.
                    self._counts[f"snapshots, {type(error).__name__.strip('_')}"] += 1
                    time.sleep(_PAUSE_S)
        except Exception as error:  # noqa: BLE001 - any other error is a finding
            self.broken.append(f"a snapshot broke: {error!r}")
            self._is_idle.set()

    def _take(self, topic: str, *, may_rest: bool) -> Iterator[ReadLane]:
        """Yield the lanes of a snapshot as they are cut. Raises KeylaneError, _Rests."""

        def pause(seconds: float) -> None:
            if may_rest and not self._goes_on.is_set():
                raise _Rests
            time.sleep(seconds)

        clock = replace(CLOCK, pause_s=pause)
        state = self.stack.reader_state()
        log = KafkaReader(KafkaAdmin(ReaderSettings(self.stack.kafka.bootstrap, LOG_TIMEOUT_MS)))
        store = Store(state, Layouts(state, clock, LAYOUT_TTL_S), clock)
        reader = ChangeReader(
            store, lambda: log, lambda **_: ValueDecoder(_no_registry, WaitBudget(0, clock))
        )
        try:
            snapshot = TopicSnapshot(reader, topic, SnapshotScan(), TERMS)
            rows: dict[bytes, Record] = {}
            began_s = time.monotonic()
            for part in snapshot.parts():
                if isinstance(part, LaneCut):
                    yield ReadLane(snapshot.layout, part, rows, began_s, time.monotonic())
                    rows, began_s = {}, time.monotonic()
                    continue
                for key, record in part.rows:
                    if record is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = record
            snapshot.end()
        finally:
            log.close()
            state.close()


def check_snapshots(lanes: list[ReadLane], facts: Facts) -> Iterator[str]:
    """Compare lanes with what the log says of each of their keys; yields a sentence for each fault."""
    for lane in lanes:
        topic, ttl_ms = lane.layout.topic, lane.layout.options.ttl_ms
        own = (key for key in facts.log.keys_of(topic) if lane_of_key(lane.layout, key) == lane.cut.lane)
        check = ReaderCheck(facts)
        for key in {*own, *lane.rows}:
            record = lane.rows.get(key)
            if (
                record is not None
                and ttl_ms is not None
                and record.timestamp_ms + ttl_ms <= lane.cut.as_of_ms
            ):
                record = None
            yield from check.check(_seen(lane, key, record))
            yield from _check_stray(lane, key, record, facts.log.of(topic, key))


def _seen(lane: ReadLane, key: bytes, record: Record | None) -> Seen:
    """Return what a read of the key at the moment of the cut would have seen: it is exact."""
    answer = Answer(lane.layout, lane.cut.lane.partition, record, lane.cut.watermark)
    times = lane.began_s, lane.ended_s
    seen = Seen(READER, lane.layout.topic, key, *times, answer, None, ended_ms=lane.cut.as_of_ms)
    return seen._replace(kind="snapshot")


def _check_stray(lane: ReadLane, key: bytes, record: Record | None, key_log: KeyLog) -> Iterator[str]:
    """A row that is a stray is below the lane's offset for its partition, and the last one there."""
    if record is None or record.partition == lane.cut.lane.partition:
        return
    where, end = f"{lane.layout.topic}/{key.decode()}", lane.cut.strays.get(record.partition, 0)
    due = key_log.newest_of(record.partition, end)
    if not is_same(record, due):
        yield (
            f"{where}: a snapshot has the stray {show(record)};"
            f" below {record.partition}:{end} it is {show(due)}"
        )


def _no_registry() -> object:
    raise AssertionError("no topic has a schema")
