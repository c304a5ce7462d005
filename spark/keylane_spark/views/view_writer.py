"""Stretches of a topic into a view's lanes, each record once.

Each lane knows the offsets below which all is in its windows. A stretch begins at just these, and one call a
lane writes its windows and its new offsets: a stretch that is written again finds the lane past its begin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from keylane.state.lanes import lane_of_key
from keylane_spark.views.merging import changes_of
from keylane_spark.views.partials import partials, parts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark.sql import DataFrame

    from keylane.model.records import Layout
    from keylane.ports import Clock
    from keylane.state.windows import Definition
    from keylane_spark.adapters.lane import LaneTarget
    from keylane_spark.adapters.view_lanes import Standing, ViewLanes
    from keylane_spark.views.merging import Window
    from keylane_spark.views.partials import Part

MOST_WINDOWS = 2000
"""Windows of a lane in one call: a few milliseconds of the server's time."""
MOST_RECORDS = 200_000
"""Records, times the windows that each falls into, of one fold: what the driver may get to merge."""
MOST_BYTES = 2 * 1024 * 1024
"""Of values that `latest` keeps, in one call."""
Offsets = tuple[int, ...]


@dataclass(slots=True)
class Told:
    """What became of some records; `windows`: parts of windows that they were in, before the merge."""

    windows: int = 0
    late: int = 0
    invalid: int = 0


class ViewWriter:
    """Writes for one epoch. `standings`: where each lane stands, kept up to date."""

    def __init__(
        self,
        view: Definition,
        layout: Layout,
        lanes: ViewLanes,
        standings: dict[LaneTarget, Standing],
        clock: Clock,
    ) -> None:
        self.standings = standings
        self._view = view
        self._layout = layout
        self._lanes = lanes
        self._clock = clock
        self._by_place = {(lane.partition, lane.stripe): lane for lane in lanes.lanes}

    def fold(
        self,
        rows: DataFrame,
        begin: Offsets,
        end: Offsets,
        *,
        lanes: Collection[LaneTarget] | None = None,
        caught_up: Collection[int] = (),
    ) -> Told:
        """Add the records of [begin, end) of each partition to the lanes that stand at `begin`.

        `rows`: these records and no others. `lanes`: all by default. `caught_up`: partitions that have no
        more for now. Where there is too much for one call a lane, it goes half by half. Raises Fenced,
        LaneBehind, StateUnavailable, CorruptState.
        """
        size = sum(end) - sum(begin)
        is_too_large = size * self._view.windows_per_event > MOST_RECORDS
        parts = [] if is_too_large else parts_of(partials(rows, self._view).toArrow(), self._view)
        by_lane: dict[LaneTarget, list[Part]] = {}
        for part in parts:
            if part.key is not None:
                home = lane_of_key(self._layout, part.key)
                by_lane.setdefault(self._by_place[home.partition, home.stripe], []).append(part)
        too_many = any(len(own) > MOST_WINDOWS or _bytes(own) > MOST_BYTES for own in by_lane.values())
        if (is_too_large or too_many) and size > len(begin):
            middle = tuple((low + high) // 2 for low, high in zip(begin, end, strict=True))
            is_first = f.col("offset") < f.element_at(f.lit(list(middle)), f.col("partition") + 1)
            one = self.fold(rows.where(is_first), begin, middle, lanes=lanes)
            other = self.fold(rows.where(~is_first), middle, end, lanes=lanes, caught_up=caught_up)
            return Told(one.windows + other.windows, one.late + other.late, one.invalid + other.invalid)
        told = Told(windows=sum(map(len, by_lane.values())))
        told.invalid = sum(part.records for part in parts if part.key is None)
        for lane in lanes or self._lanes.lanes:
            told.late += self._commit(lane, by_lane.get(lane, []), parts, end, caught_up)
        return told

    def rest(self, complete_as_of_ms: int, caught_up: Collection[int]) -> None:
        """Tell all lanes as of when they hold all that there was. Errors as `fold`."""
        for lane, standing in self.standings.items():
            self.standings[lane] = self._lanes.commit(
                lane,
                standing,
                standing.progress,
                watermark_ms=self._watermark_ms(standing.progress.times_ms, caught_up),
                complete_as_of_ms=complete_as_of_ms,
            )

    def _commit(
        self,
        lane: LaneTarget,
        own: Sequence[Part],
        parts: Iterable[Part],
        end: Offsets,
        caught_up: Collection[int],
    ) -> int:
        standing = self.standings[lane]
        progress = standing.progress
        changes, late = changes_of(self._view, own, _LaneWindows(self._lanes, lane), standing.watermark_ms)
        times = list(progress.times_ms)
        now_ms = self._clock.now_ms()
        invalid = 0
        for part in parts:
            if part.key is None:
                invalid += part.records
            elif part.newest_ms is not None:
                # A clock that is ahead must not make all others late.
                newest_ms = min(part.newest_ms, now_ms)
                times[part.partition] = max(newest_ms, times[part.partition] or newest_ms)
        self.standings[lane] = self._lanes.commit(
            lane,
            standing,
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
        """Event time before which nothing more is waited for; 0: none.

        Partitions that have more to be read hold it back: how fast each is read makes nothing late. Those
        that have none don't, so a partition without traffic keeps no window open.
        """
        behind = [time for partition, time in enumerate(times) if partition not in caught_up]
        if behind:
            known = [time for time in behind if time is not None]
            newest_ms = min(known) if len(known) == len(behind) else 0
        else:
            newest_ms = max((time for time in times if time is not None), default=0)
        return max(0, newest_ms - self._view.lateness_ms)


def _bytes(parts: Iterable[Part]) -> int:
    """What the values in these parts come to: the states of `latest` end in one."""
    return sum(
        len(state[-1])
        for part in parts
        for state in part.states
        if isinstance(state, list) and isinstance(state[-1], str)
    )


@dataclass(frozen=True, slots=True)
class _LaneWindows:
    lanes: ViewLanes
    lane: LaneTarget

    def windows(self, names: Sequence[bytes]) -> dict[bytes, Window]:
        return self.lanes.windows(self.lane, names)

    def around(self, spans: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        return self.lanes.around(self.lane, spans)
