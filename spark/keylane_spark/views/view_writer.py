"""Writes ranges of a topic into a view's lanes, each record exactly once.

A lane stores the offsets below which its windows include all records. A range must begin at exactly these
offsets, and one call writes both the windows and the new offsets. So the lane refuses a range that is
written a second time. `closings` decides which records are late.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from keylane.model.records import Layout
from keylane.ports import Clock
from keylane.state.lanes import lane_of_key
from keylane.state.windows import Closing, Definition, Progress
from keylane_spark.adapters.lane import LaneTarget
from keylane_spark.adapters.view_lanes import NO_CHANGES, Changes, LaneWindows, ViewLanes, ViewLaneState
from keylane_spark.views import closings
from keylane_spark.views.closings import Offsets, Stretch
from keylane_spark.views.merging import merge_partials
from keylane_spark.views.partials import PartialWindow
from keylane_spark.views.sources import RowSource

MAX_WINDOWS = 2000
"""Partial windows of a lane in one call: a few milliseconds of the server's time."""
MAX_RECORDS = 200_000
"""Records of one fold, times the windows that each falls into: what the driver may have to merge."""
MAX_BYTES = 2 * 1024 * 1024
"""Bytes in one call of the values that `latest` keeps."""


@dataclass(slots=True)
class FoldCounts:
    """Counts of a fold. `windows`: partial windows, before the merge; `late`, `invalid`: records."""

    windows: int = 0
    late: int = 0
    invalid: int = 0

    def add(self, other: Self) -> None:
        """Add those of another fold."""
        self.windows += other.windows
        self.late += other.late
        self.invalid += other.invalid


