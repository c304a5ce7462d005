"""Where a topic's lanes lie, and the watermarks that an answer of several lanes is as fresh as."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from keylane import routing
from keylane.errors import CorruptState
from keylane.model.keys import printable
from keylane.state import codec, redis_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from keylane.model.records import Layout, Record, Watermark


@dataclass(frozen=True, slots=True)
class Lane:
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
def _lane_at(shape: tuple[str, int, int, int], partition: int, stripe: int) -> Lane:
    topic, generation, partition_count, stripes = shape
    slot = routing.slot_for(partition % partition_count, stripe, partition_count, stripes)
    tag = routing.hash_tag(slot)
    mark = redis_keys.watermark_key(tag, topic, generation, partition, stripe)
    return Lane(partition, stripe, slot, tag, mark)


def _shape(layout: Layout) -> tuple[str, int, int, int]:
    return layout.topic, layout.generation, layout.partition_count, layout.stripes


def lane_at(layout: Layout, partition: int, stripe: int) -> Lane:
    """The lane of a partition's stripe, by a layout that was checked.

    A partition beyond the layout's (the topic has grown) has a watermark alone, for all of its records
    are at home in others: it lies in the slot of the partition modulo the layout's count.
    """
    return _lane_at(_shape(layout), partition, stripe)


def lane_in_partition(layout: Layout, partition: int, key: bytes) -> Lane:
    """The lane of a partition that has the key's own stripe number."""
    _, stripe = _finder(layout)(key)
    return lane_at(layout, partition, stripe)


def lane_of_key(layout: Layout, key: bytes) -> Lane:
    """The lane of a key, by a layout that was checked."""
    return lane_at(layout, *_finder(layout)(key))


def lanes_by_key(layout: Layout, keys: Iterable[bytes]) -> dict[bytes, Lane]:
    """The lane of each of many keys, by a layout that was checked."""
    find = _finder(layout)
    known: dict[tuple[int, int], Lane] = {}
    homes: dict[bytes, Lane] = {}
    for key in keys:
        lane = find(key)
        found = known.get(lane)
        if found is None:
            found = known[lane] = lane_at(layout, *lane)
        homes[key] = found
    return homes


def lane_of_partition_key(layout: Layout, partition_key: bytes) -> Lane:
    """The one lane of all keys that have this partition key."""
    find = routing.lane_finder(layout.partition_count, layout.stripes, layout.partitioner)
    return lane_at(layout, *find(partition_key))


def _finder(layout: Layout) -> Callable[[bytes], tuple[int, int]]:
    return routing.lane_finder(
        layout.partition_count, layout.stripes, layout.partitioner, layout.partition_by
    )


def lanes_of_topic(layout: Layout) -> list[Lane]:
    """All lanes of a topic, in the order of their slots."""
    shape = _shape(layout)
    return [
        _lane_at(shape, partition, stripe)
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
