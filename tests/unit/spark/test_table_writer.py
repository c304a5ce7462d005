"""The writer of a view over a table, on lanes in memory: windows are GROUP BY, whatever lanes lose."""

from __future__ import annotations

import contextlib
import copy
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.support.lanes import CLOCK

from keylane import routing
from keylane.model.records import Layout, Options
from keylane.state.lanes import lane_of_key
from keylane.state.windows import Column, Definition, Progress, decode_rows, split
from keylane_spark.lanes.lane import LaneTarget, lanes_of
from keylane_spark.lanes.view_lanes import ViewLanes, ViewLaneState
from keylane_spark.views import table_writer
from keylane_spark.views.closings import Stretch
from keylane_spark.views.row_order import Positions
from keylane_spark.views.table_rows import FAILED, GONE, INVALID, SET
from keylane_spark.views.table_writer import TableTopic, TableWriter

if TYPE_CHECKING:
    from keylane_spark.lanes.view_lanes import Changes

LAYOUT = Layout("~v", 3)
VIEW = Definition("t", (Column("n", "count"), Column("noted", "count", "x")), key="g", envelope="debezium")
PARTITIONS = 2
_MARKER_BYTES = 22


class Killed(Exception):
    """The writer ends in the middle of its work."""


@dataclass
class LanesInMemory:
    """A double of `ViewLanes`. `stored`: of each lane its state, its windows and its rows."""

    lanes: list[LaneTarget] = field(default_factory=lambda: list(lanes_of(LAYOUT)))
    stored: dict[LaneTarget, tuple[ViewLaneState, dict, dict]] = field(default_factory=dict)
    commits_left: int = -1
    incomplete: bool = False
    said: list[str] = field(default_factory=list)
    row_names = staticmethod(ViewLanes.row_names)

    def open(self) -> dict[LaneTarget, ViewLaneState]:
        first = ViewLaneState(0, 0, Progress((0,) * PARTITIONS, (None,) * PARTITIONS))
        for lane in self.lanes:
            self.stored.setdefault(lane, (first, {}, {}))
        return {lane: state for lane, (state, _, _) in self.stored.items()}

    def rows(self, lane: LaneTarget, names: list[bytes]) -> list[bytes | None]:
        return [self.stored[lane][2].get(name) for name in names]

    def windows(self, lane: LaneTarget, names: list[bytes], decode: Any) -> dict[bytes, Any]:
        windows = self.stored[lane][1]
        return {name: decode(windows[name]) for name in names if name in windows}

    def commit(
        self, lane: LaneTarget, state: ViewLaneState, progress: Progress, changes: Changes, **_: Any
    ) -> ViewLaneState:
        if self.commits_left == 0:
            raise Killed
        self.commits_left -= 1
        stored, windows, rows = self.stored[lane]
        assert state.commits == stored.commits
        windows = {k: v for k, v in (windows | dict(changes.windows)).items() if k not in changes.gone}
        pairs = [*changes.rows, *changes.markers]
        written = dict(zip(pairs[::2], pairs[1::2], strict=True))
        rows = {k: v for k, v in (rows | written).items() if k not in changes.rows_gone}
        new = ViewLaneState(state.commits + 1, 0, progress)
        self.stored[lane] = new, windows, rows
        return new

    def mark_incomplete(self, _: object) -> None:
        self.incomplete = True

    def groups(self) -> dict[bytes, list[Any]]:
        """The states of all windows, each of which is in the lane of its key."""
        found = {}
        for lane, (_, windows, _) in self.stored.items():
            for name, value in windows.items():
                key, _ = split(name)
                assert lane_of_key(LAYOUT, key).partition == lane.partition
                found[key] = decode_rows(value)[1]
        return found