class ViewWriter:
    """Writes for one epoch. `states`: the present state of each lane. Call `share_closings` first."""

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
        self._closings = closings.merged(state.closings for state in states.values())
        every = [state.progress.times_ms for state in states.values()]
        self._times = [
            max((time for time in times if time is not None), default=None)
            for times in zip(*every, strict=True)
        ]

    @property
    def furthest(self) -> Offsets:
        """The offset of each partition that the furthest lane has reached."""
        every = [state.progress.offsets for state in self.states.values()]
        return tuple(max(offsets) for offsets in zip(*every, strict=True))

    @property
    def behind(self) -> dict[Offsets, list[LaneTarget]]:
        """The lanes that have not reached the furthest offsets, by the offsets that they have reached."""
        by_offsets: dict[Offsets, list[LaneTarget]] = {}
        for lane, state in self.states.items():
            by_offsets.setdefault(state.progress.offsets, []).append(lane)
        by_offsets.pop(self.furthest, None)
        return by_offsets

    def share_closings(self) -> None:
        """Give each lane the closings that only others have. Errors as `fold`."""
        for lane, state in self.states.items():
            known = max((closing.watermark_ms for closing in state.closings), default=0)
            missing = tuple(each for each in self._closings if each.watermark_ms > known)
            if missing:
                changes = Changes(closings=missing)
                self._write(lane, state.progress, changes, watermark_ms=state.watermark_ms)

    def fold(
        self,
        source: RowSource,
        begin: Offsets,
        end: Offsets,
        lanes: Collection[LaneTarget] | None = None,
    ) -> FoldCounts:
        """Add the records of [begin, end) of each partition to the lanes that have reached `begin`.

        `lanes`: all by default. A range that is too large for one call a lane is split in halves. Raises
        Fenced, LaneBehind, StateUnavailable, CorruptState.
        """
        lanes = lanes or self._lanes.lanes
        counts = FoldCounts()
        decided_ms = max(self.states[lane].watermark_ms for lane in lanes)
        for stretch in closings.cut(begin, end, self._closings, decided_ms):
            counts.add(self._fold(source, stretch, lanes))
        return counts

    def close_windows(self, caught_up: Collection[int]) -> None:
        """Decide for which windows the next records are late; all lanes have reached the same offsets.

        `caught_up`: partitions without more records at the moment. Errors as `fold`.
        """
        offsets = self.furthest
        watermark_ms = self._watermark_ms(caught_up)
        if watermark_ms <= self._decided_ms or self._is_decided(watermark_ms):
            return
        if not closings.are_passed(offsets, self._closings):
            return
        closing = Closing(offsets, watermark_ms)
        for lane, state in self.states.items():
            self._write(lane, state.progress, Changes(closings=(closing,)), watermark_ms=0)
        # All lanes have it now: from here on it may be lost in some of them.
        self._closings = [*self._closings[1 - closings.KEPT :], closing]

    def mark_complete(self, complete_as_of_ms: int, caught_up: Collection[int]) -> None:
        """Mark all lanes as complete as of a time, and windows as final. Errors as `fold`."""
        self.close_windows(caught_up)
        watermark_ms = self._watermark_ms(caught_up)
        if not self._is_decided(watermark_ms):
            watermark_ms = self._decided_ms
        for lane, state in self.states.items():
            self._write(lane, state.progress, watermark_ms=watermark_ms, complete_as_of_ms=complete_as_of_ms)

    def _fold(self, source: RowSource, stretch: Stretch, lanes: Collection[LaneTarget]) -> FoldCounts:
        is_too_large = stretch.size * self._view.windows_per_event > MAX_RECORDS
        found = [] if is_too_large else source.read(stretch)
        by_lane: dict[LaneTarget, list[PartialWindow]] = {}
        for partial in found:
            if partial.key is not None:
                lane = lane_of_key(self._layout, partial.key)
                by_lane.setdefault(self._by_number[lane.partition, lane.stripe], []).append(partial)
        too_many = any(len(own) > MAX_WINDOWS or _bytes(own) > MAX_BYTES for own in by_lane.values())
        if (is_too_large or too_many) and stretch.size > len(stretch.begin):
            counts = FoldCounts()
            for half in stretch.halves():
                counts.add(self._fold(source, half, lanes))
            return counts
        self._note_times(found)
        counts = FoldCounts(windows=sum(map(len, by_lane.values())))
        counts.invalid = sum(partial.records for partial in found if partial.key is None)
        for target in lanes:
            counts.late += self._commit(target, by_lane.get(target, []), stretch, counts.invalid)
        return counts

    def _commit(self, lane: LaneTarget, own: Sequence[PartialWindow], stretch: Stretch, invalid: int) -> int:
        """Commit the lane's own partial windows of a stretch; returns how many records were late."""
        progress = self.states[lane].progress
        changes, late = merge_partials(self._view, own, LaneWindows(self._lanes, lane), stretch.watermark_ms)
        progress = replace(
            progress,
            offsets=stretch.end,
            times_ms=tuple(self._times),
            late=progress.late + late,
            invalid=progress.invalid + (invalid if lane == self._lanes.lanes[0] else 0),
        )
        self._write(lane, progress, changes, watermark_ms=stretch.watermark_ms)
        return late

    def _write(
        self,
        lane: LaneTarget,
        progress: Progress,
        changes: Changes = NO_CHANGES,
        *,
        watermark_ms: int,
        complete_as_of_ms: int = 0,
    ) -> None:
        self.states[lane] = self._lanes.commit(
            lane,
            self.states[lane],
            progress,
            changes,
            watermark_ms=watermark_ms,
            complete_as_of_ms=complete_as_of_ms,
        )

    def _note_times(self, found: Iterable[PartialWindow]) -> None:
        now_ms = self._clock.now_ms()
        for partial in found:
            if partial.key is not None and partial.newest_ms is not None:
                # One producer's clock that is ahead must not make the events of all others late.
                newest_ms = min(partial.newest_ms, now_ms)
                self._times[partial.partition] = max(newest_ms, self._times[partial.partition] or newest_ms)

    @property
    def _decided_ms(self) -> int:
        """The event time up to which windows are final for the next records."""
        reported_ms = max(state.watermark_ms for state in self.states.values())
        return max(reported_ms, closings.decided(self.furthest, self._closings))

    def _is_decided(self, watermark_ms: int) -> bool:
        """Whether this event time makes the same records late as the one that was decided."""
        return self._view.closes_by(watermark_ms) == self._view.closes_by(self._decided_ms)

    def _watermark_ms(self, caught_up: Collection[int]) -> int:
        """The event time up to which windows can be final; 0: none can.

        A partition with more records to read holds it back, so that its records are not late because another
        partition was read faster. An idle partition does not, so that it keeps no window open.
        """
        behind = [time for partition, time in enumerate(self._times) if partition not in caught_up]
        if behind:
            known = [time for time in behind if time is not None]
            newest_ms = min(known) if len(known) == len(behind) else 0
        else:
            newest_ms = max((time for time in self._times if time is not None), default=0)
        watermark_ms = max(0, newest_ms - self._view.lateness_ms)
        return self._view.closes_by(watermark_ms) or 0 if self._view.is_session else watermark_ms


def _bytes(found: Iterable[PartialWindow]) -> int:
    """The size of the values in partial windows: a state of `latest` ends in one."""
    return sum(
        len(state[-1])
        for partial in found
        for state in partial.states
        if isinstance(state, list) and isinstance(state[-1], str)
    )
