"""How much of a batch is in memory at a time, with Spark's own hands: the driver's share, and a task's."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as f

from keylane_spark.stream import driver_share
from keylane_spark.stream.driver_share import DriverShare
from keylane_spark.telemetry.tally import Tally

MIB = 1024 * 1024


def a_batch(spark, count: int, value_bytes: int, *, largest_bytes: int = 0, headers: bool = False):
    """Rows of a batch; the last value may be larger than the others."""
    size = f.when(f.col("id") == count - 1, f.lit(max(largest_bytes, value_bytes))).otherwise(value_bytes)
    name, content = (
        f.lit("name").alias("key"),
        f.repeat(f.lit("h"), value_bytes).cast("binary").alias("value"),
    )
    header = f.struct(name, content)
    columns = [
        f.lit(0).alias("partition"),
        f.col("id").alias("offset"),
        f.col("id").cast("string").cast("binary").alias("key"),
        f.when(f.col("id") != 0, f.repeat(f.lit("x"), size.cast("int")).cast("binary")).alias("value"),
        f.when(f.col("id") != 1, f.array(header)).alias("headers") if headers else None,
    ]
    return spark.range(count).select(*[column for column in columns if column is not None])


def test_a_batch_of_large_values_comes_to_a_task_in_parts_of_16_mib(spark):
    rows = a_batch(spark, 200, MIB).coalesce(1)

    def sizes(batches):
        import pyarrow as pa  # noqa: PLC0415 (this runs in the worker)

        held = [(batch.nbytes, pa.total_allocated_bytes()) for batch in batches]
        yield pa.RecordBatch.from_pydict({"bytes": [h[0] for h in held], "allocated": [h[1] for h in held]})

    parts = rows.mapInArrow(sizes, "bytes long, allocated long").collect()
    assert sum(part["bytes"] for part in parts) > 199 * MIB
    assert max(part["bytes"] for part in parts) < 18 * MIB
    assert max(part["allocated"] for part in parts) < 60 * MIB


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("count", [50, 200])
def test_a_small_batch_comes_to_the_driver_as_it_is(spark, count, headers):
    rows = a_batch(spark, count, 100, headers=headers)
    table = DriverShare(200).take(rows, count, 2)
    assert table.sort_by("offset").to_pylist() == rows.toArrow().sort_by("offset").to_pylist()


def test_a_batch_of_many_records_is_left_to_tasks_unread():
    assert DriverShare(50).take(None, 51, 2) is None


def test_a_batch_that_turns_out_large_is_left_to_tasks_and_the_next_alike_are_not_even_read(
    spark, monkeypatch
):
    monkeypatch.setattr(driver_share, "MAX_BYTES", 200_000)
    share = DriverShare(1000)
    assert share.take(a_batch(spark, 200, 10, largest_bytes=5000), 200, 2) is None
    assert share.take(None, 200, 2) is None
    assert share.take(a_batch(spark, 10, 10), 10, 2).num_rows == 10


def test_headers_count_for_what_the_driver_takes(spark, monkeypatch):
    monkeypatch.setattr(driver_share, "MAX_BYTES", 200_000)
    assert DriverShare(1000).take(a_batch(spark, 200, 400, headers=True), 200, 2).num_rows == 200
    assert DriverShare(1000).take(a_batch(spark, 200, 600, headers=True), 200, 2) is None


def test_the_largest_mean_of_late_decides_and_is_forgotten_in_time(spark):
    share = DriverShare(1000)
    share.note({("orders", 0): Tally(records=10, record_bytes=10 * MIB), ("orders", 1): Tally(records=9)})
    assert share.take(None, 65, 2) is None
    assert share.take(a_batch(spark, 3, 10), 64, 2).num_rows == 3
    for _ in range(20):
        share.note({("orders", 0): Tally(records=10, record_bytes=1000), ("orders", 1): Tally()})
    assert share.take(a_batch(spark, 3, 10), 65, 2).num_rows == 3
