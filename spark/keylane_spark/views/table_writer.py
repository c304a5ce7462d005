"""Writes changes of rows into a view's lanes: each window is of the rows as they are now.

A row is that of a table, or the latest record of a key where a view is of keys.

A lane stores, beside its windows, what each row adds to them. Every lane is asked about every row of a range:
one that has the row takes it out of its window, the one that the row belongs to now puts it in. A change that
comes again takes out what it put in.

Changes of a row in several partitions come in any order: a topic that grew has them, and so has one with
another producer. A change that is not the last one, by all that any lane has of its row, changes nothing. So
a row that is in no window leaves a marker in one of the lanes, for as long as a topic's tombstones do.

What a lane counts follows from the log and from what any lane has: lanes that are behind are filled together,
from where all of them have everything. Changes that some have are met again then, and change nothing.

A range is read once, and written in slices of its records: no record is late, so nothing else divides it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.model.records import WHOLE_KEY, Options
from keylane.state.windows import Definition, decode_rows, encode_window, window_key
from keylane_spark.engine.session import REFUSALS
from keylane_spark.engine.value_errors import is_about_a_value
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.view_lanes import Changes
from keylane_spark.rows.routing import lane_column, partition_column, partition_keys
from keylane_spark.views.closings import Offsets, Stretch
from keylane_spark.views.row_order import Positions, last_changes
from keylane_spark.views.row_states import RowStates, combined, no_states
from keylane_spark.views.sources import RowSource
from keylane_spark.views.table_rows import FAILED, INVALID, SET
from keylane_spark.views.view_writer import MAX_RECORDS, FoldCounts, Skipped, ViewWriter

SLICE_RECORDS = 4000
"""Records of one call of a lane: a few milliseconds of the server's time."""


class TableSlice(NamedTuple):
    """Some records of a stretch, and the offsets below which it has all."""

    changes: pa.Table
    end: Offsets


@dataclass(frozen=True, slots=True)
class TableTopic:
    """How a table's topic places its keys, how long its tombstones leave markers, and since when it is read.

    `read_since_ms`: as of `lanes.topic_record`; 0: not known.
    """

    partitioner: str = "murmur2"
    partition_by: str = WHOLE_KEY
    marker_ms: int = Options().marker_ms
    read_since_ms: int = 0

    def partitions_of(self, keys: pa.BinaryArray, partition_count: int) -> NDArray[np.int32]:
        """The partition in which each key belongs."""
        return partition_column(partition_keys(keys, self.partition_by), partition_count, self.partitioner)


class _StoredRows(NamedTuple):
    """What a lane has of some changes' rows. `at`: the numbers of these changes."""

    at: NDArray[np.int64]
    rows: pa.Table
    positions: Positions

    def filtered(self, mask: NDArray[np.bool_]) -> Self:
        kept = np.flatnonzero(mask)
        return type(self)(self.at[kept], self.rows.take(pa.array(kept)), self.positions.taken(kept))


class _Decided(NamedTuple):
    """The changes of a slice. `numbers`: the lane that stores each, -1: none. `is_set`: the row is there.

    `gone`: of each lane what it no longer has.
    """

    changes: pa.Table
    numbers: NDArray[np.int64]
    is_set: NDArray[np.bool_]
    gone: Mapping[LaneTarget, _StoredRows]


