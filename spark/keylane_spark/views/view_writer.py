"""Writes ranges of a topic into a view's lanes, each record exactly once.

A lane stores the offsets below which its windows include all records. A range must begin at exactly these
offsets, and one call writes both the windows and the new offsets. So the lane refuses a range that is
written a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from keylane.state.lanes import lane_of_key
from keylane_spark.views.merging import merge_partials
from keylane_spark.views.partials import parse_partials, partials

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark.sql import DataFrame

    from keylane.model.records import Layout
    from keylane.ports import Clock
    from keylane.state.windows import Definition
    from keylane_spark.adapters.lane import LaneTarget
    from keylane_spark.adapters.view_lanes import ViewLanes, ViewLaneState
    from keylane_spark.views.merging import Window
    from keylane_spark.views.partials import PartialWindow

MAX_WINDOWS = 2000
"""Partial windows of a lane in one call: a few milliseconds of the server's time."""
MAX_RECORDS = 200_000
"""Records of one fold, times the windows that each falls into: what the driver may have to merge."""
MAX_BYTES = 2 * 1024 * 1024
"""Bytes in one call of the values that `latest` keeps."""
Offsets = tuple[int, ...]
"""An offset of each partition."""


@dataclass(slots=True)
class FoldCounts:
    """Counts of a fold. `windows`: partial windows, before the merge; `late`, `invalid`: records."""

    windows: int = 0
    late: int = 0
    invalid: int = 0


class ViewWriter:
    """Writes for one epoch. `states`: the present state of each lane."""

    def __init__(
        self,
        view: Definition,
        layout: Layout,
        lanes: ViewLanes,
        states: dict[LaneTarget, ViewLaneState],
        clock: Clock,
    ) -> None:
        self.states = states
        self._view = view
        self._layout = layout
        self._lanes = lanes
        self._clock = clock
        self._by_number = {(lane.partition, lane.stripe): lane for lane in lanes.lanes}

    def fold(
        self,
        rows: DataFrame,
        begin: Offsets,
        end: Offsets,
        *,
        lanes: Collection[LaneTarget] | None = None,
        caught_up: Collection[int] = (),
    ) -> FoldCounts:
        """Add the records of [begin, end) of each partition to the lanes that have reached `begin`.

        `rows`: exactly these records. `lanes`: all by default. `caught_up`: partitions without more records
        at the moment. A range that is too large for one call a lane is split in halves. Raises Fenced,
        LaneBehind, StateUnavailable, CorruptState.
        """
        size = sum(end) - sum(begin)
        is_too_large = size * self._view.windows_per_event > MAX_RECORDS
        found = [] if is_too_large else parse_partials(partials(rows, self._view).toArrow(), self._view)
        by_lane: dict[LaneTarget, list[PartialWindow]] = {}
        for partial in found:
            if partial.key is not None:
                lane = lane_of_key(self._layout, partial.key)
                by_lane.setdefault(self._by_number[lane.partition, lane.stripe], []).append(partial)
        too_many = any(len(own) > MAX_WINDOWS or _bytes(own) > MAX_BYTES for own in by_lane.values())
        if (is_too_large or too_many) and size > len(begin):
            middle = tuple((low + high) // 2 for low, high in zip(begin, end, strict=True))
            is_first = f.col("offset") < f.element_at(f.lit(list(middle)), f.col("partition") + 1)
            one = self.fold(rows.where(is_first), begin, middle, lanes=lanes)
            other = self.fold(rows.where(~is_first), middle, end, lanes=lanes, caught_up=caught_up)
            return FoldCounts(one.windows + other.windows, one.late + other.late, one.invalid + other.invalid)
        counts = FoldCounts(windows=sum(map(len, by_lane.values())))
        counts.invalid = sum(partial.records for partial in found if partial.key is None)
        for target in lanes or self._lanes.lanes:
            counts.late += self._commit(target, by_lane.get(target, []), found, end, caught_up)
        return counts

    def mark_complete(self, complete_as_of_ms: int, caught_up: Collection[int]) -> None:
        """Mark all lanes as complete as of a time. Errors as `fold`."""
        for lane, state in self.states.items():
            self.states[lane] = self._lanes.commit(
                lane,
                state,
                state.progress,
                watermark_ms=self._watermark_ms(state.progress.times_ms, caught_up),
                complete_as_of_ms=complete_as_of_ms,
            )

    def _commit(
        self,
        lane: LaneTarget,
        own: Sequence[PartialWindow],
        found: Iterable[PartialWindow],
        end: Offsets,
        caught_up: Collection[int],
    ) -> int:
        """Commit the lane's own partial windows of all that were `found`; returns how many were late."""
        state = self.states[lane]
        progress = state.progress
        changes, late = merge_partials(self._view, own, _LaneWindows(self._lanes, lane), state.watermark_ms)
        times = list(progress.times_ms)
        now_ms = self._clock.now_ms()
        invalid = 0
        for partial in found:
            if partial.key is None:
                invalid += partial.records
            elif partial.newest_ms is not None:
                # One producer's clock that is ahead must not make the events of all others late.
                newest_ms = min(partial.newest_ms, now_ms)
                times[partial.partition] = max(newest_ms, times[partial.partition] or newest_ms)
        self.states[lane] = self._lanes.commit(
            lane,
            state,
            replace(
                progress,
                offsets=end,
                times_ms=tuple(times),
                late=progress.late + late,
                invalid=progress.invalid + (invalid if lane == self._lanes.lanes[0] else 0),
            ),
            changes,
            watermark_ms=self._watermark_ms(times, caught_up),
        )
        return late

    def _watermark_ms(self, times: Sequence[int | None], caught_up: Collection[int]) -> int:
        """The event time up to which windows are final; 0: none are.

        A partition with more records to read holds it back, so that its records are not late because another
        partition was read faster. An idle partition does not, so that it keeps no window open.
        """
        behind = [time for partition, time in enumerate(times) if partition not in caught_up]
        if behind:
            known = [time for time in behind if time is not None]
            newest_ms = min(known) if len(known) == len(behind) else 0
        else:
            newest_ms = max((time for time in times if time is not None), default=0)
        return max(0, newest_ms - self._view.lateness_ms)


def _bytes(found: Iterable[PartialWindow]) -> int:
    """The size of the values in partial windows: a state of `latest` ends in one."""
    return sum(
        len(state[-1])
        for partial in found
        for state in partial.states
        if isinstance(state, list) and isinstance(state[-1], str)
    )


@dataclass(frozen=True, slots=True)
class _LaneWindows:
    """The windows of one lane, for `merge_partials`."""

    lanes: ViewLanes
    lane: LaneTarget

    def windows(self, names: Sequence[bytes]) -> dict[bytes, Window]:
        return self.lanes.windows(self.lane, names)

    def around(self, spans: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        return self.lanes.around(self.lane, spans)
