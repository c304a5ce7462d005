"""What Spark makes of a batch for a view: partial windows."""

from __future__ import annotations

from pyspark.sql import functions as f

from keylane.state.windows import Column, Definition
from keylane_spark.views.partials import parse_partials, partials

GAP_MS = 20_000
VISITS = Definition("clicks", (Column("n", "count"),), time="at", size_ms=GAP_MS, is_session=True)


def sessions_of(spark, *times):
    """Start, end and records of each session of one key's records, in the order of their starts."""
    values = [(offset, f'{{"at": {time}}}') for offset, time in enumerate(times)]
    rows = spark.createDataFrame(values, "offset long, value string").select(
        f.lit(0).alias("partition"),
        "offset",
        f.timestamp_millis(f.lit(0)).alias("timestamp"),
        f.lit("anna").cast("binary").alias("key"),
        f.col("value").cast("binary").alias("value"),
    )
    found = parse_partials(partials(rows, VISITS).toArrow(), VISITS)
    return sorted((each.start_ms, each.end_ms, each.records) for each in found)


def test_records_within_the_gap_are_one_session(spark):
    assert sessions_of(spark, 1000, 20_999) == [(1000, 40_999, 2)]


def test_records_exactly_one_gap_apart_are_two_sessions(spark):
    assert sessions_of(spark, 1000, 21_000) == [(1000, 21_000, 1), (21_000, 41_000, 1)]


def test_times_are_cut_to_milliseconds_before_they_are_compared(spark):
    early, late = '"2026-11-22T12:00:00.000900Z"', '"2026-11-22T12:00:20.000100Z"'
    (first, second) = sessions_of(spark, early, late)
    assert first[1] == second[0] == first[0] + GAP_MS