class TableWriter(ViewWriter):
    """The writer of a view of keys, or over a table's change events."""

    def __init__(self, view: Definition, *others: Any, topic: TableTopic = TableTopic(), **more: Any) -> None:
        super().__init__(view, *others, **more)
        self._rows = RowStates(view.columns)
        self._topic = topic
        self._opened_ms = self._clock.now_ms()
        self._passed_ms = {lane: state.progress.times_ms for lane, state in self.states.items()}

    @property
    def behind(self) -> dict[Offsets, list[LaneTarget]]:
        """See `ViewWriter`: from the offsets below which all of them have everything."""
        lanes = [lane for own in super().behind.values() for lane in own]
        every = (self.states[lane].progress.offsets for lane in lanes)
        return {tuple(map(min, zip(*every, strict=True))): lanes} if lanes else {}

    def _fold(self, source: RowSource, stretch: Stretch, lanes: Collection[LaneTarget]) -> FoldCounts:
        if stretch.size > MAX_RECORDS:
            return self._fold_parts(source, stretch.halves(), lanes)
        try:
            changes = source.read_changes(stretch)
        except REFUSALS as error:
            if not is_about_a_value(error):
                raise
            if stretch.size > 1:
                return self._fold_parts(source, stretch.halves(), lanes)
            changes = _failed_change(source, stretch, *self.pass_by(stretch, error))
        counts = FoldCounts()
        for each in _slices(changes, stretch):
            counts.add(self._write_slice(each, lanes, is_last=each.end == stretch.end))
        return counts

    def _write_slice(self, part: TableSlice, lanes: Collection[LaneTarget], *, is_last: bool) -> FoldCounts:
        self._note_newest(part.changes)
        decided = self._decide(part.changes, lanes)
        in_all = _skipped(part.changes)
        counts = FoldCounts(invalid=in_all.invalid, failed=in_all.failed)
        for lane in lanes:
            changes = self._changes_of(lane, decided)
            counts.windows += len(changes.windows) + len(changes.gone)
            progress = self.states[lane].progress
            # A lane that is filled again with others may have some of it.
            has = progress.offsets
            progress = replace(progress, offsets=tuple(map(max, part.end, has)), times_ms=tuple(self._times))
            skipped = _skipped(part.changes, has) if lane == self._lanes.lanes[0] else Skipped()
            if skipped != Skipped():
                progress = replace(
                    progress,
                    invalid=progress.invalid + skipped.invalid,
                    failed=progress.failed + skipped.failed,
                    failed_at=skipped.failed_at or progress.failed_at,
                )
            if is_last or changes.has_rows or skipped != Skipped():
                self._write(lane, progress, changes, watermark_ms=0)
        return counts

    def _decide(self, changes: pa.Table, lanes: Collection[LaneTarget]) -> _Decided:
        """Which changes are the last ones of their rows, by all that any lane has of these."""
        changes, codes = last_changes(changes)
        keys = changes.column("key")
        homes = self._topic.partitions_of(combined(keys), len(self._times))
        stored, known = self._stored(keys, homes)
        at = Positions.of(changes, homes).following(known)
        is_last = at.are_last(codes)
        is_new = is_last & at.are_after(known)
        is_set = changes.column("kind").to_numpy() == SET
        if (is_new & is_set & ~known.exist & self._may_be_deleted(at, homes, lanes)).any():
            self._report_doubt()
        groups = pc.if_else(pa.array(is_set), changes.column("group"), pa.scalar(b"", pa.binary()))
        for name, column in (("group", groups), ("ms", pa.array(at.ms))):
            changes = changes.set_column(changes.schema.get_field_index(name), name, column)
        gone = {
            lane: own.filtered(
                is_last[own.at] & (is_new[own.at] | ~own.positions.are_at(known.taken(own.at)))
            )
            for lane, own in stored.items()
        }
        return _Decided(
            changes, np.where(is_new, self._lane_numbers(changes, is_set, lanes), -1), is_set, gone
        )

    def _stored(
        self, keys: pa.ChunkedArray, homes: NDArray[np.integer]
    ) -> tuple[dict[LaneTarget, _StoredRows], Positions]:
        """What each lane has of these rows, and of each row the last change that any has."""
        known, stored = Positions.none(len(keys)), {}
        for lane in self._lanes.lanes:
            values = self._lanes.rows(lane, self._lanes.row_names(lane, keys))
            at = np.flatnonzero([each is not None for each in values])
            rows = self._rows.decode([each for each in values if each is not None])
            own = stored[lane] = _StoredRows(at, rows, Positions.of(rows, homes[at]))
            is_after = own.positions.are_after(known.taken(at))
            known.put(at[is_after], own.positions.taken(np.flatnonzero(is_after)))
        return stored, known

    def _changes_of(self, lane: LaneTarget, decided: _Decided) -> Changes:
        """What the rows' last changes change in a lane."""
        own = np.flatnonzero(decided.numbers == lane.partition)
        gone = decided.gone[lane]
        if not len(own) and not len(gone.at):
            return Changes()
        keys, is_set = decided.changes.column("key"), decided.is_set[own]
        come = decided.changes.take(pa.array(own))
        pairs = list(
            zip(self._lanes.row_names(lane, come.column("key")), self._rows.encode(come), strict=True)
        )
        left = pa.array(np.setdiff1d(gone.at, own))
        windows, empty = self._windows(
            lane,
            gone.rows.filter(pc.greater(pc.binary_length(gone.rows.column("group")), 0)),
            come.filter(pa.array(is_set)),
        )
        return Changes(
            windows,
            empty,
            rows=list(chain.from_iterable(compress(pairs, is_set))),
            rows_gone=self._lanes.row_names(lane, keys.take(left)),
            markers=list(chain.from_iterable(compress(pairs, ~is_set))),
        )

    def _windows(
        self, lane: LaneTarget, was: pa.Table, own: pa.Table
    ) -> tuple[dict[bytes, bytes], list[bytes]]:
        """The windows that rows have left or come to, and those that are empty now."""
        columns = self._view.columns
        changed = {window_key(each.group, 0): each for each in self._rows.net(was, own)}
        found = self._lanes.windows(lane, list(changed), decode=decode_rows)
        windows, empty = {}, []
        for name, change in changed.items():
            counts, states = change.applied(columns, *found.get(name, no_states(columns)))
            if counts[0] > 0:
                windows[name] = encode_window(None, states, counts)
            elif name in found:
                empty.append(name)
        return windows, empty

    def _lane_numbers(
        self, changes: pa.Table, is_set: NDArray[np.bool_], lanes: Collection[LaneTarget]
    ) -> NDArray[np.int64]:
        """The lane that stores each change: that of its group; of a row that is gone, one that is written."""
        names = pc.if_else(pa.array(is_set), changes.column("group"), changes.column("key"))
        numbers = lane_column(combined(names), self._layout).astype(np.int64)
        written = [lane.partition for lane in lanes]
        numbers[~is_set & ~np.isin(numbers, written)] = written[0]
        return numbers

    def _note_newest(self, changes: pa.Table) -> None:
        now_ms = self._clock.now_ms()
        timed = changes.filter(changes.column("ms").is_valid())
        for row in timed.group_by("partition").aggregate([("ms", "max")]).to_pylist():
            newest_ms, partition = min(row["ms_max"], now_ms), row["partition"]
            self._times[partition] = max(newest_ms, self._times[partition] or newest_ms)

    def _may_be_deleted(
        self, at: Positions, homes: NDArray[np.integer], lanes: Collection[LaneTarget]
    ) -> NDArray[np.bool_]:
        """Which rows of which nothing is known may have been deleted by what left a marker that is gone.

        They are where their keys do not belong, and no newer than what was read there before all markers
        lasted.
        """
        now_ms, marker_ms = self._clock.now_ms(), self._topic.marker_ms
        if now_ms - self._topic.read_since_ms < marker_ms:
            return np.zeros(len(homes), np.bool_)
        times = [self._times]
        if now_ms - self._opened_ms < marker_ms:
            times = [list(self._passed_ms[lane]) for lane in lanes]
        passed_ms = [
            max((ms for ms in each if ms is not None), default=-1) for each in zip(*times, strict=True)
        ]
        found: NDArray[np.bool_] = at.ms <= np.minimum(np.array(passed_ms)[homes], now_ms - marker_ms)
        return found & ~at.is_own

    def _report_doubt(self) -> None:
        """Say that rows may have been deleted."""
        self._lanes.mark_incomplete(self._lanes.lanes)
        self._say(
            "INCOMPLETE: rows have changes in several partitions, and some were read so late that the "
            "marker of a deletion may be gone: the topic has grown, or another producer writes to it"
        )


