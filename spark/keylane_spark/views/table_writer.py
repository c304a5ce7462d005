"""Writes changes of a table's rows into a view's lanes: each window is of the rows as they are now.

A lane stores, beside its windows, what each row adds to them. Every lane is asked about every row of a range:
one that has the row takes it out of its window, the one that the row belongs to now puts it in. So a lane's
state follows from its own past and the log alone, as in `view_writer`: lanes need no order among each other.
A change that comes again takes out what it put in.

A range is read once, and written in slices of its records: no record is late, so nothing else divides it.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.state.windows import Definition, decode_rows, encode_window, window_key
from keylane_spark.engine.session import REFUSALS
from keylane_spark.engine.value_errors import is_about_a_value
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.view_lanes import Changes
from keylane_spark.rows.routing import lane_column
from keylane_spark.views.closings import Offsets, Stretch
from keylane_spark.views.row_states import RowStates, no_states
from keylane_spark.views.sources import RowSource
from keylane_spark.views.table_rows import FAILED, INVALID, SET
from keylane_spark.views.view_writer import MAX_RECORDS, FoldCounts, ViewWriter

SLICE_RECORDS = 4000
"""Records of one call of a lane: a few milliseconds of the server's time."""


class TableSlice(NamedTuple):
    """Some records of a stretch, and the offsets below which it has all."""

    changes: pa.Table
    end: Offsets


class TableWriter(ViewWriter):
    """The writer of a view over a table's change events."""

    def __init__(self, view: Definition, *others: Any, **more: Any) -> None:
        super().__init__(view, *others, **more)
        self._rows = RowStates(view.columns)

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
        kinds = part.changes.column("kind").to_numpy()
        invalid, failed = int((kinds == INVALID).sum()), int((kinds == FAILED).sum())
        self._note_newest(part.changes)
        latest = _latest(part.changes)
        numbers = self._lane_numbers(latest)
        windows = 0
        for lane in lanes:
            changes = self._changes_of(lane, latest, numbers == lane.partition)
            windows += len(changes.windows) + len(changes.gone)
            progress = replace(self.states[lane].progress, offsets=part.end, times_ms=tuple(self._times))
            if counts_skipped := lane == self._lanes.lanes[0] and invalid + failed > 0:
                progress = replace(
                    progress,
                    invalid=progress.invalid + invalid,
                    failed=progress.failed + failed,
                    failed_at=_last_failed(part.changes) or progress.failed_at,
                )
            if is_last or counts_skipped or changes.rows or changes.rows_gone:
                self._write(lane, progress, changes, watermark_ms=0)
        return FoldCounts(windows=windows, invalid=invalid, failed=failed)

    def _changes_of(self, lane: LaneTarget, latest: pa.Table, is_own: NDArray[np.bool_]) -> Changes:
        """What the rows' last changes change in a lane; `is_own`: those that belong to it now."""
        names = self._lanes.row_names(lane, latest.column("key"))
        stored = self._lanes.rows(lane, names)
        had = np.fromiter((each is not None for each in stored), np.bool_, len(stored))
        was = self._rows.decode([each for each in stored if each is not None])
        is_old = self._is_older(latest.filter(pa.array(had)), was)
        if is_old.any():
            self._report_order()
            at = np.flatnonzero(had)[is_old]
            had[at], is_own[at] = False, False
            was = was.filter(pa.array(~is_old))
        if not had.any() and not is_own.any():
            return Changes()
        own = latest.filter(pa.array(is_own))
        rows: list[bytes] = [b""] * (2 * len(own))
        rows[::2] = pa.array(names, pa.binary()).filter(pa.array(is_own)).to_pylist()
        rows[1::2] = self._rows.encode(own)
        gone = pa.array(names, pa.binary()).filter(pa.array(had & ~is_own)).to_pylist()
        windows, empty = self._windows(lane, was, own)
        return Changes(windows, empty, rows=rows, rows_gone=gone)

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

    @staticmethod
    def _is_older(changes: pa.Table, was: pa.Table) -> NDArray[np.bool_]:
        """Which changes are older than the row that is there: of another partition, by their timestamps."""
        is_foreign = changes.column("partition").to_numpy() != was.column("partition").to_numpy()
        is_older: NDArray[np.bool_] = is_foreign & (
            changes.column("ms").to_numpy() < was.column("ms").to_numpy()
        )
        return is_older

    def _lane_numbers(self, latest: pa.Table) -> NDArray[np.int64]:
        """The lane that each row belongs to now; -1: to none."""
        numbers = np.full(len(latest), -1, np.int64)
        is_set = latest.column("kind").to_numpy() == SET
        if is_set.any():
            groups = latest.column("group").filter(pa.array(is_set)).combine_chunks()
            numbers[is_set] = lane_column(groups, self._layout)
        return numbers

    def _note_newest(self, changes: pa.Table) -> None:
        now_ms = self._clock.now_ms()
        timed = changes.filter(changes.column("ms").is_valid())
        for row in timed.group_by("partition").aggregate([("ms", "max")]).to_pylist():
            newest_ms, partition = min(row["ms_max"], now_ms), row["partition"]
            self._times[partition] = max(newest_ms, self._times[partition] or newest_ms)

    def _report_order(self) -> None:
        """Say that a row has changes in several partitions: their order is that of arrival in each lane."""
        self._lanes.mark_incomplete(self._lanes.lanes)
        self._say(
            "INCOMPLETE: rows have changes in several partitions, and some came after newer ones: "
            "the topic has grown, or another producer writes to it"
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


def _latest(changes: pa.Table) -> pa.Table:
    """The last change of each row that has a key: of a partition by offset, else by timestamp."""
    keyed = changes.filter(changes.column("key").is_valid()).combine_chunks()
    if not len(keyed):
        return keyed
    codes = keyed.column("key").combine_chunks().dictionary_encode().indices.to_numpy()
    partitions = keyed.column("partition").to_numpy()
    # Rows are in the order of each partition.
    last = np.full((codes.max() + 1, partitions.max() + 1), -1, np.int64)
    np.maximum.at(last, (codes, partitions), np.arange(len(keyed)))
    times = np.where(last < 0, np.iinfo(np.int64).min, keyed.column("ms").to_numpy()[last])
    newest = last[np.arange(len(last)), times.argmax(axis=1)]
    return keyed.take(pa.array(newest))


def _last_failed(changes: pa.Table) -> str:
    failed = changes.filter(pc.equal(changes.column("kind"), FAILED))
    if not len(failed):
        return ""
    return f"{failed.column('partition')[-1]}:{failed.column('offset')[-1]}"
