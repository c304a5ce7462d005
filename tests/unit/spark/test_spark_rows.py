"""Rows of Spark's Kafka source, divided by partition."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from keylane_spark.rows.headers import HEADERS
from keylane_spark.stream.spark_reader import split_rows

SOURCES = [("orders", 0), ("orders", 1), ("users", 0), ("users", 1)]


def spark_batch(sources: list[tuple[str, int]], *, with_topic: bool = True, with_headers: bool = True):
    """Rows whose offsets are their numbers; times are a millisecond apart, from before 1970 on."""
    numbers = range(len(sources))
    columns = {
        "partition": pa.array([partition for _, partition in sources], pa.int32()),
        "offset": pa.array(numbers, pa.int64()),
        "timestamp": pa.array([1000 * (number - 1) for number in numbers], pa.timestamp("us", "UTC")),
        "key": pa.array([None if number % 5 == 4 else b"%d" % number for number in numbers], pa.binary()),
        "value": pa.array([None if number % 3 == 2 else b"v" for number in numbers], pa.binary()),
    }
    if with_topic:
        columns["topic"] = pa.array([topic for topic, _ in sources], pa.string())
    if with_headers:
        columns["headers"] = pa.array([[("n", b"%d" % number)] for number in numbers], HEADERS)
    return pa.RecordBatch.from_pydict(columns)


def split(*batches: pa.RecordBatch, topics: tuple[str, ...] = ("orders", "users")) -> list:
    return list(split_rows(batches, SimpleNamespace(layouts=dict.fromkeys(topics))))


@given(st.lists(st.sampled_from(SOURCES), max_size=40), st.integers(0, 9))
def test_each_row_comes_once_with_its_partition_and_in_order(sources, skipped):
    found = split(spark_batch(sources).slice(skipped))
    seen = []
    for source, rows in found:
        assert rows.offsets.dtype == rows.timestamps_ms.dtype == np.int64
        assert len(rows) > 0
        columns = (rows.keys.to_pylist(), rows.values.to_pylist(), rows.headers.to_pylist())
        for offset, time_ms, key, value, headers in zip(
            rows.offsets.tolist(), rows.timestamps_ms.tolist(), *columns, strict=True
        ):
            assert time_ms == offset - 1
            assert key == (None if offset % 5 == 4 else b"%d" % offset)
            assert value == (None if offset % 3 == 2 else b"v")
            assert [each["value"] for each in headers] == [b"%d" % offset]
            seen.append((offset, source))
    assert seen == list(enumerate(sources))[skipped:]
    assert all(before[0] != after[0] for before, after in pairwise(found))


def test_rows_without_a_topic_are_of_the_only_one_and_headers_need_not_be_there():
    batches = (spark_batch([("", 3)] * 2, with_topic=False, with_headers=False) for _ in range(2))
    found = split(*batches, topics=("orders",))
    assert [(source, len(rows), rows.headers) for source, rows in found] == [(("orders", 3), 2, None)] * 2