def _failed_change(source: RowSource, stretch: Stretch, partition: int, offset: int) -> pa.Table:
    """What is known of the one record of a stretch, on which Spark fails: its key, if it can be read."""
    try:
        return source.read_failed(stretch)
    except REFUSALS as error:
        if not is_about_a_value(error):
            raise
    return pa.table(
        {
            "partition": pa.array([partition], pa.int32()),
            "offset": pa.array([offset], pa.int64()),
            "ms": pa.array([None], pa.int64()),
            "key": pa.array([None], pa.binary()),
            "kind": pa.array([FAILED], pa.int8()),
            "group": pa.array([None], pa.binary()),
        }
    )


def _slices(changes: pa.Table, stretch: Stretch) -> Iterator[TableSlice]:
    """A stretch's changes in the order of their partitions and offsets, in slices; at least one."""
    changes = changes.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()
    for first in range(0, len(changes) - SLICE_RECORDS, SLICE_RECORDS):
        part = changes.slice(first, SLICE_RECORDS)
        partition, offset = (part.column(name)[-1].as_py() for name in ("partition", "offset"))
        ends = [*stretch.end[:partition], offset + 1, *stretch.begin[partition + 1 :]]
        yield TableSlice(part, tuple(ends))
    left = (len(changes) - 1) // SLICE_RECORDS * SLICE_RECORDS if len(changes) else 0
    yield TableSlice(changes.slice(left), stretch.end)


def _skipped(changes: pa.Table, has: Offsets = ()) -> Skipped:
    """Count the changes that say nothing of a row, from these offsets on."""
    if has and len(changes):
        is_new = changes.column("offset").to_numpy() >= np.array(has)[changes.column("partition").to_numpy()]
        changes = changes.filter(pa.array(is_new))
    kinds = changes.column("kind").to_numpy()
    failed = changes.filter(pa.array(kinds == FAILED))
    last = f"{failed.column('partition')[-1]}:{failed.column('offset')[-1]}" if len(failed) else ""
    return Skipped(invalid=int((kinds == INVALID).sum()), failed=len(failed), failed_at=last)
