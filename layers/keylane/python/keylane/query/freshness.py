"""The watermarks that a read has seen, and how fresh its answer is because of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import LaneBuilding, StateTooOld
from keylane.state.lanes import Lane, decode_watermark

if TYPE_CHECKING:
    from keylane.model.records import Answer, Layout, Watermark


class Watermarks:
    """The watermarks of the lanes that an answer was read from, each as it was first read.

    Values that were read after a lane's watermark are as new as the watermark claims, or newer.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.by_lane: dict[Lane, Watermark] = {}
        self._missing: Lane | None = None
        self._superseded = False

    def note(self, lane: Lane, data: bytes | None) -> None:
        """Add a lane's watermark record, None where the lane has none. Raises CorruptState."""
        if data is None:
            self._missing = lane
            return
        watermark = decode_watermark(lane.watermark_key, data)
        if watermark.superseded:
            self._superseded = True
        self.by_lane.setdefault(lane, watermark)

    @property
    def is_stale(self) -> bool:
        """Whether a lane was superseded or had no watermark: there may be a newer layout."""
        return self._superseded or self._missing is not None

    def building_error(self) -> LaneBuilding:
        """Return the error for the lane that has no watermark, or else for the first one that has."""
        lane = self._missing or next(iter(self.by_lane))
        return self._building_error(lane, self.by_lane.get(lane))

    def check_complete(self, *, partial: bool) -> None:
        """Raise LaneBuilding for a lane without a watermark or, unless `partial`, one that still builds."""
        if self._missing:
            raise self.building_error()
        if not partial:
            for lane, watermark in self.by_lane.items():
                if not watermark.complete_as_of_ms:
                    raise self._building_error(lane, watermark)

    def _building_error(self, lane: Lane, watermark: Watermark | None) -> LaneBuilding:
        if watermark is None:
            return LaneBuilding(self.layout.topic, lane.partition, None)
        return LaneBuilding(self.layout.topic, lane.partition, watermark.next_offset, watermark.log_end)

    @property
    def next_offsets(self) -> dict[int, int]:
        """Partition -> offset below which everything is in the answer: the least of its lanes."""
        least: dict[int, int] = {}
        for lane, watermark in self.by_lane.items():
            known = least.get(lane.partition, watermark.next_offset)
            least[lane.partition] = min(known, watermark.next_offset)
        return least

    @property
    def is_building(self) -> bool:
        """Whether a lane has never been complete."""
        return not all(watermark.complete_as_of_ms for watermark in self.by_lane.values())

    @property
    def is_incomplete(self) -> bool:
        """Whether retention removed records that a lane never saw."""
        return any(watermark.incomplete for watermark in self.by_lane.values())

    def age_ms(self, now_ms: int) -> int:
        """Return a bound on staleness: that of the oldest lane."""
        oldest_ms = min((each.complete_as_of_ms for each in self.by_lane.values()), default=now_ms)
        return max(0, now_ms - oldest_ms)


def check_age(found: Answer | Watermarks, now_ms: int, max_age_ms: int | None) -> None:
    """Raise StateTooOld where the state may be older than `max_age_ms`, or was never complete."""
    if max_age_ms is None:
        return
    age_ms = None if found.is_building else found.age_ms(now_ms)
    if age_ms is None or age_ms > max_age_ms:
        raise StateTooOld(age_ms, max_age_ms)
