"""What a task of Spark writes, on a real Redis Cluster: its rows may end early, without an error."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support import lanes as t

from keylane import routing
from keylane.errors import LaneBehind
from keylane.model.records import Layout
from keylane_spark.lanes.function_library import DEFAULTS
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.openings import WriterSpec
from keylane_spark.stream.partition_chunks import PartitionResult
from keylane_spark.stream.spark_reader import SparkRowWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = itertools.count()
PARTITIONS = 6
OWN, FOREIGN, EMPTY = 3, 4, 5
END = 100
"""Where the batch ends: behind the rows, as with the marker of a transaction."""
CLAIMED = OffsetRange(0, END, complete_as_of_ms=1_700_000_000_000, log_end=END)


def keys_of(partition: int, count: int) -> list[bytes]:
    keys = (b"key-%d" % number for number in itertools.count())
    return list(
        itertools.islice((k for k in keys if routing.partition_for(k, PARTITIONS) == partition), count)
    )


def rows(keys: list[bytes], first: int) -> pa.RecordBatch:
    offsets = range(first, first + len(keys))
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([OWN] * len(keys), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([1_000_000 * offset for offset in offsets], pa.timestamp("us", "UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
        }
    )


class Task:
    """A task over partition 3 of a new topic."""

    def __init__(self, nodes: str, stripes: int = 1) -> None:
        self.nodes = nodes
        self.layout = Layout(f"task-{next(NUMBERS)}", PARTITIONS, stripes=stripes)
        self.spec = WriterSpec(t.settings(nodes), {self.layout.topic: self.layout}, 1, DEFAULTS)
        self.ranges = {(self.layout.topic, partition): CLAIMED for partition in (OWN, EMPTY)}
        t.writer(nodes, 1).open(
            (lane, 0)
            for partition in (OWN, FOREIGN, EMPTY)
            for lane in LaneTarget.of_partition(self.layout, partition)
        )

    def run(self, *batches: pa.RecordBatch) -> dict[str, object]:
        """Run it, as Spark does with what comes before its input ends; return its row."""
        (found,) = SparkRowWriter(self.spec, self.ranges, {})(iter(batches))
        (row,) = found.to_pylist()
        return row

    def finish(self, reached: int) -> None:
        """Do what the driver does once all tasks have succeeded."""
        lanes = t.writer(self.nodes, 1)
        batch = BatchWriter(lanes, self.spec.layouts, self.ranges)
        batch.note_written((self.layout.topic, OWN), reached, PartitionResult())
        batch.finish(sorted(self.ranges))

    def watermarks(self, partition: int = OWN) -> Iterator[tuple[int, int]]:
        """The next offset of each stripe, and the time as of which it is complete."""
        for lane in LaneTarget.of_partition(self.layout, partition):
            _, watermark = t.held(self.nodes, lane, [])
            assert watermark
            yield watermark.next_offset, watermark.complete_as_of_ms


@pytest.fixture(params=[1, 3], ids=["one stripe", "three stripes"])
def task(request, redis_cluster: str) -> Task:
    return Task(redis_cluster, request.param)


def test_a_task_whose_rows_end_early_moves_no_watermark_past_them(task):
    keys = keys_of(OWN, 50)
    first = task.run(rows(keys[:30], 0))
    assert first["reached"] == 30
    assert set(task.watermarks()) == {(30, 0)}


def test_the_driver_moves_the_watermarks_to_the_end_once_all_tasks_have_succeeded(task):
    keys = keys_of(OWN, 50)
    row = task.run(rows(keys[:30], 0), rows(keys[30:], 30))
    assert row["reached"] == 50
    task.finish(row["reached"])
    for partition in (OWN, EMPTY):
        assert set(task.watermarks(partition)) == {(END, CLAIMED.complete_as_of_ms)}


def test_a_lane_that_has_lost_what_a_task_wrote_refuses_the_end(task, redis_cluster):
    """Its watermark is that of before: nobody may move it over what is missing."""
    row = task.run(rows(keys_of(OWN, 40), 0))
    before = Task(redis_cluster, task.layout.stripes)
    with pytest.raises(LaneBehind):
        before.finish(row["reached"])
    assert (0, 0) in set(before.watermarks())


def test_strays_are_noted_before_the_watermark_moves_to_the_last_row(task):
    """The last row is a stray: it is in its lane, and the watermark of its own partition is behind it."""
    keys = [*keys_of(OWN, 3), *keys_of(FOREIGN, 2)]
    row = task.run(rows(keys, 0))
    assert (row["reached"], row["strays"]) == (5, 2)
    assert set(task.watermarks()) == {(5, 0)}
    start = t.writer(task.nodes, 2).open([(LaneTarget.of(task.layout, OWN, 0), 0)])
    ((_, opened),) = start.items()
    assert max(opened.given.values()) == 5
