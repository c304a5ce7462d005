"""The writer of a view over a table, on lanes in memory: windows are GROUP BY, whatever lanes lose."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.lanes import CLOCK

from keylane.model.records import Layout
from keylane.state.lanes import lane_of_key
from keylane.state.windows import Column, Definition, Progress, decode_rows, split
from keylane_spark.lanes.lane import LaneTarget, lanes_of
from keylane_spark.lanes.view_lanes import ViewLanes, ViewLaneState
from keylane_spark.views import table_writer
from keylane_spark.views.table_rows import GONE, INVALID, SET
from keylane_spark.views.table_writer import TableWriter

if TYPE_CHECKING:
    from keylane_spark.lanes.view_lanes import Changes
    from keylane_spark.views.closings import Stretch

LAYOUT = Layout("~v", 3)
VIEW = Definition("t", (Column("n", "count"), Column("noted", "count", "x")), key="g", envelope="debezium")
PARTITIONS = 2


class Killed(Exception):
    """The writer ends in the middle of its work."""


@dataclass
class LanesInMemory:
    """A double of `ViewLanes`. `stored`: of each lane its state, its windows and its rows."""

    lanes: list[LaneTarget] = field(default_factory=lambda: list(lanes_of(LAYOUT)))
    stored: dict[LaneTarget, tuple[ViewLaneState, dict, dict]] = field(default_factory=dict)
    commits_left: int = -1
    incomplete: bool = False
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
        written = dict(zip(changes.rows[::2], changes.rows[1::2], strict=True))
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
    """Changes in memory: key, kind, group and whether it has x, by partition."""

    def __init__(self) -> None:
        self.changes: list[list[tuple[bytes | None, int, bytes | None, bool]]] = [
            [] for _ in range(PARTITIONS)
        ]

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(map(len, self.changes))

    def read_changes(self, stretch: Stretch) -> pa.Table:
        found = [
            (partition, offset, offset, *self.changes[partition][offset])
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
        """GROUP BY over the last change of each row."""
        last = {key: change for own in self.changes for key, *change in own if key is not None}
        found: dict[bytes, list[int]] = {}
        for kind, group, has_x in last.values():
            if kind == SET:
                counts = found.setdefault(group, [0, 0])
                counts[0] += 1
                counts[1] += has_x
        return found


def change(chance: random.Random, partition: int) -> tuple[bytes | None, int, bytes | None, bool]:
    key = b"%d.%d" % (partition, chance.randrange(20))
    kind = chance.choice([SET, SET, SET, GONE, INVALID])
    return key, kind, b"group %d" % chance.randrange(6) if kind == SET else None, chance.random() < 0.5


def caught_up(lanes: LanesInMemory, log: Log) -> TableWriter:
    """As a view's query begins, and reads on to the log's end."""
    writer = TableWriter(VIEW, LAYOUT, lanes, lanes.open(), CLOCK)  # type: ignore[arg-type]
    for offsets, behind in writer.behind.items():
        writer.fold(log, offsets, writer.furthest, behind)  # type: ignore[arg-type]
    writer.fold(log, writer.furthest, log.ends)  # type: ignore[arg-type]
    return writer


@pytest.mark.parametrize("seed", range(8))
def test_windows_are_of_the_rows_as_they_are_whatever_is_killed_lost_or_repeated(seed, monkeypatch):
    chance = random.Random(seed)
    monkeypatch.setattr(table_writer, "SLICE_RECORDS", chance.choice([1, 7, 4000]))
    lanes, log = LanesInMemory(), Log()
    before = [copy.copy(lanes.stored)]
    for _ in range(12):
        for partition, own in enumerate(log.changes):
            own.extend(change(chance, partition) for _ in range(chance.randrange(30)))
            repeated = chance.randrange(10) if chance.random() < 0.3 else 0
            own.extend(own[max(0, len(own) - repeated) :])
        lanes.commits_left = chance.choice([-1, chance.randrange(8)])
        with contextlib.suppress(Killed):
            caught_up(lanes, log)
        lanes.commits_left = -1
        if chance.random() < 0.3 and lanes.stored:
            # A failover takes a lane back to what its replica had.
            lane, then = chance.choice(lanes.lanes), chance.choice(before)
            if lane in then:
                lanes.stored[lane] = then[lane]
        before.append(copy.copy(lanes.stored))
        if chance.random() < 0.5:
            caught_up(lanes, log)
            assert lanes.groups() == log.group_by()
    caught_up(lanes, log)
    assert lanes.groups() == log.group_by()
    names = list(itertools.chain.from_iterable(rows for _, _, rows in lanes.stored.values()))
    assert len(names) == sum(count for count, _ in log.group_by().values())
    invalid = sum(kind == INVALID for own in log.changes for _, kind, *_ in own)
    assert lanes.stored[lanes.lanes[0]][0].progress.invalid == invalid
    assert not lanes.incomplete


def test_a_change_of_another_partition_that_is_older_is_left_out_and_marked():
    lanes, log = LanesInMemory(), Log()
    log.changes[1] = [(None, INVALID, None, False)] * 5 + [(b"k", SET, b"new", True)]
    caught_up(lanes, log)
    log.changes[0] = [(b"k", SET, b"new", False)]
    caught_up(lanes, log)
    assert lanes.groups() == {b"new": [1, 1]}
    assert lanes.incomplete
