"""The cost of waiting for a replica: a lane writer whose `flush` sends WAIT, beside one without WAIT.

Both write the same records to lanes in the same slots of one real cluster of 3 + 3 nodes, alternating. A
large batch has many chunks for every lane and one flush, a small one has one record for every lane and one
flush.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import stage
import state
from fill import settle
from harness import ResultRow, parse, percentiles, report

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.resp import encode_command
from keylane.config.functions import redis_settings
from keylane.model.records import Layout
from keylane.ports import Clock
from keylane.state import codec
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.rows.chunks import Chunk
from keylane_spark.rows.ordered_writes import OrderedWrites

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITIONS = 9
CHUNK = 1000
WITHOUT, WITH = "wait_replicas = 0", "wait_replicas = 1"
CLOCK = Clock()


class WaitingWriter:
    """A writer with its own lanes, and the durations of its batches."""

    def __init__(self, nodes: str, topic: str, wait_replicas: int, value: bytes) -> None:
        self.large_s: list[float] = []
        self.small_ms: list[float] = []
        self.held_up: list[str] = []
        self._cluster = Cluster(redis_settings(state.environment(nodes)))
        options = WriteOptions(wait_replicas=wait_replicas)
        self._writer = LaneWriter(FunctionLibrary(self._cluster, CLOCK, options, self.held_up.append), 1)
        layout = Layout(topic, PARTITIONS)
        self._lanes = {LaneTarget.of(layout, partition, 0): 0 for partition in range(PARTITIONS)}
        self._writer.open((lane, 0) for lane in self._lanes)
        self._chunks = {lane: bulk(lane, CHUNK, value) for lane in self._lanes}
        self._records = {lane: bulk(lane, 1, value) for lane in self._lanes}

    def large(self, chunks: int) -> None:
        began = time.perf_counter()
        for _ in range(chunks):
            for lane, arguments in self._chunks.items():
                self._apply(lane, arguments, CHUNK)
        self._writer.flush()
        self.large_s.append(time.perf_counter() - began)

    def small(self) -> None:
        began = time.perf_counter()
        for lane, arguments in self._records.items():
            self._apply(lane, arguments, 1)
        self._writer.flush()
        self.small_ms.append((time.perf_counter() - began) * 1000)

    def row(self, name: str, records: int) -> ResultRow:
        figures = {"records/s": records * len(self.large_s) / sum(self.large_s)}
        taken = percentiles(self.small_ms, 50, 99)
        return ResultRow(name, figures | {f"{each}, ms": taken[each] for each in ("p50", "p99")})

    def close(self) -> None:
        self._cluster.close()

    def _apply(self, lane: LaneTarget, arguments: bytes, count: int) -> None:
        begin = self._lanes[lane]
        self._lanes[lane] = begin + count
        packed = memoryview(arguments)
        ordered = OrderedWrites(count, packed, (), 0)
        chunk = Chunk(begin + count, 0, count, has_tombstones=False, arguments=packed, ordered=ordered)
        self._writer.apply(lane, OffsetRange(begin, begin + count), chunk)


def bulk(lane: LaneTarget, count: int, value: bytes) -> bytes:
    """Return keys and payloads in the writer's format; their offsets do not matter."""
    pairs = [
        argument
        for number in range(count)
        for argument in (lane.key_prefix + b"key-%06d" % number, codec.encode_record(value, number, 0))
    ]
    return encode_command(*pairs).partition(b"\r\n")[2]


def waits(nodes: str) -> int:
    """Return the number of WAITs that the nodes have received."""
    with state.node_clients(nodes) as clients:
        stats = [client.info("commandstats") for client in clients]
    return sum(each.get("cmdstat_wait", {"calls": 0})["calls"] for each in stats)


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=20, help="large batches, each way")
    options.add_argument("--chunks", type=int, default=10, help=f"of {CHUNK} records, to a lane in a batch")
    options.add_argument("--samples", type=int, default=2000, help="small batches, each way")
    options.add_argument("--value-bytes", type=int, default=170)
    chosen = parse(options, arguments)
    value = b"x" * chosen.value_bytes
    with stage.cluster() as nodes:
        ways = {
            WITHOUT: WaitingWriter(nodes, "without", 0, value),
            WITH: WaitingWriter(nodes, "with", 1, value),
        }
        for way in ways.values():  # memory and connections
            way.large(chosen.chunks)
            way.large_s.clear()
        for _ in range(chosen.rounds):
            for way in ways.values():
                settle(nodes)  # so that no batch pays for the one before it
                way.large(chosen.chunks)
        settle(nodes)
        for _ in range(chosen.samples):
            for way in ways.values():
                way.small()
        for way in ways.values():
            if way.held_up:
                raise SystemExit(f"the cluster was not well: {way.held_up[:3]}")
            way.close()
        if not waits(nodes):
            raise SystemExit("no WAIT was sent: there is nothing to compare")
    records = chosen.chunks * CHUNK * PARTITIONS
    report(
        "wait",
        "large batches: records/s; small ones: ms",
        [way.row(name, records) for name, way in ways.items()],
        reference=WITHOUT,
        settings=vars(chosen),
    )


if __name__ == "__main__":
    main()