class Log:
    """Changes in memory: key, kind, group and whether it has x, by partition; and their times."""

    def __init__(self) -> None:
        self.changes: list[list[tuple[bytes | None, int, bytes | None, bool]]] = [
            [] for _ in range(PARTITIONS)
        ]
        self.times: dict[tuple[int, int], int] = {}

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(map(len, self.changes))

    def ms(self, partition: int, offset: int) -> int:
        return self.times.get((partition, offset), offset)

    def read_changes(self, stretch: Stretch) -> pa.Table:
        found = [
            (partition, offset, self.ms(partition, offset), *self.changes[partition][offset])
            for partition, (low, high) in enumerate(zip(stretch.begin, stretch.end, strict=True))
            for offset in range(low, high)
        ]
        random.Random(len(found)).shuffle(found)
        names = ("partition", "offset", "ms", "key", "kind", "group", "c1")
        kinds = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.int8(), pa.binary(), pa.bool_())
        columns = zip(*found, strict=True) if found else [()] * len(names)
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        return pa.table(dict(zip(names, arrays, strict=True)))

    def group_by(self) -> dict[bytes, list[int]]:
        """GROUP BY over the last change of each row, as a topic decides which one that is."""
        last: dict[bytes, tuple[Any, Any]] = {}
        for partition, own in enumerate(self.changes):
            in_partition: dict[bytes, tuple[int, Any]] = {}
            for offset, (key, *change) in enumerate(own):
                if key is not None:
                    before_ms, _ = in_partition.get(key, (-1, None))
                    in_partition[key] = max(before_ms, self.ms(partition, offset)), change
            for key, (ms, change) in in_partition.items():
                rank = ms, routing.partition_for(key, PARTITIONS) == partition, -partition
                last[key] = max(last.get(key, ((-1,), None)), (rank, change), key=lambda each: each[0])
        found: dict[bytes, list[int]] = {}
        for _, (kind, group, has_x) in last.values():
            if kind == SET:
                counts = found.setdefault(group, [0, 0])
                counts[0] += 1
                counts[1] += has_x
        return found


def change(chance: random.Random) -> tuple[bytes | None, int, bytes | None, bool]:
    kind = chance.choice([SET, SET, SET, GONE, INVALID])
    # A row that `where` does not want has a group, too.
    group = b"group %d" % chance.randrange(6) if kind == SET or chance.random() < 0.5 else None
    return b"%d" % chance.randrange(30), kind, group, chance.random() < 0.5


def caught_up(
    lanes: LanesInMemory, log: Log, ends: tuple[int, ...] | None = None, **topic: int
) -> TableWriter:
    """As a view's query begins, and reads on to the log's end, or to these."""
    of = TableTopic(**({"read_since_ms": CLOCK.now_ms()} | topic))
    say = lanes.said.append
    writer = TableWriter(VIEW, LAYOUT, lanes, lanes.open(), CLOCK, say, topic=of)  # type: ignore[arg-type]
    furthest = writer.furthest
    for offsets, behind in writer.behind.items():
        writer.fold(log, offsets, furthest, behind)  # type: ignore[arg-type]
    writer.fold(log, furthest, ends or log.ends)  # type: ignore[arg-type]
    return writer


