"""What a lane holds, and what it should hold: for the tests of the writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from redis.cluster import ClusterNode, RedisCluster

from keylane.adapters.redis.cluster import Cluster, Node, RedisSettings
from keylane.adapters.redis.state import RedisState
from keylane.ports import Clock, Deadline
from keylane.state import codec
from keylane_spark.adapters.lane_writer import LaneWriter
from keylane_spark.columns.chunks import chunks
from keylane_spark.columns.records import Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model.records import Record, Watermark
    from keylane_spark.adapters.lane_writer import LaneTarget

CLOCK = Clock()
BASE_MS = 1_700_000_000_000


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
    """redis-py's own client, to look and to spoil."""
    return RedisCluster(startup_nodes=[ClusterNode(*node) for node in settings(nodes).nodes])


def writer(nodes: str, epoch: int, **options) -> LaneWriter:
    return LaneWriter(Cluster(settings(nodes)), CLOCK, epoch, **options)


def write(
    lanes: LaneWriter, lane: LaneTarget, begin: int, events: Sequence[Event], end: int, **limits
) -> None:
    """All of [begin, end) in chunks, arrived when it returns."""
    if events:
        for chunk in chunks(columns(events), lane.key_prefix, **limits):
            lanes.apply(
                lane,
                begin,
                chunk.end_offset,
                arguments=chunk.arguments,
                count=chunk.count,
                has_tombstones=chunk.has_tombstones,
                newest_timestamp_ms=chunk.newest_timestamp_ms,
            )
            begin = chunk.end_offset
    lanes.apply(lane, begin, end)
    lanes.flush()


def held(nodes: str, lane: LaneTarget, keys: Sequence[bytes]) -> tuple[dict[bytes, Record], Watermark | None]:
    """What the lane holds of these keys, and its watermark."""
    names = [lane.watermark_key, *(lane.key_prefix + key for key in keys)]
    state = RedisState(Cluster(settings(nodes)))
    watermark, *values = state.read(lane.slot, names, Deadline.after_ms(5000, CLOCK))
    state.close()
    records = {}
    for key, value in zip(keys, values, strict=True):
        record = None if value is None else codec.decode_record(key, value, lane.partition)
        if record is not None:
            records[key] = record
    return records, codec.decode_watermark(watermark) if watermark is not None else None
