"""Lanes: which lane a key belongs to, where a lane is in Redis, and what is stored in it."""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from keylane import routing
from keylane.errors import CorruptState
from keylane.model.keys import printable
from keylane.model.records import Layout, Record, Watermark
from keylane.state import codec, redis_keys
from keylane.state.field_index import FieldIndex


class Lane(NamedTuple):
    """One stripe of a partition, and where it is in Redis: all its keys are in one hash slot.

    A record's Redis key is `value_prefix` and the record's own key.
    """

    partition: int
    stripe: int
    slot: int
    tag: bytes
    watermark_key: bytes
    value_prefix: bytes

    def __str__(self) -> str:
        return f"{self.partition}.{self.stripe}"


@lru_cache(maxsize=32_768)
def _lane_at(shape: tuple[str, int, int, int, bool], partition: int, stripe: int) -> Lane:
    topic, generation, count, stripes, centered = shape
    slot = routing.slot_for(partition % count, stripe, count, stripes, centered=centered)
    tag = routing.hash_tag(slot)
    return Lane(
        partition,
        stripe,
        slot,
        tag,
        redis_keys.watermark_key(tag, topic, generation, partition, stripe),
        redis_keys.value_key_prefix(tag, topic, generation),
    )


def lane_at(layout: Layout, partition: int, stripe: int) -> Lane:
    """Return the lane of a partition's stripe. The layout must be valid.

    A partition beyond the layout's count was added to the topic later. Its lane has only a watermark, in the
    slot of the partition modulo the count: its records belong to other lanes.
    """
    shape = layout.topic, layout.generation, layout.partition_count, layout.stripes, layout.centered
    return _lane_at(shape, partition, stripe)


def lane_in_partition(layout: Layout, partition: int, key: bytes) -> Lane:
    """Return the lane of this partition that has the stripe number of the key."""
    return lane_at(layout, partition, lane_of_key(layout, key).stripe)


def lane_of_key(layout: Layout, key: bytes) -> Lane:
    """Return the lane of a key. The layout must be valid."""
    count, stripes = layout.partition_count, layout.stripes
    partition, stripe = routing.lane_finder(count, stripes, layout.partitioner, layout.partition_by)(key)
    shape = layout.topic, layout.generation, count, stripes, layout.centered
    return _lane_at(shape, partition, stripe)


def keys_by_lane(layout: Layout, keys: Sequence[bytes]) -> dict[Lane, list[bytes]]:
    """Return each lane that keys belong to, with its keys, in their order. The layout must be valid."""
    numbers = routing.find_lanes(
        keys, layout.partition_count, layout.stripes, layout.partitioner, layout.partition_by
    )
    by_number: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)
    for key, number in zip(keys, numbers, strict=True):
        by_number[number].append(key)
    return {lane_at(layout, *number): found for number, found in by_number.items()}


def lane_of_partition_key(layout: Layout, partition_key: bytes) -> Lane:
    """Return the one lane of all keys that have this partition key."""
    find = routing.lane_finder(layout.partition_count, layout.stripes, layout.partitioner)
    return lane_at(layout, *find(partition_key))


def lanes_of_topic(layout: Layout) -> list[Lane]:
    """Return all lanes of a topic, in the order of their slots."""
    return [
        lane_at(layout, partition, stripe)
        for partition in range(layout.partition_count)
        for stripe in range(layout.stripes)
    ]


def index_keys(layout: Layout, lane: Lane, index: FieldIndex) -> list[bytes]:
    """Return the keys of a lane's sorted sets of an index, one for each part."""
    of_lane = lane.tag, layout.topic, layout.generation, lane.partition, lane.stripe
    if index.fields:
        name = redis_keys.field_index_key(*of_lane, index.number)
    else:
        name = redis_keys.index_key(*of_lane)
    return redis_keys.parts_of(name, layout.options.index)


def probe_key(layout: Layout, lane: Lane) -> bytes:
    """Return a key of the lane's slot that never exists.

    A script that reads it together with another key fails while the slot migrates.
    """
    return redis_keys.lane_key(lane.tag, layout.topic, layout.generation, b"probe", str(lane).encode())


def strays_key(layout: Layout, lane: Lane) -> bytes:
    """Return the key of the lane's strays: source partition -> offset below which all of them are in it."""
    return redis_keys.lane_key(lane.tag, layout.topic, layout.generation, b"s", str(lane).encode())


def given_key(layout: Layout, lane: Lane) -> bytes:
    """Return the key of what a partition's first lane notes: lane -> offset below which it was given strays.

    A lane that has taken less of them has lost some with a failover, until they are read again.
    """
    return redis_keys.lane_key(lane.tag, layout.topic, layout.generation, b"o", str(lane).encode())


def decode_watermark(redis_key: bytes, data: bytes) -> Watermark:
    """Decode the watermark record stored under `redis_key`. Raises CorruptState."""
    try:
        return codec.decode_watermark(data)
    except codec.CodecError as error:
        raise CorruptState(printable(redis_key), str(error)) from error


def decode_value(lane: Lane, key: bytes, data: bytes | None, expand: codec.Expand) -> Record | None:
    """Decode what a lane stores under a record's key: None for an absent key or a tombstone.

    Raises CorruptState, and what `expand` does.
    """
    try:
        return None if data is None else codec.decode_record(key, data, lane.partition, expand)
    except codec.CodecError as error:
        raise CorruptState(printable(lane.value_prefix + key), str(error)) from error


def decode_values(
    lane: Lane,
    keys: Sequence[bytes],
    found: Sequence[bytes | None],
    expand: codec.Expand,
) -> list[Record | None]:
    """Return `decode_value` of each key. Errors as of that."""
    try:
        return codec.decode_records(keys, found, lane.partition, expand)
    except codec.CodecError:
        return [decode_value(lane, key, data, expand) for key, data in zip(keys, found, strict=True)]
