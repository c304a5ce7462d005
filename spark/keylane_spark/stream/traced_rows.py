"""Finds the traces that the records of a batch belong to, on their way into the lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.model.records import TRACEPARENT
from keylane_spark.columns.headers import header_values

if TYPE_CHECKING:
    import pyarrow as pa

    from keylane_spark.stream.batch_writer import RowWriter

MOST_TRACES = 32
"""How many traces of its records a batch's span is linked to."""


class TracedRows:
    """Passes rows on to a writer. `keeps_headers`: whether they are stored, too."""

    def __init__(self, writer: RowWriter, *, keeps_headers: bool) -> None:
        self._writer = writer
        self._keeps_headers = keeps_headers
        self.traces: list[bytes] = []
        """The first MOST_TRACES different values of `traceparent`."""

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Write rows with headers, as `BatchWriter.write` does."""
        found = header_values(rows.column("headers"), TRACEPARENT, MOST_TRACES)
        self.traces = list(dict.fromkeys(self.traces + found))[:MOST_TRACES]
        self._writer.write(rows if self._keeps_headers else rows.drop_columns("headers"))