@pytest.mark.parametrize("seed", range(12))
def test_windows_are_of_the_rows_as_they_are_whatever_is_killed_lost_or_repeated(seed, monkeypatch):
    """Rows have changes in all partitions, each of which is read at a speed of its own."""
    chance = random.Random(seed)
    monkeypatch.setattr(table_writer, "SLICE_RECORDS", chance.choice([1, 7, 4000]))
    lanes, log = LanesInMemory(), Log()
    before = [copy.copy(lanes.stored)]
    for _ in range(12):
        for partition, own in enumerate(log.changes):
            own.extend(change(chance) for _ in range(chance.randrange(30)))
            repeated = chance.randrange(10) if chance.random() < 0.3 else 0
            own.extend(own[max(0, len(own) - repeated) :])
            for offset in range(len(own)):
                log.times.setdefault((partition, offset), max(0, offset // 3 + chance.randrange(-5, 5)))
        lanes.commits_left = chance.choice([-1, chance.randrange(8)])
        with contextlib.suppress(Killed):
            reached = [
                max(pair) for pair in zip(*(s.progress.offsets for s in lanes.open().values()), strict=True)
            ]
            ends = tuple(chance.randint(*pair) for pair in zip(reached, log.ends, strict=True))
            caught_up(lanes, log, ends)
        lanes.commits_left = -1
        if chance.random() < 0.3 and lanes.stored:
            # A failover takes lanes back to what their replicas had.
            for lane in chance.sample(lanes.lanes, chance.randint(1, 3)):
                lanes.stored[lane] = chance.choice(before).get(lane, lanes.stored[lane])
        before.append(copy.copy(lanes.stored))
        if chance.random() < 0.5:
            caught_up(lanes, log)
            assert lanes.groups() == log.group_by()
    caught_up(lanes, log)
    assert lanes.groups() == log.group_by()
    rows = [len(row) > _MARKER_BYTES for _, _, rows in lanes.stored.values() for row in rows.values()]
    assert sum(rows) == sum(count for count, _ in log.group_by().values())
    invalid = sum(kind == INVALID for own in log.changes for _, kind, *_ in own)
    assert lanes.stored[lanes.lanes[0]][0].progress.invalid == invalid
    assert not lanes.incomplete


WHEN = CLOCK.now_ms() - 2 * Options().marker_ms
OWN, OTHER = (next(b"%d" % i for i in range(99) if routing.partition_for(b"%d" % i, 2) == p) for p in (1, 0))
DELETED, NEW = (GONE, None), (SET, b"new")


@pytest.mark.parametrize(
    ("key", "later", "at_ms", "expected"),
    [
        (OWN, [(*DELETED, 5)], 0, {}),
        (OWN, [(*NEW, 5)], 0, {b"new": [1, 0]}),
        (OWN, [(INVALID, None, 5)], 0, {}),
        # At the same time: where the key belongs, else in the lower partition.
        (OWN, [(*DELETED, 5)], 5, {}),
        (OTHER, [(*DELETED, 5)], 5, {b"old": [1, 0]}),
        # A clock goes back: what the row had reached in its partition counts.
        (OWN, [(*NEW, 9), (*DELETED, 1)], 5, {}),
        (OWN, [(*DELETED, 5)], 6, {b"old": [1, 0]}),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_whatever_partition_is_read_first_a_row_is_as_its_last_change_says(
    key, later, at_ms, expected, at_once
):
    """A topic that grew from one partition to two: the row's first change is in partition 0."""
    for order in ((0, 1), (1, 0)):
        lanes, log = LanesInMemory(), Log()
        log.changes = [[(key, SET, b"old", False)], [(key, kind, group, False) for kind, group, _ in later]]
        log.times = {(1, offset): ms for offset, (_, _, ms) in enumerate(later)} | {(0, 0): at_ms}
        ends = [0, 0]
        for partition in order:
            ends[partition] = len(log.changes[partition])
            if not at_once:
                caught_up(lanes, log, tuple(ends))
        caught_up(lanes, log)
        assert lanes.groups() == expected
        assert not lanes.incomplete


@pytest.mark.parametrize(
    ("key", "at_ms", "topic", "is_unknown"),
    [
        (OWN, WHEN, {"read_since_ms": 0}, True),
        # As old as the newest that was read where the key belongs: a deletion of that time would be the last.
        (OWN, WHEN + 5, {"read_since_ms": 0}, True),
        (OWN, WHEN, {"read_since_ms": WHEN}, True),
        (OWN, WHEN, {"marker_ms": 0}, True),
        (OWN, WHEN, {"marker_ms": 0, "is_one_run": True}, True),
        # What has been read since the job's start has left markers, which are there.
        (OWN, WHEN, {"read_since_ms": 0, "is_one_run": True}, False),
        # All markers are there: the topic has not been read for that long.
        (OWN, WHEN, {}, False),
        # Newer than all that was read where the key belongs; newer than any marker that is gone.
        (OWN, WHEN + 9, {"read_since_ms": 0}, False),
        (OWN, CLOCK.now_ms(), {"read_since_ms": 0}, False),
        # A row that has always been where its key belongs.
        (OTHER, WHEN, {"read_since_ms": 0}, False),
    ],
    ids=[
        *(
            "read for ever",
            "at the same time",
            "read since then",
            "no markers",
            "no markers in one run",
            "in one run",
        ),
        *("read lately", "newer than all", "newer than markers", "where it belongs"),
    ],  # times of now have no place in a test's name
)
def test_a_row_whose_deletion_may_have_left_no_marker_makes_the_view_incomplete(
    key, at_ms, topic, is_unknown
):
    lanes, log = LanesInMemory(), Log()
    log.changes = [[(key, SET, b"old", False)], [(b"other", GONE, None, False)]]
    log.times = {(0, 0): at_ms, (1, 0): WHEN + 5 if at_ms < WHEN + 20 else at_ms + 5}
    topic = dict(topic)
    is_one_run = topic.pop("is_one_run", False)
    writer = caught_up(lanes, log, (0, 1), **topic)
    writer = writer if is_one_run else caught_up(lanes, log, (0, 1), **topic)
    writer.fold(log, (0, 1), (1, 1))  # type: ignore[arg-type]
    assert lanes.groups() == {b"old": [1, 0]}
    assert lanes.incomplete == is_unknown
    assert any(line.startswith("INCOMPLETE: ") for line in lanes.said) == is_unknown


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([(0, OWN, SET, b"old", 0), (1, b"else", *DELETED, 5)], [(0, OWN, SET, b"new", 0)]),
        ([(1, b"else", *DELETED, 5)], [(0, OWN, *DELETED, 0)]),
        ([(1, b"else", *DELETED, 5)], [(0, OWN, SET, b"old", 0), (1, OWN, SET, b"new", 6)]),
        ([(0, b"else", *DELETED, 5)], [(0, OTHER, SET, b"old", 0)]),
    ],
    ids=["known", "deleted", "replaced at once", "where it belongs, of a clock that went back"],
)
def test_an_old_change_of_a_row_of_which_enough_is_known_is_in_no_doubt(first, then):
    lanes, log = LanesInMemory(), Log()
    for changes, topic in ((first, {}), (then, {"read_since_ms": 0})):
        for partition, key, kind, group, ms in changes:
            log.times[partition, log.ends[partition]] = WHEN + ms
            log.changes[partition].append((key, kind, group, False))
        caught_up(lanes, log, **topic)
    assert lanes.groups() == log.group_by()
    assert not lanes.incomplete


@pytest.mark.parametrize(("key", "partition"), [(OWN, 1), (OTHER, 0)])
def test_what_an_emptied_lane_reads_again_is_in_no_doubt(key, partition, monkeypatch):
    """It meets the deletion before or after the older change, in another slice; its marker is gone."""
    monkeypatch.setattr(table_writer, "SLICE_RECORDS", 1)
    lanes, log = LanesInMemory(), Log()
    log.changes[1 - partition], log.changes[partition] = (
        [(key, SET, b"old", False)],
        [(key, GONE, None, False)],
    )
    log.times = {(1 - partition, 0): WHEN, (partition, 0): WHEN + 5}
    caught_up(lanes, log)
    lane = next(each for each in lanes.lanes if each.partition == lane_of_key(LAYOUT, b"old").partition)
    lanes.stored = {each: (state, windows, {}) for each, (state, windows, _) in lanes.stored.items()}
    del lanes.stored[lane]
    caught_up(lanes, log, read_since_ms=0)
    assert lanes.groups() == {}
    assert not lanes.incomplete


def test_at_the_same_time_the_change_where_the_key_belongs_is_the_last_else_that_of_the_lower_partition():
    at = Positions(*map(np.array, ([0, 1, 2, 1, 2], [0] * 5, [7] * 5, [False, False, True, False, False])))
    assert at.are_last(np.array([0, 0, 0, 1, 1])).tolist() == [False, False, True, True, False]
    others = at.taken(np.array([1, 0, 0, 4, 3]))
    assert at.are_after(others).tolist() == [True, False, True, True, False]
    later = at._replace(offset=at.offset + 1)
    assert later.are_after(at).tolist() == [True] * 5
    assert at.are_after(later).tolist() == at.are_after(at).tolist() == [False] * 5


def test_what_changes_no_row_moves_the_lanes_to_its_end_once():
    lanes, log = LanesInMemory(), Log()
    log.changes[0] = [(b"%d" % number, GONE, None, False) for number in range(3)]
    caught_up(lanes, log)
    assert {state.progress.offsets for state, *_ in lanes.stored.values()} == {log.ends}
    assert {state.commits for state, *_ in lanes.stored.values()} == {1}


def test_windows_that_were_written_are_counted():
    lanes, log = LanesInMemory(), Log()
    log.changes[0] = [(b"a", SET, b"g", False), (b"b", SET, b"h", False), (b"c", SET, b"h", False)]
    writer = TableWriter(VIEW, LAYOUT, lanes, lanes.open(), CLOCK)  # type: ignore[arg-type]
    assert writer.fold(log, (0, 0), log.ends).windows == 2  # type: ignore[arg-type]


def test_failed_changes_take_rows_out_and_are_counted_with_the_position_of_the_last():
    lanes, log = LanesInMemory(), Log()
    log.changes[0] = [(b"a", SET, b"g", False), (b"b", FAILED, None, False), (b"a", FAILED, None, False)]
    caught_up(lanes, log)
    assert lanes.groups() == {}
    progress = lanes.stored[lanes.lanes[0]][0].progress
    assert (progress.failed, progress.failed_at) == (2, "0:2")
    log.changes[0].append((b"a", SET, b"g", False))
    caught_up(lanes, log)
    progress = lanes.stored[lanes.lanes[0]][0].progress
    assert (lanes.groups(), progress.failed, progress.failed_at) == ({b"g": [1, 0]}, 2, "0:2")


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_slices_are_all_changes_once_and_each_says_how_far_it_goes(count, monkeypatch):
    monkeypatch.setattr(table_writer, "SLICE_RECORDS", 3)
    log = Log()
    log.changes = [
        [(b"k", SET, b"g", False)] * (count // 2),
        [(b"k", SET, b"g", False)] * (count - count // 2),
    ]
    stretch = Stretch((0, 0), log.ends, 0)
    found = list(table_writer._slices(log.read_changes(stretch), stretch))
    full = max(0, count - 1) // 3
    assert [len(each.changes) for each in found] == [3] * full + [count - 3 * full]
    assert [sum(each.end) for each in found] == [*range(3, count, 3), count]
    assert found[-1].end == log.ends


class Refused(PySparkException):
    """What Spark raises; of class 22 it is about a value."""

    def __init__(self, state: str) -> None:
        super().__init__("refused")
        self._state = state

    def getSqlState(self) -> str:  # noqa: N802 (PySpark's name)
        return self._state


class BadLog(Log):
    """Spark fails on the record at 0:1, whatever is asked of it."""

    state = "22003"

    def read_changes(self, stretch: Stretch) -> pa.Table:
        if stretch.begin[0] <= 1 < stretch.end[0]:
            raise Refused(self.state)
        return super().read_changes(stretch)

    def read_failed(self, _: Stretch) -> pa.Table:
        raise Refused(self.state)


def test_a_record_on_which_spark_fails_is_counted_and_passed_by_and_other_errors_are_raised():
    lanes, log = LanesInMemory(), BadLog()
    log.changes[0] = [(b"%d" % number, SET, b"g", False) for number in range(3)]
    log.changes[1] = [(b"3", SET, b"g", False)]
    log.state = "08000"
    with pytest.raises(Refused):
        caught_up(lanes, log)
    assert lanes.groups() == {}
    log.state = "22003"
    caught_up(lanes, log)
    progress = lanes.stored[lanes.lanes[0]][0].progress
    assert (lanes.groups(), progress.failed, progress.failed_at) == ({b"g": [3, 0]}, 1, "0:1")
