"""Where a topic's lanes lie, and the watermarks that an answer of several lanes is as fresh as."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from keylane import codec, routing
from keylane.errors import CorruptState, LaneBuilding, StateTooOld
from keylane.keys import printable
from keylane.model import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from keylane.model import Layout, Record, Watermark


@dataclass(frozen=True, slots=True)
class Home:
    """A lane and where it lies."""

    partition: int
    stripe: int
    slot: int
    tag: bytes
    watermark_key: bytes

    def __hash__(self) -> int:
        return hash(self.watermark_key)  # no two lanes share it, and bytes remember theirs

    def __str__(self) -> str:
        return f"{self.partition}.{self.stripe}"


@lru_cache(maxsize=32_768)
def _home(shape: tuple[str, int, int, int], partition: int, stripe: int) -> Home:
    topic, generation, partition_count, stripes = shape
    slot = routing.slot_for(partition % partition_count, stripe, partition_count, stripes)
    tag = routing.hash_tag(slot)
    mark = codec.watermark_key(tag, topic, generation, partition, stripe)
    return Home(partition, stripe, slot, tag, mark)


def _shape(layout: Layout) -> tuple[str, int, int, int]:
    return layout.topic, layout.generation, layout.partition_count, layout.stripes


def home(layout: Layout, partition: int, stripe: int) -> Home:
    """The lane of a partition's stripe, by a layout that was checked.

    A partition beyond the layout's (the topic has grown) has a watermark alone, for all of its records
    are at home in others: it lies in the slot of the partition modulo the layout's count.
    """
    return _home(_shape(layout), partition, stripe)


def home_in(layout: Layout, partition: int, key: bytes) -> Home:
    """The lane of a partition that has the key's own stripe number."""
    _, stripe = _finder(layout)(key)
    return home(layout, partition, stripe)


def home_of(layout: Layout, key: bytes) -> Home:
    """The lane of a key, by a layout that was checked."""
    return home(layout, *_finder(layout)(key))


def homes_by_key(layout: Layout, keys: Iterable[bytes]) -> dict[bytes, Home]:
    """The lane of each of many keys, by a layout that was checked."""
    find = _finder(layout)
    known: dict[tuple[int, int], Home] = {}
    homes: dict[bytes, Home] = {}
    for key in keys:
        lane = find(key)
        found = known.get(lane)
        if found is None:
            found = known[lane] = home(layout, *lane)
        homes[key] = found
    return homes


def home_by(layout: Layout, partition_key: bytes) -> Home:
    """The one lane of all keys that have this partition key."""
    find = routing.lane_finder(layout.partition_count, layout.stripes, layout.partitioner)
    return home(layout, *find(partition_key))


def _finder(layout: Layout) -> Callable[[bytes], tuple[int, int]]:
    return routing.lane_finder(
        layout.partition_count, layout.stripes, layout.partitioner, layout.partition_by
    )


def homes_of(layout: Layout) -> list[Home]:
    """All lanes of a topic, in the order of their slots."""
    shape = _shape(layout)
    return [
        _home(shape, partition, stripe)
        for partition in range(layout.partition_count)
        for stripe in range(layout.stripes)
    ]


def decode_watermark(key: bytes, data: bytes) -> Watermark:
    """As the codec has it. Raises CorruptState."""
    try:
        return codec.decode_watermark(data)
    except codec.CodecError as error:
        raise CorruptState(printable(key), str(error)) from error


def decode_value(where: bytes, key: bytes, data: bytes | None, partition: int) -> Record | None:
    """The record that lies under the Redis key `where`. Raises CorruptState."""
    try:
        return None if data is None else codec.decode_record(key, data, partition)
    except codec.CodecError as error:
        raise CorruptState(printable(where), str(error)) from error


class Marks:
    """The watermarks of the lanes that an answer is made of, each as it was first read.

    What was read after a lane's watermark is as new as it claims, or newer.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.by_lane: dict[Home, Watermark] = {}
        self._missing: Home | None = None
        self._superseded = False

    def note(self, home: Home, data: bytes | None) -> None:
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

    def answer(self, home: Home, record: Record | None) -> Answer:
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


def _building(layout: Layout, home: Home, watermark: Watermark | None) -> LaneBuilding:
    if watermark is None:
        return LaneBuilding(layout.topic, home.partition, None)
    return LaneBuilding(layout.topic, home.partition, watermark.next_offset, watermark.log_end)
