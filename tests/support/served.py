"""A topic as the job writes it, without the job."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from tests.servers.own import fill
from tests.support import lanes as t
from tests.support.builders import a_layout, lane_of, layout_entry

from keylane.model.records import Options
from keylane.state import codec
from keylane.state.lanes import lanes_of_topic
from keylane_spark.adapters.lane import LaneTarget, OffsetRange

if TYPE_CHECKING:
    from keylane.adapters.redis.cluster import Cluster


class Served:
    """A topic that is written as the job writes it, one record at a time."""

    def __init__(self, nodes: str, cluster: Cluster, **options: Any) -> None:
        self.layout = a_layout(options=Options(**options))
        self.topic = self.layout.topic
        fill(nodes, layout_entry(self.layout))
        self.writer = t.writer_over(cluster, 1)
        self.lanes = [
            LaneTarget.of(self.layout, lane.partition, lane.stripe) for lane in lanes_of_topic(self.layout)
        ]
        self.writer.open([(lane, 0) for lane in self.lanes])
        self.offsets = [itertools.count() for _ in self.lanes]
        self.now_ms = time.time_ns() // 1_000_000
        for lane in self.lanes:
            self.writer.apply(lane, OffsetRange(0, 0, self.now_ms))
        self.writer.flush()

    def put(self, key: bytes, value: bytes | None, time_ms: int | None = None) -> str:
        """Write one record and return its position."""
        partition, _, _ = lane_of(self.layout, key)
        lane, offset = self.lanes[partition], next(self.offsets[partition])
        time_ms = self.now_ms if time_ms is None else time_ms
        envelope = codec.encode_record(value, offset, time_ms)
        chunk = t.chunk_of(lane, (key, envelope), has_tombstones=value is None, newest_timestamp_ms=time_ms)
        self.writer.apply(lane, OffsetRange(offset, offset + 1), chunk)
        self.writer.flush()
        return f"{partition}:{offset}"
