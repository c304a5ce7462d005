"""Traces that are found on the way into the lanes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keylane_spark.columns.record_headers import HEADERS
from keylane_spark.stream.traced_rows import MOST_TRACES, TracedRows


class WrittenRows:
    """What a batch's writer was given."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self.batches.append(rows)


def rows(*traces: bytes | None) -> pa.RecordBatch:
    headers = [[{"key": "traceparent", "value": each}] if each else None for each in traces]
    columns = {"offset": pa.array(range(len(traces))), "headers": pa.array(headers, HEADERS)}
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("keeps_headers", [False, True], ids=["dropped", "kept"])
def test_rows_go_on_with_the_headers_that_are_stored(keeps_headers):
    written = WrittenRows()
    traced = TracedRows(written, keeps_headers=keeps_headers)
    traced.write(rows(b"a", None))
    (batch,) = written.batches
    assert batch.column("offset").to_pylist() == [0, 1]
    assert ("headers" in batch.schema.names) is keeps_headers


def test_each_trace_is_found_once_over_all_rows_of_a_batch():
    traced = TracedRows(WrittenRows(), keeps_headers=False)
    traced.write(rows(b"a", b"b", b"a"))
    traced.write(rows(b"b", b"c"))
    assert traced.traces == [b"a", b"b", b"c"]


def test_no_more_traces_are_kept_than_a_span_is_linked_to():
    traced = TracedRows(WrittenRows(), keeps_headers=False)
    for first in (0, 20, 40):
        traced.write(rows(*(b"%d" % number for number in range(first, first + 20))))
    assert traced.traces == [b"%d" % number for number in range(MOST_TRACES)]
