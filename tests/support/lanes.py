"""Writing lanes in tests, what they hold, and what they should hold."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from redis.cluster import ClusterNode, RedisCluster

from keylane.adapters.redis.cluster import Cluster, Node, RedisSettings
from keylane.adapters.redis.state import RedisState
from keylane.model.records import Layout, Options
from keylane.ports import Clock, Deadline
from keylane.query.dictionaries import Dictionaries, Expander, load_dictionary
from keylane.state import codec
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.rows.chunks import (
    MAX_BYTES,
    MAX_RECORDS,
    Chunk,
    Delivery,
    Folded,
    OpenChunk,
    add_records,
    encode_chunks,
)
from keylane_spark.rows.ordered_writes import OrderedWrites
from keylane_spark.rows.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from keylane.model.records import Record, Watermark

CLOCK = Clock()
BASE_MS = 1_700_000_000_000
NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a log; a value of None is a tombstone."""

    offset: int
    key: bytes
    value: bytes | None

    @property
    def timestamp_ms(self) -> int:
        return BASE_MS + self.offset


def columns(events: Sequence[Event]) -> Records:
    return Records(
        pa.array([event.key for event in events], pa.binary()),
        pa.array([event.value for event in events], pa.binary()),
        np.array([event.offset for event in events], np.int64),
        np.array([event.timestamp_ms for event in events], np.int64),
    )


def fold(events: Sequence[Event]) -> dict[bytes, tuple[bytes, int]]:
    """The state after these events: key -> value and offset."""
    state = {}
    for event in events:
        if event.value is None:
            state.pop(event.key, None)
        else:
            state[event.key] = event.value, event.offset
    return state


def settings(nodes: str) -> RedisSettings:
    pairs = (node.rpartition(":") for node in nodes.split(","))
    return RedisSettings(tuple(Node(host, int(port)) for host, _, port in pairs))


def client(nodes: str) -> RedisCluster:
    """redis-py's own client, to inspect and to corrupt."""
    return RedisCluster(startup_nodes=[ClusterNode(*node) for node in settings(nodes).nodes])


def writer(nodes: str, epoch: int, notify: Callable[[str], None] = lambda _: None, **options) -> LaneWriter:
    return writer_over(Cluster(settings(nodes)), epoch, notify, **options)


def writer_over(
    cluster: Cluster, epoch: int, notify: Callable[[str], None] = lambda _: None, **options
) -> LaneWriter:
    return LaneWriter(FunctionLibrary(cluster, CLOCK, WriteOptions(**options), notify), epoch)


def new_lane(partition: int = 4, **options) -> LaneTarget:
    """A lane of a topic of its own."""
    return LaneTarget.of(Layout(f"own-lane-{next(NUMBERS)}", 9, options=Options(**options)), partition, 0)


def opened(nodes: str, lane: LaneTarget, epoch: int = 1, oldest: int = 0, **options) -> LaneWriter:
    lanes = writer(nodes, epoch, **options)
    lanes.open([(lane, oldest)])
    return lanes


def chunk_of(lane: LaneTarget, *pairs: tuple[bytes, bytes], **fields) -> Chunk:
    """A chunk of these keys and envelopes, as they are: without the fold."""
    parts = [part for key, envelope in pairs for part in (lane.key_prefix + key, envelope)]
    arguments = memoryview(b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))
    defaults = {"end_offset": 0, "newest_timestamp_ms": 0, "has_tombstones": False}
    is_mset = not lane.options.compared and not fields.get("has_tombstones")
    if is_mset and lane.delivery(len(pairs)).in_order:
        defaults["ordered"] = OrderedWrites(len(pairs), arguments, (), 0)
    return Chunk(**{**defaults, "count": len(pairs), "arguments": arguments, **fields})


class Folder:
    """Folds the records of one lane into chunks, however they are spread over batches."""

    def __init__(
        self, options: Options | None = None, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES
    ) -> None:
        self.options = options or Options()
        self.opened = OpenChunk(max_records, max_bytes)

    def add(self, records: Records, max_records: int | None = None) -> list[Folded]:
        """Add records; return the chunks that are full. `max_records`: from now on."""
        self.opened.max_records = max_records or self.opened.max_records
        lanes = np.zeros(len(records), np.int64)
        return add_records({0: self.opened}, records, lanes, self.options).get(0, [])

    def take(self) -> Folded | None:
        return self.opened.take()


def encode(folded: Folded, delivery: Delivery, source_partition: int | None = None) -> Chunk:
    (chunk,) = encode_chunks([folded], [delivery], source_partition)
    return chunk


def chunks(
    records: Records,
    key_prefix: bytes,
    max_records: int = MAX_RECORDS,
    max_bytes: int = MAX_BYTES,
    *,
    options: Options | None = None,
    source_partition: int | None = None,
) -> Iterator[Chunk]:
    """The chunks of these records and no others."""
    options = options or Options()
    folder = Folder(options, max_records=max_records, max_bytes=max_bytes)
    found = [*folder.add(records), folder.take()]
    for folded in filter(None, found):
        yield encode(folded.with_fields(options), Delivery(key_prefix), source_partition)


def write(
    lanes: LaneWriter, lane: LaneTarget, begin: int, events: Sequence[Event], end: int, **limits
) -> None:
    """Write all of [begin, end) in chunks; they have arrived when it returns."""
    if events:
        for chunk in chunks(columns(events), lane.key_prefix, **limits):
            lanes.apply(lane, OffsetRange(begin, chunk.end_offset), chunk)
            begin = chunk.end_offset
    lanes.apply(lane, OffsetRange(begin, end))
    lanes.flush()


def complete(lanes: LaneWriter, lane: LaneTarget, next_offset: int, now_ms: int) -> None:
    """Declare that the lane holds everything that the log had at this time."""
    lanes.apply(lane, OffsetRange(next_offset, next_offset, now_ms, next_offset))
    lanes.flush()


def fail_over(nodes: str, lane: LaneTarget) -> None:
    """Have the lane's slot look as on a promoted replica, whose history is another."""
    with client(nodes) as redis:
        redis.set(lane.watermark_key.replace(b":w:", b":l:"), b"f" * 40)


def expand_of(cluster: Cluster, lane: LaneTarget) -> codec.Expand:
    """What makes values of those that are compressed in this lane."""
    generation = int(lane.key_prefix.split(b":")[-3])
    layout = Layout(lane.topic, 1, generation=generation, options=lane.options)
    load = partial(load_dictionary, RedisState(cluster), layout, deadline=Deadline.after_ms(5000, CLOCK))
    return Expander(layout, Dictionaries(), load).expand


def held(nodes: str, lane: LaneTarget, keys: Sequence[bytes]) -> tuple[dict[bytes, Record], Watermark | None]:
    """What the lane holds of these keys, and its watermark."""
    names = [lane.watermark_key, *(lane.key_prefix + key for key in keys)]
    state = RedisState(cluster := Cluster(settings(nodes)))
    watermark, *values = state.read(lane.slot, names, Deadline.after_ms(5000, CLOCK))
    expand = expand_of(cluster, lane)
    records = {}
    for key, value in zip(keys, values, strict=True):
        record = None if value is None else codec.decode_record(key, value, lane.partition, expand)
        if record is not None:
            records[key] = record
    state.close()
    return records, codec.decode_watermark(watermark) if watermark is not None else None
