"""Topics for the benchmark of reads, written by the job's writer without Kafka and Spark."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import state

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.config.functions import redis_settings
from keylane.ports import Clock
from keylane.state import codec, redis_keys
from keylane_spark.lanes.dictionaries import Compressors
from keylane_spark.lanes.function_library import DEFAULTS, FunctionLibrary, WriteOptions
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.rows.records import Rows
from keylane_spark.stream.batch_writer import BatchWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from keylane.model.records import Layout

    Record = tuple[bytes, bytes]

AT_ONCE = 50_000
BATCH_RECORDS = 1_000_000
"""As many as a batch of the job has: the process need not hold all records."""


def fill(nodes: str, layout: Layout, records: Iterable[Record]) -> None:
    """Write the records (key, value) in this order, and the layout; readers find them on return."""
    with TopicFiller(nodes, layout) as filler:
        filler.add(records)


class TopicFiller:
    """Writes a topic that nobody else has written, and that may grow."""

    def __init__(self, nodes: str, layout: Layout, options: WriteOptions = DEFAULTS) -> None:
        """Open the lanes and write the layout: readers find a complete topic without records."""
        self._layout = layout
        self._offsets = [0] * layout.partition_count
        settings = redis_settings(state.environment(nodes))
        self._cluster = Cluster(settings)
        self._compressors = Compressors(settings, options, Clock(), lambda _: None)
        self._lanes = LaneWriter(FunctionLibrary(self._cluster, Clock(), options), 1)
        self._lanes.open((LaneTarget.of(layout, *place), 0) for place in _places(layout))
        with state.client(nodes) as client:
            client.set(redis_keys.layout_key(layout.topic), codec.encode_layout(layout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
        self._compressors.close()

    def add(self, records: Iterable[Record]) -> None:
        """Write the records (key, value) behind those before; readers find them on return."""
        remaining = iter(records)
        while batch := list(itertools.islice(remaining, BATCH_RECORDS)):
            self._write(batch)

    def _write(self, records: Iterable[Record]) -> None:
        layout, now_ms = self._layout, time.time_ns() // 1_000_000
        by_partition: list[list[Record]] = [[] for _ in range(layout.partition_count)]
        for key, value in records:
            part = routing.partition_key(key, layout.partition_by)
            partition = routing.partition_for(part, layout.partition_count, layout.partitioner)
            by_partition[partition].append((key, value))
        begins, self._offsets = self._offsets, list(map(_end_offset, self._offsets, by_partition))
        ranges = {
            (layout.topic, partition): OffsetRange(begins[partition], end, now_ms, end)
            for partition, end in enumerate(self._offsets)
        }
        writer = BatchWriter(self._lanes, {layout.topic: layout}, ranges, compress=self._compressors)
        for partition, rows in enumerate(by_partition):
            for first in range(0, len(rows), AT_ONCE):
                chunk = rows[first : first + AT_ONCE]
                source = layout.topic, partition
                writer.write(source, _rows(begins[partition] + first, chunk, now_ms))
            writer.finish([(layout.topic, partition)])


def _end_offset(begin: int, rows: list[Record]) -> int:
    return begin + len(rows)


def _places(layout: Layout) -> list[tuple[int, int]]:
    return [
        (partition, stripe) for partition in range(layout.partition_count) for stripe in range(layout.stripes)
    ]


def _rows(first: int, records: list[Record], now_ms: int) -> Rows:
    """Return rows of a partition; each record is a millisecond older than the next."""
    offsets = np.arange(first, first + len(records), dtype=np.int64)
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    return Rows(offsets, now_ms - 100_000_000 + offsets, keys, values)


def settle(nodes: str) -> None:
    """Wait until the replicas have caught up: until then they would slow down the measured reads."""
    until = time.monotonic() + 60
    with state.node_clients(nodes) as clients:
        while not all(_is_level(client.info("replication")) for client in clients):
            if time.monotonic() > until:
                raise SystemExit("the replicas did not catch up")
            time.sleep(0.01)


def _is_level(facts: dict[str, object]) -> bool:
    return facts["role"] != "master" or facts["slave0"]["offset"] == facts["master_repl_offset"]
