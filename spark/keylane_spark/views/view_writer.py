"""Writes ranges of a topic into a view's lanes, each record exactly once.

A lane stores the offsets below which its windows include all records. A range must begin at exactly these
offsets, and one call writes both the windows and the new offsets. So the lane refuses a range that is
written a second time. `closings` decides which records are late.

A range is divided where it is too large, for one call of a lane or for the driver's memory: into as many
parts as it needs calls, as far as that is known. It is divided in halves where Spark fails on a record in it.
In the end such a record is alone, and counted as failed.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from keylane.errors import TooLarge
from keylane.model.records import Layout
from keylane.ports import Clock
from keylane.state.lanes import lane_of_key
from keylane.state.windows import Closing, Definition, Progress
from keylane_spark.engine.session import REFUSALS, Refusal, words_of
from keylane_spark.engine.value_errors import is_about_a_value
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.view_lanes import NO_CHANGES, Changes, LaneWindows, ViewLanes, ViewLaneState
from keylane_spark.views import closings
from keylane_spark.views.closings import Offsets, Stretch
from keylane_spark.views.merging import merge_partials
from keylane_spark.views.partials import PartialWindow
from keylane_spark.views.sources import RowSource
from keylane_spark.views.values import StretchTooLarge

MAX_WINDOWS = 2000
"""Partial windows of a lane in one call: a few milliseconds of the server's time."""
MAX_RECORDS = 200_000
"""Records of one fold, times the windows that each falls into: what the driver may have to merge."""
MAX_BYTES = 2 * 1024 * 1024
"""Bytes in one call of the values that `latest` keeps."""
MAX_STORED_BYTES = 8 * 1024 * 1024
"""Bytes of the windows that one call changes: the driver holds them as they were and as they are written."""
MAX_NAMED = 10
"""Records of one fold that are named where Spark fails on them; all of them are counted."""


@dataclass(slots=True)
class FoldCounts:
    """Counts of a fold. `windows`: partial ones, before the merge; `late`, `invalid`, `failed`: records."""

    windows: int = 0
    late: int = 0
    invalid: int = 0
    failed: int = 0

    def add(self, other: Self) -> None:
        """Add those of another fold."""
        self.windows += other.windows
        self.late += other.late
        self.invalid += other.invalid
        self.failed += other.failed


class Skipped(NamedTuple):
    """Records of a stretch that are in no window, and the position of the last one that failed."""

    invalid: int = 0
    failed: int = 0
    failed_at: str = ""


