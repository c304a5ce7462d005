"""A topic as the job writes it, without the job."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.servers.own import fill
from tests.support import lanes as t
from tests.support.builders import a_layout, lane_of, layout_entry

from keylane.model.records import WHOLE_KEY, Options
from keylane.state import codec
from keylane.state.lanes import lanes_of_topic
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.rows.fields import field_entries

if TYPE_CHECKING:
    from keylane.adapters.redis.cluster import Cluster


class Served:
    """A topic that is written as the job writes it, one record at a time."""

    def __init__(
        self,
        nodes: str,
        cluster: Cluster,
        *,
        stripes: int = 1,
        partition_by: str = WHOLE_KEY,
        **options: Any,
    ) -> None:
        self.layout = a_layout(stripes=stripes, partition_by=partition_by, options=Options(**options))
        self.topic = self.layout.topic
        self._nodes = nodes
        fill(nodes, layout_entry(self.layout))
        self.writer = t.writer_over(cluster, 1)
        self.lanes = self._open_lanes()
        self._stored: list[dict[bytes, tuple[bytes, int]]] = [{} for _ in self.lanes]
        """Of each lane the envelope and the offset of each key."""
        self.offsets = [itertools.count() for _ in self.lanes]
        self.stray_offsets = itertools.count(1_000_000)
        self.now_ms = time.time_ns() // 1_000_000
        for lane in self.lanes:
            self.writer.apply(lane, OffsetRange(0, 0, self.now_ms))
        self.writer.flush()

    def _open_lanes(self) -> list[LaneTarget]:
        lanes = [
            LaneTarget.of(self.layout, lane.partition, lane.stripe) for lane in lanes_of_topic(self.layout)
        ]
        self.writer.open([(lane, 0) for lane in lanes])
        return lanes

    def build_again(self, *, is_created_again: bool = False) -> None:
        """Write what was put to another generation, and have readers switch to it, as the job does.

        `is_created_again`: its log counts as another one, so streams have a gap.
        """
        before = self.lanes
        self.layout = replace(
            self.layout,
            generation=self.layout.generation + 1,
            incarnation=self.layout.incarnation + is_created_again,
        )
        self.lanes = self._open_lanes()
        for lane, stored in zip(self.lanes, self._stored, strict=True):
            end = 1 + max((offset for _, offset in stored.values()), default=-1)
            pairs = [(key, envelope) for key, (envelope, _) in stored.items()]
            chunk = t.chunk_of(lane, *pairs, has_tombstones=True, newest_timestamp_ms=self.now_ms)
            self.writer.apply(lane, OffsetRange(0, end, self.now_ms), chunk if pairs else None)
        self.writer.flush()
        fill(self._nodes, layout_entry(self.layout))
        self.writer.supersede(before)
        self.writer.flush()

    def put(self, key: bytes, value: bytes | None, time_ms: int | None = None) -> str:
        """Write one record and return its position."""
        partition, stripe, _ = lane_of(self.layout, key)
        number = partition * self.layout.stripes + stripe
        lane, offset = self.lanes[number], next(self.offsets[number])
        time_ms = self.now_ms if time_ms is None else time_ms
        envelope = codec.encode_record(value, offset, time_ms, fields=self._fields_of(value))
        chunk = t.chunk_of(lane, (key, envelope), has_tombstones=value is None, newest_timestamp_ms=time_ms)
        self.writer.apply(lane, OffsetRange(offset, offset + 1), chunk)
        self.writer.flush()
        self._stored[number][key] = envelope, offset
        return f"{partition}:{offset}"

    def _fields_of(self, value: bytes | None) -> bytes:
        entries, _ = field_entries(pa.array([value], pa.binary()), self.layout.options)
        found: bytes = entries[0].as_py()
        return found

    def put_stray(self, key: bytes, value: bytes | None, time_ms: int | None = None) -> str:
        """Write one record that lies in the partition behind its key's, and return its position."""
        partition, stripe, _ = lane_of(self.layout, key)
        lane = self.lanes[partition * self.layout.stripes + stripe]
        source, offset = (partition + 1) % self.layout.partition_count, next(self.stray_offsets)
        time_ms = self.now_ms if time_ms is None else time_ms
        row = codec.encode_record(value, offset, time_ms, source, fields=self._fields_of(value))
        self.writer.put_strays(lane, t.chunk_of(lane, (key, row), end_offset=offset + 1), source)
        self.writer.flush()
        return f"{source}:{offset}"
