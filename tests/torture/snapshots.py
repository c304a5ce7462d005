"""Snapshots of whole topics, taken while a schedule runs; each lane is compared with its fold afterwards."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.own import CLOCK
from tests.torture.background import Background
from tests.torture.checks import ReaderCheck
from tests.torture.oracle import is_same, show
from tests.torture.reading import Seen
from tests.torture.sources import TERMS, change_reader

from keylane.errors import KeylaneError
from keylane.model.records import Answer
from keylane.query.lane_snapshot import LaneCut
from keylane.query.snapshot import SnapshotScan, TopicSnapshot
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


class Snapshots(Background):
    """A thread that takes a snapshot of one topic after the other. `lanes`: what it got of them."""

    def __init__(self, stack: TortureStack, seed: int) -> None:
        super().__init__("snapshots")
        self.lanes: list[ReadLane] = []
        self._stack, self._seed = stack, seed
        self._source = random.Random(f"{seed}/snapshots")

    def take(self) -> list[ReadLane]:
        """Rest; return the lanes since the last call."""
        self.rest()
        taken, self.lanes = self.lanes, []
        self._counts["snapshots, lanes"] += len(taken)
        return taken

    def check_at_rest(self, facts: Facts) -> Iterator[str]:
        """Take one where nothing is in the way any more: it must succeed, and be right."""
        topic = random.Random(f"{self._seed}/{len(self.lanes)}/rest").choice(list(self._stack.shapes))
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

    def _act(self) -> None:
        try:
            self.lanes.extend(self._take(self._source.choice(list(self._stack.shapes)), may_rest=True))
            self._counts["snapshots"] += 1
        except (KeylaneError, _Rests) as error:
            # Lanes that were cut before are there: a problem ends the rest alone.
            self._counts[f"snapshots, {type(error).__name__.strip('_')}"] += 1
            time.sleep(_PAUSE_S)

    def _take(self, topic: str, *, may_rest: bool) -> Iterator[ReadLane]:
        """Yield the lanes of a snapshot as they are cut. Raises KeylaneError, _Rests."""

        def pause(seconds: float) -> None:
            if may_rest and not self._goes_on.is_set():
                raise _Rests
            time.sleep(seconds)

        with change_reader(self._stack, replace(CLOCK, pause_s=pause)) as reader:
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
