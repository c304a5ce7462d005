"""The watermarks that a read has seen, and what it may claim because of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import LaneBuilding, StateTooOld
from keylane.model.records import Answer

if TYPE_CHECKING:
    from keylane.model.records import Layout, Record, Watermark
from keylane.state.lanes import Lane, decode_watermark


class Watermarks:
    """The watermarks of the lanes that an answer is made of, each as it was first read.

    What was read after a lane's watermark is as new as it claims, or newer.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.by_lane: dict[Lane, Watermark] = {}
        self._missing: Lane | None = None
        self._superseded = False

    def note(self, home: Lane, data: bytes | None) -> None:
        """Take note of a lane's watermark record, None where it has none. Raises CorruptState."""
        if data is None:
            self._missing = home
            return
        watermark = decode_watermark(home.watermark_key, data)
        self._superseded = self._superseded or watermark.superseded
        self.by_lane.setdefault(home, watermark)

    @property
    def is_stale(self) -> bool:
        """Whether there may be a newer layout."""
        return self._superseded or self._missing is not None

    def building(self) -> LaneBuilding:
        """The error for the lane that has not begun, else for the first of those that there are."""
        home = self._missing or next(iter(self.by_lane))
        watermark = None if self._missing else self.by_lane[home]
        return _building(self.layout, home, watermark)

    def check_whole(self, *, partial: bool) -> None:
        """Raise LaneBuilding for a lane that has not begun, and, but for `partial`, that isn't whole."""
        if self._missing:
            raise self.building()
        if not partial:
            for home, watermark in self.by_lane.items():
                if not watermark.complete_as_of_ms:
                    raise _building(self.layout, home, watermark)

    def answer(self, home: Lane, record: Record | None) -> Answer:
        """What was found under one key of a noted lane."""
        return Answer(self.layout, home.partition, record, self.by_lane[home])

    @property
    def next_offsets(self) -> dict[int, int]:
        """Partition -> everything below is in the answer: of its lanes that were asked, the least."""
        least: dict[int, int] = {}
        for home, watermark in self.by_lane.items():
            known = least.get(home.partition, watermark.next_offset)
            least[home.partition] = min(known, watermark.next_offset)
        return least

    @property
    def is_building(self) -> bool:
        """Whether any lane was never whole yet."""
        return not all(watermark.complete_as_of_ms for watermark in self.by_lane.values())

    @property
    def is_incomplete(self) -> bool:
        """Whether retention has removed records that a lane never saw."""
        return any(watermark.incomplete for watermark in self.by_lane.values())

    def age_ms(self, now_ms: int) -> int:
        """A bound on staleness: the oldest lane's."""
        oldest_ms = min((mark.complete_as_of_ms for mark in self.by_lane.values()), default=now_ms)
        return max(0, now_ms - oldest_ms)

    def check_age(self, now_ms: int, max_age_ms: int | None) -> None:
        """Raise StateTooOld where the state is older than asked for, or was never whole."""
        if max_age_ms is not None and (self.is_building or self.age_ms(now_ms) > max_age_ms):
            raise StateTooOld(None if self.is_building else self.age_ms(now_ms), max_age_ms)


def _building(layout: Layout, home: Lane, watermark: Watermark | None) -> LaneBuilding:
    if watermark is None:
        return LaneBuilding(layout.topic, home.partition, None)
    return LaneBuilding(layout.topic, home.partition, watermark.next_offset, watermark.log_end)
