"""What a task of Spark writes, into doubles of lanes: its rows may end early, without an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.support import lanes as t
from tests.unit.spark.test_batch_writer import LAYOUT, NotedLanes, keys_of, some_rows

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane.model.records import Layout
from keylane_spark.lanes.function_library import DEFAULTS
from keylane_spark.lanes.lane import OffsetRange
from keylane_spark.log.fetches import PlannedRange
from keylane_spark.log.log_reader import LeaderAway
from keylane_spark.stream import log_ranges
from keylane_spark.stream.log_ranges import RangeGroups, RangeWriter
from keylane_spark.stream.openings import WriterSpec
from keylane_spark.stream.spark_reader import SparkRowWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_spark.rows.records import Rows
    from keylane_spark.stream.tasks import PartitionWriter

END = 100
"""Where the batch ends: behind the rows, as with the marker of a transaction."""
RANGES = {("orders", partition): OffsetRange(0, END, 1_700_000_000_000, END) for partition in range(3)}
PLANNED = [PlannedRange("orders", partition, 0, END) for partition in range(3)]


@pytest.fixture
def lanes(monkeypatch) -> NotedLanes:
    noted = NotedLanes()
    monkeypatch.setattr(WriterSpec, "lanes", lambda *_: noted)
    return noted


def spec_of(layout: Layout) -> WriterSpec:
    return WriterSpec(t.settings("127.0.0.1:1"), {layout.topic: layout}, 1, DEFAULTS)


def run(task: PartitionWriter, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    """Run it, as Spark does with what comes before its input ends; return its rows."""
    (found,) = cloudpickle.loads(cloudpickle.dumps(task))(iter(batches))
    return found.to_pylist()


def claims(lanes: NotedLanes) -> set[tuple[int, int, int]]:
    """Partition, end and time of completeness that each lane was given last."""
    last = {call[1]: call for call in lanes.named("apply")}
    return {(lane.partition, call[3], call[5]["complete_as_of_ms"]) for lane, call in last.items()}


@pytest.mark.parametrize("stripes", [1, 3])
def test_a_task_whose_rows_end_early_moves_no_watermark_past_them(lanes, stripes):
    layout = Layout("orders", 3, stripes=stripes)
    keys = keys_of(0, 30)
    offsets = range(len(keys))
    batch = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * len(keys), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([1_000_000 * offset for offset in offsets], pa.timestamp("us", "UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([b"v"] * len(keys), pa.binary()),
        }
    )
    (row,) = run(SparkRowWriter(spec_of(layout), RANGES, {}), batch)
    assert (row["reached"], row["records"], row["newer_epoch"], row["left"]) == (30, 30, 0, "")
    assert claims(lanes) == {(0, 30, 0)}
    assert len({call[1] for call in lanes.named("apply")}) == stripes


def write_ranges(monkeypatch, trouble: dict[int, Exception]) -> list[dict[str, Any]]:
    """Write the ranges of three partitions, which have two, one and no records, each up to its trouble."""

    class Reader:
        """A double of `LogRangeReader`."""

        def read_each(self, ranges, **_: Any) -> list[tuple[PlannedRange, Iterator[Rows]]]:
            return [(each, self._rows(each.partition)) for each in ranges]

        def _rows(self, partition: int) -> Iterator[Rows]:
            for offset, key in enumerate(keys_of(partition, (2, 1, 0)[partition])):
                yield some_rows((key, b"v"), first_offset=offset)
            if partition in trouble:
                raise trouble[partition]

    monkeypatch.setattr(log_ranges, "_reader", lambda _: Reader())
    groups = RangeGroups(Connection("127.0.0.1:1"), [PLANNED[:2], PLANNED[2:]], committed=True)
    numbers = pa.RecordBatch.from_pydict({"id": pa.array([0, 1], pa.int64())})
    return run(RangeWriter(spec_of(LAYOUT), RANGES, {}, groups), numbers)


def test_ranges_that_were_read_are_claimed_to_their_ends_and_as_of_no_time(lanes, monkeypatch):
    rows = write_ranges(monkeypatch, {})
    assert {row["partition"]: (row["reached"], row["records"]) for row in rows} == {
        0: (END, 2),
        1: (END, 1),
        2: (END, 0),
    }
    assert claims(lanes) == {(partition, END, 0) for partition in range(3)}


def test_a_range_whose_leader_goes_away_is_left_where_it_was_and_the_others_are_claimed(lanes, monkeypatch):
    """Once before its first record, and once behind some."""
    gone = {partition: LeaderAway("its broker is gone", 2) for partition in (1, 2)}
    rows = write_ranges(monkeypatch, gone)
    assert {row["partition"]: (row["reached"], row["left"]) for row in rows} == {
        0: (END, ""),
        1: (1, "its broker is gone"),
        2: (0, "its broker is gone"),
    }
    assert claims(lanes) == {(0, END, 0), (1, 1, 0)}


def test_of_a_task_that_fails_nothing_more_is_sent_and_its_lanes_are_given_up(lanes, monkeypatch):
    """Its open chunks wait for the end of the range."""
    with pytest.raises(LogUnavailable, match="ends at offset 2"):
        write_ranges(monkeypatch, {0: LogUnavailable("the log ends at offset 2", 2)})
    assert [name for name, *_ in lanes.calls] == ["abandon"]