class ViewWriter:
    """Writes for one epoch. `states`: the present state of each lane. Call `share_closings` first."""

    def __init__(
        self,
        view: Definition,
        layout: Layout,
        lanes: ViewLanes,
        states: dict[LaneTarget, ViewLaneState],
        clock: Clock,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`say` prints a line for people."""
        self._say = say
        self._passed_by = 0
        """Records of the present fold on which Spark has failed alone."""
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

        `lanes`: all by default. A range that is too large for one call a lane is divided. Raises
        Fenced, LaneBehind, StateUnavailable, CorruptState, TooLarge (windows of a single record).
        """
        lanes = lanes or self._lanes.lanes
        counts = FoldCounts()
        self._passed_by = 0
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

    def report_stop(self, reason: str) -> None:
        """Keep why the view has stopped, for its readers; "": it runs. Errors as `fold`."""
        lane = self._lanes.lanes[0]
        state = self.states[lane]
        if state.progress.stopped != reason:
            self._write(lane, replace(state.progress, stopped=reason), watermark_ms=state.watermark_ms)

    def _fold(self, source: RowSource, stretch: Stretch, lanes: Collection[LaneTarget]) -> FoldCounts:
        can_divide = stretch.size > 1
        found = None
        if stretch.size * self._view.windows_per_event <= MAX_RECORDS or not can_divide:
            found = self._read(source, stretch)
        by_lane = self._by_lane(found or ())
        calls = max((_calls_for(own) for own in by_lane.values()), default=1)
        if found is None or (calls > 1 and can_divide):
            return self._fold_parts(source, stretch.parts(max(calls, 2)), lanes)
        self._note_times(found)
        skipped = _skipped(found)
        windows = sum(map(len, by_lane.values()))
        counts = FoldCounts(windows=windows, invalid=skipped.invalid, failed=skipped.failed)
        for target in lanes:
            try:
                limit_bytes = MAX_STORED_BYTES if can_divide else None
                counts.late += self._commit(target, by_lane.get(target, []), stretch, skipped, limit_bytes)
            except TooLarge:
                if not can_divide:
                    raise
                counts.late += self._fold_parts(source, stretch.halves(), [target]).late
        return counts

    def _fold_parts(
        self, source: RowSource, parts: Iterable[Stretch], lanes: Collection[LaneTarget]
    ) -> FoldCounts:
        counts = FoldCounts()
        for part in parts:
            counts.add(self._fold(source, part, lanes))
        return counts

    def _read(self, source: RowSource, stretch: Stretch) -> list[PartialWindow] | None:
        """Read a stretch; None where it is to be divided: it is too large, or Spark fails on a record."""
        try:
            return source.read(stretch)
        except StretchTooLarge:
            return None
        except REFUSALS as error:
            if not is_about_a_value(error):
                raise
            if stretch.size > 1:
                return None
            partition, offset = self.pass_by(stretch, error)
            return [PartialWindow(partition, None, 0, None, 1, None, [], failed=True, last_offset=offset)]

    def pass_by(self, stretch: Stretch, error: Refusal) -> tuple[int, int]:
        """Note that the one record of a stretch failed, and return its position."""
        ((partition, offset),) = (
            (partition, low)
            for partition, (low, high) in enumerate(zip(stretch.begin, stretch.end, strict=True))
            if low < high
        )
        self._passed_by += 1
        if self._passed_by <= MAX_NAMED:
            others = ", and so may others of its batch" if self._passed_by == MAX_NAMED else ""
            self._say(
                f"FAILED: the record at {partition}:{offset} can't be computed and is passed by{others}: "
                f"{words_of(error)}"
            )
        return partition, offset

    def _by_lane(self, found: Iterable[PartialWindow]) -> dict[LaneTarget, list[PartialWindow]]:
        by_lane: dict[LaneTarget, list[PartialWindow]] = {}
        for partial in found:
            if partial.key is not None:
                lane = lane_of_key(self._layout, partial.key)
                by_lane.setdefault(self._by_number[lane.partition, lane.stripe], []).append(partial)
        return by_lane

    def _commit(
        self,
        lane: LaneTarget,
        own: Sequence[PartialWindow],
        stretch: Stretch,
        skipped: Skipped,
        limit_bytes: int | None,
    ) -> int:
        """Commit the lane's own partial windows of a stretch; returns how many records were late.

        Raises TooLarge if they change more than `limit_bytes` of windows.
        """
        progress = self.states[lane].progress
        stored = LaneWindows(self._lanes, lane, limit_bytes)
        changes, late = merge_partials(self._view, own, stored, stretch.watermark_ms)
        size = sum(map(len, changes.windows.values()))
        if limit_bytes is not None and size > limit_bytes:
            raise TooLarge("windows", size, limit_bytes)
        progress = replace(
            progress, offsets=stretch.end, times_ms=tuple(self._times), late=progress.late + late
        )
        if lane == self._lanes.lanes[0]:
            progress = replace(
                progress,
                invalid=progress.invalid + skipped.invalid,
                failed=progress.failed + skipped.failed,
                failed_at=skipped.failed_at or progress.failed_at,
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


def _skipped(found: Iterable[PartialWindow]) -> Skipped:
    """Count the records that are in no window."""
    skipped = [partial for partial in found if partial.key is None]
    failed = [partial for partial in skipped if partial.failed]
    last = max(failed, key=lambda partial: (partial.last_offset, partial.partition), default=None)
    return Skipped(
        invalid=sum(partial.records for partial in skipped if not partial.failed),
        failed=sum(partial.records for partial in failed),
        failed_at=f"{last.partition}:{last.last_offset}" if last else "",
    )


def _calls_for(found: Sequence[PartialWindow]) -> int:
    """How many calls partial windows of one lane need, at least: a state of `latest` ends in a value."""
    size = sum(
        len(state[-1])
        for partial in found
        for state in partial.states
        if isinstance(state, list) and isinstance(state[-1], str)
    )
    return max(math.ceil(len(found) / MAX_WINDOWS), math.ceil(size / MAX_BYTES))
