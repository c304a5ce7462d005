"""A view's writer on a real cluster: whatever its lanes lose, what was reported final stays as it is."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from tests.support import lanes as t

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import LaneBehind
from keylane.model.records import Layout, Options
from keylane.state.lanes import decode_watermark
from keylane.state.windows import Closing, Column, Definition, Progress, is_final
from keylane_spark.lanes.function_library import FunctionLibrary
from keylane_spark.lanes.view_lanes import ViewLanes
from keylane_spark.views import view_writer
from keylane_spark.views.closings import Stretch
from keylane_spark.views.partials import PartialWindow
from keylane_spark.views.view_writer import ViewWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_spark.lanes.lane import LaneTarget
    from keylane_spark.views.closings import Offsets

COUNT = (Column("n", "count"),)
VIEWS = {
    "tumbling": Definition("t", COUNT, size_ms=10, lateness_ms=4),
    "hopping": Definition("t", COUNT, size_ms=10, every_ms=4, lateness_ms=2),
    "sessions": Definition("t", COUNT, size_ms=6, is_session=True, lateness_ms=3),
}
PARTITIONS, LANES = 3, 3
KEYS = [b"k%d" % number for number in range(5)]
NUMBERS = itertools.count()
SEEDS = range(8)
Final = dict[bytes, tuple[int, int]]
"""The final windows of a lane: window key -> end and count."""


class Killed(Exception):
    """The writer ends in the middle of its work."""


@dataclass
class PlainLog:
    """A topic in memory: key and event time of each record of each partition."""

    view: Definition
    records: list[list[tuple[bytes, int]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    @property
    def ends(self) -> Offsets:
        return tuple(map(len, self.records))

    def read(self, stretch: Stretch) -> list[PartialWindow]:
        """Partial windows by plain code: one for each partition, key and window."""
        found = []
        for partition, bounds in enumerate(zip(stretch.begin, stretch.end, strict=True)):
            own = self.records[partition][slice(*bounds)]
            for key in KEYS:
                times = [time for each, time in own if each == key]
                for start, end, count, newest in self._windows(times, stretch.watermark_ms):
                    found.append(PartialWindow(partition, key, start, end, count, newest, [count]))
        return found

    def _windows(self, times: list[int], watermark_ms: int) -> Iterator[tuple[int, int, int, int]]:
        size_ms = self.view.size_ms or 0
        if self.view.is_session:
            late = [time for time in times if time + size_ms <= watermark_ms]
            yield from _sessions(late, size_ms)
            yield from _sessions([time for time in times if time + size_ms > watermark_ms], size_ms)
            return
        every_ms = self.view.every_ms or size_ms
        by_start: dict[int, list[int]] = {}
        for time in times:
            for start in range(time - time % every_ms, time - size_ms, -every_ms):
                by_start.setdefault(start, []).append(time)
        for start, those in by_start.items():
            yield start, start + size_ms, len(those), max(those)


def _sessions(times: list[int], gap_ms: int) -> Iterator[tuple[int, int, int, int]]:
    current: list[int] = []
    for time in [*sorted(times), None]:
        if current and (time is None or time >= current[-1] + gap_ms):
            yield current[0], current[-1] + gap_ms, len(current), current[-1]
            current = []
        if time is not None:
            current.append(time)


class Schedule:
    """A view that is written, killed and partly taken back at random, and watched."""

    def __init__(self, nodes: str, view: Definition, seed: int) -> None:
        self.cluster = Cluster(t.settings(nodes))
        self.client = t.client(nodes)
        self.chance = random.Random(seed)
        self.log = PlainLog(view)
        self.view = view
        self.layout = Layout(f"~writer-{next(NUMBERS)}", LANES, options=Options(index=True))
        self.epoch = 0
        self.writer: ViewWriter | None = None
        self.lanes = self.new_lanes()
        self.before: dict[LaneTarget, list[dict[bytes, bytes]]] = {lane: [] for lane in self.lanes.lanes}
        self.reported: dict[LaneTarget, tuple[int, Final]] = {lane: (0, {}) for lane in self.lanes.lanes}
        self.lost: set[LaneTarget] = set()
        self.now_ms = 1000

    def close(self) -> None:
        self.cluster.close()
        self.client.close()

    def new_lanes(self) -> ViewLanes:
        return ViewLanes(self.layout, FunctionLibrary(self.cluster, t.CLOCK), self.epoch)

    def open(self, kill_after: int | None = None) -> None:
        """As a view's query begins: all lanes come to where the furthest is."""
        self.epoch += 1
        self.writer = None
        self.lanes = self.new_lanes()
        states = self.lanes.open(Progress((0,) * PARTITIONS, (None,) * PARTITIONS))
        self.kill_after(kill_after)
        writer = ViewWriter(self.view, self.layout, self.lanes, states, t.CLOCK)
        writer.share_closings()
        for offsets, lanes in writer.behind.items():
            writer.fold(self.log, offsets, writer.furthest, lanes)
        self.writer = writer
        self.lost.clear()

    def kill_after(self, commits: int | None) -> None:
        """Have the writer end after so many commits; None: never."""
        left = iter(range(commits)) if commits is not None else itertools.count()
        commit = ViewLanes.commit.__get__(self.lanes)

        def commit_or_end(*arguments: Any, **more: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return commit(*arguments, **more)

        self.lanes.commit = commit_or_end  # type: ignore[method-assign]

    def step(self) -> None:
        """Do something; then see what the lanes report."""
        act = self.chance.choice(
            [self.produce, self.produce, self.batch, self.batch, self.beat, self.take_back]
        )
        try:
            if self.writer is None and act != self.take_back:
                self.open(self.chance.choice([None, None, self.chance.randrange(6)]))
            self.kill_after(self.chance.choice([None, None, self.chance.randrange(1, 6)]))
            act()
        except (Killed, LaneBehind):
            self.writer = None
            if self.chance.random() < 0.3:
                # Before anyone could repair what the writer left undone.
                self.watch()
                self.take_back()
        self.watch()

    def produce(self) -> None:
        for _ in range(self.chance.randrange(1, 12)):
            self.now_ms += self.chance.randrange(4)
            time = self.now_ms - self.chance.choice([0, 0, 1, 5, 15, 30])
            self.log.records[self.chance.randrange(PARTITIONS)].append((self.chance.choice(KEYS), time))

    def batch(self) -> None:
        begin = self.writer.furthest
        pairs = zip(begin, self.log.ends, strict=True)
        end = tuple(self.chance.choice([high, self.chance.randint(low, high)]) for low, high in pairs)
        self.writer.fold(self.log, begin, end)
        self.writer.close_windows(self.caught_up())

    def beat(self) -> None:
        self.writer.mark_complete(0, self.caught_up())

    def caught_up(self) -> set[int]:
        pairs = zip(self.writer.furthest, self.log.ends, strict=True)
        return {partition for partition, (at, end) in enumerate(pairs) if at == end}

    def take_back(self) -> None:
        """Take some lanes back to what they were, but not all since the last repair."""
        for lane in self.chance.sample(self.lanes.lanes, LANES - 1):
            if self.before[lane] and len(self.lost | {lane}) < LANES:
                self.lost.add(lane)
                for _ in range(self.chance.randrange(min(8, len(self.before[lane])))):
                    self.before[lane].pop()
                self.restore(lane, self.before[lane][-1])

    def restore(self, lane: LaneTarget, data: dict[bytes, bytes]) -> None:
        for key in self.keys_of(lane):
            self.client.delete(key)
        for key, dump in data.items():
            self.client.restore(key, 0, dump, replace=True)

    def keys_of(self, lane: LaneTarget) -> list[bytes]:
        names = self.client.zrange(self.key_of(lane, b"i"), 0, -1)
        return [
            *(lane.key_prefix + name for name in names),
            *(self.key_of(lane, kind) for kind in (b"i", b"p", b"c", b"w", b"l")),
        ]

    def key_of(self, lane: LaneTarget, kind: bytes) -> bytes:
        return lane.key_prefix[:-2] + kind + b":" + lane.name.encode()

    def watch(self) -> None:
        """What a lane reports as final is what it reported when it first did."""
        for lane in self.lanes.lanes:
            if not self.client.exists(lane.watermark_key):
                continue
            watermark_ms = self.event_time(lane)
            final = {name: own for name, own in self.windows(lane).items() if is_final(own[0], watermark_ms)}
            seen_ms, seen = self.reported[lane]
            known_ms = min(watermark_ms, seen_ms)
            assert until(final, known_ms) == until(seen, known_ms), str(lane)
            if watermark_ms > seen_ms:
                self.reported[lane] = watermark_ms, final
            dumps = {key: dump for key in self.keys_of(lane) if (dump := self.client.dump(key))}
            self.before[lane].append(dumps)

    def event_time(self, lane: LaneTarget) -> int:
        data = self.client.get(lane.watermark_key)
        return decode_watermark(lane.watermark_key, data).newest_timestamp_ms

    def windows(self, lane: LaneTarget) -> Final:
        names = self.client.zrange(self.key_of(lane, b"i"), 0, -1)
        return {
            name: (end or 0, states[0]) for name, (end, states) in self.lanes.windows(lane, names).items()
        }

    def finish(self) -> None:
        """Count all that there is, without trouble: each record is in its windows, or was late."""
        self.open()
        self.writer.fold(self.log, self.writer.furthest, self.log.ends)
        for _ in range(2):
            self.writer.mark_complete(0, set(range(PARTITIONS)))
        self.watch()
        counted = sum(count for lane in self.lanes.lanes for _, count in self.windows(lane).values())
        late = sum(state.progress.late for state in self.writer.states.values())
        every = Stretch((0,) * PARTITIONS, self.log.ends, 0)
        assert counted + late == sum(partial.records for partial in self.log.read(every))


def until(final: Final, watermark_ms: int) -> Final:
    return {name: own for name, own in final.items() if own[0] <= watermark_ms}


@pytest.fixture
def schedule(redis_cluster):
    found = Schedule(redis_cluster, VIEWS["tumbling"], 0)
    yield found
    found.close()


def test_no_lane_reports_a_window_as_final_before_every_lane_has_what_closed_it(schedule):
    schedule.log.records[0] = [(key, 1000) for key in KEYS] + [(KEYS[0], 1014)]
    schedule.open()
    schedule.writer.fold(schedule.log, (0, 0, 0), (6, 0, 0))
    schedule.kill_after(1)
    with pytest.raises(Killed):
        schedule.writer.close_windows({0, 1, 2})
    assert {schedule.event_time(lane) for lane in schedule.lanes.lanes} == {0}
    schedule.open()
    for _ in range(2):
        schedule.writer.mark_complete(0, {0, 1, 2})
    assert {schedule.event_time(lane) for lane in schedule.lanes.lanes} == {1010}


def test_while_records_are_read_again_nothing_more_is_decided(schedule):
    first, *others = schedule.lanes.lanes
    schedule.log.records = [[(KEYS[0], 1000 + number)] * 2 for number in (0, 20, 40)]
    schedule.open()
    schedule.watch()
    begun = {lane: schedule.before[lane][-1] for lane in schedule.lanes.lanes}
    schedule.writer.fold(schedule.log, (0, 0, 0), (2, 2, 2))
    schedule.writer.close_windows({0, 1, 2})
    for lane in others:
        schedule.restore(lane, begun[lane])
    with pytest.raises(Killed):
        # Each has the closing then, and nothing else.
        schedule.open(kill_after=len(others))
    schedule.restore(first, begun[first])
    schedule.open()
    closings = [Closing((2, 2, 2), 1036)]
    schedule.writer.fold(schedule.log, (0, 0, 0), (2, 1, 1))
    schedule.writer.mark_complete(0, {0, 1})
    assert {schedule.event_time(lane) for lane in schedule.lanes.lanes} == {0}
    schedule.writer.fold(schedule.log, (2, 1, 1), (2, 2, 2))
    schedule.writer.mark_complete(0, {0, 1, 2})
    assert {schedule.event_time(lane) for lane in schedule.lanes.lanes} == {1036}
    schedule.open()
    assert {state.closings for state in schedule.writer.states.values()} <= {tuple(closings), ()}


def test_windows_that_are_too_large_together_are_read_in_parts(schedule, monkeypatch):
    """The second half of the records adds to the twenty windows of the first."""
    records = [(KEYS[number % 5], 1000 + number % 20 * 10) for number in range(40)]
    schedule.log.records = [records] * PARTITIONS
    schedule.open()
    schedule.writer.fold(schedule.log, (0, 0, 0), (20, 20, 20))
    monkeypatch.setattr(view_writer, "MAX_STORED_BYTES", 40)
    read, sizes = schedule.lanes.windows, []

    def watched(*arguments: Any) -> Any:
        found = read(*arguments)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(schedule.lanes, "windows", watched)
    schedule.writer.fold(schedule.log, (20, 20, 20), (40, 40, 40))
    assert max(sizes) <= 2, "windows of 18 bytes each, or more, where 40 are enough"
    counted = sum(count for lane in schedule.lanes.lanes for _, count in schedule.windows(lane).values())
    assert counted == 40 * PARTITIONS


@dataclass
class PoisonedLog(PlainLog):
    """A log on some of whose records, (partition, offset), Spark fails, with an error of this SQLSTATE."""

    poisoned: frozenset[tuple[int, int]] = frozenset()
    state: str = "22018"

    def read(self, stretch: Stretch) -> list[PartialWindow]:
        for partition, (low, high) in enumerate(zip(stretch.begin, stretch.end, strict=True)):
            if any((partition, offset) in self.poisoned for offset in range(low, high)):
                raise a_spark_error(self.state)
        return super().read(stretch)


def a_spark_error(state: str) -> PySparkException:
    error = PySparkException("[CAST_INVALID_INPUT] the value 'x' cannot be cast\nin this plan")
    error.getSqlState = lambda: state  # type: ignore[method-assign]
    return error


@pytest.fixture
def poisoned(schedule) -> PoisonedLog:
    """Seven records of each partition, of which Spark fails on three."""
    records = [[(KEYS[number % 5], 1000 + number) for number in range(7)] for _ in range(PARTITIONS)]
    schedule.log = PoisonedLog(schedule.view, records, frozenset({(0, 3), (1, 0), (1, 6)}))
    return schedule.log


def test_records_on_which_spark_fails_are_named_counted_and_passed_by(schedule, poisoned):
    schedule.open()
    said = []
    schedule.writer._say = said.append
    counts = schedule.writer.fold(poisoned, (0, 0, 0), (7, 7, 7))
    assert (counts.failed, counts.invalid) == (3, 0)
    assert [line.partition(":")[2].split(" can't")[0] for line in said] == [
        " the record at 1:0",
        " the record at 0:3",
        " the record at 1:6",
    ]
    counted = sum(count for lane in schedule.lanes.lanes for _, count in schedule.windows(lane).values())
    assert counted == 18
    first, *others = (schedule.writer.states[lane].progress for lane in schedule.lanes.lanes)
    assert (first.failed, first.failed_at) == (3, "1:6")
    assert {each.failed for each in others} == {0}
    assert schedule.writer.furthest == (7, 7, 7)


def test_where_spark_fails_on_many_records_a_few_are_named_and_all_are_counted(
    schedule, poisoned, monkeypatch
):
    monkeypatch.setattr(view_writer, "MAX_NAMED", 2)
    schedule.open()
    said = []
    schedule.writer._say = said.append
    assert schedule.writer.fold(poisoned, (0, 0, 0), (7, 7, 7)).failed == 3
    assert [line.partition(" can't")[0] for line in said] == [
        "FAILED: the record at 1:0",
        "FAILED: the record at 0:3",
    ]
    assert "and so may others" in said[1]
    assert "others" not in said[0]


def test_an_error_that_is_not_about_a_value_is_no_record_s_fault(schedule, poisoned):
    poisoned.state = "XXKD0"
    schedule.open()
    with pytest.raises(PySparkException):
        schedule.writer.fold(poisoned, (0, 0, 0), (7, 7, 7))
    assert schedule.writer.furthest == (0, 0, 0)


def test_why_a_view_has_stopped_is_kept_until_it_runs_again(schedule):
    schedule.open()
    schedule.writer.report_stop("it can't be computed")
    schedule.open()
    [stopped, *others] = [schedule.writer.states[lane].progress.stopped for lane in schedule.lanes.lanes]
    assert (stopped, set(others)) == ("it can't be computed", {""})
    schedule.writer.report_stop("")
    schedule.open()
    assert {state.progress.stopped for state in schedule.writer.states.values()} == {""}


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_killed_or_taken_back_final_windows_stay_and_each_record_counts_once(
    redis_cluster, monkeypatch, kind, seed
):
    monkeypatch.setattr(view_writer, "MAX_RECORDS", 12)
    monkeypatch.setattr(view_writer, "MAX_STORED_BYTES", 150)
    schedule = Schedule(redis_cluster, VIEWS[kind], seed)
    try:
        for _ in range(40):
            schedule.step()
        schedule.finish()
    finally:
        schedule.close()
