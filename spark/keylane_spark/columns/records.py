"""Records as columns, and how they are read from Spark's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.state import codec
from keylane_spark.columns.headers import header_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from keylane.model.records import Options


@dataclass(frozen=True, slots=True)
class Records:
    """Records in offset order, as columns of n rows. Keys are never null; a null value is a tombstone.

    `keys`, `values`: binary. `offsets`, `timestamps_ms`: int64. The others are None where no record needs
    them. `headers`: binary, the codec's headers blocks, empty for a record without. `left_bytes`: int64,
    the size of a value that is left in Kafka (the value here is empty), else 0. `order_ms`: int64, the
    highest timestamp of the key so far.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    headers: pa.BinaryArray | None = None
    left_bytes: NDArray[np.int64] | None = None
    order_ms: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def order(self) -> NDArray[np.int64]:
        """The timestamps that order the records: `order_ms` if it is set, else the records' timestamps."""
        return self.timestamps_ms if self.order_ms is None else self.order_ms

    @property
    def tombstones(self) -> NDArray[np.bool_]:
        """Which values are null."""
        mask: NDArray[np.bool_] = self.values.is_null().to_numpy(zero_copy_only=False)
        return mask

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each record: key, value, headers and the envelope's fixed part."""
        sizes = pc.add(pc.binary_length(self.keys), pc.fill_null(pc.binary_length(self.values), 0))
        if self.headers is not None:
            sizes = pc.add(sizes, pc.binary_length(self.headers))
        array: NDArray[np.int64] = sizes.to_numpy(zero_copy_only=False).astype(np.int64)
        return array + codec.HEADER_BYTES

    def where(self, mask: NDArray[np.bool_]) -> Records:
        """A copy of the rows that a boolean mask (n) selects."""
        selection = pa.array(mask)
        return self._map(lambda column: column.filter(selection), lambda column: column[mask])

    def part(self, start: int, end: int) -> Records:
        """The rows [start, end), without a copy."""
        return self._map(lambda column: column[start:end], lambda column: column[start:end])

    def copy(self) -> Records:
        """A copy of all rows."""
        return self.where(np.ones(len(self), np.bool_))

    def then(self, more: Records) -> Records:
        """A copy of these rows, and of `more` behind them."""
        headers = left_bytes = order_ms = None
        if self.headers is not None or more.headers is not None:
            headers = pa.concat_arrays([_headers(self), _headers(more)])
        if self.left_bytes is not None or more.left_bytes is not None:
            left_bytes = np.concatenate([_left_bytes(self), _left_bytes(more)])
        if self.order_ms is not None or more.order_ms is not None:
            order_ms = np.concatenate([self.order, more.order])
        return Records(
            pa.concat_arrays([self.keys, more.keys]),
            pa.concat_arrays([self.values, more.values]),
            np.concatenate([self.offsets, more.offsets]),
            np.concatenate([self.timestamps_ms, more.timestamps_ms]),
            headers,
            left_bytes,
            order_ms,
        )

    def _map(self, arrow: Callable[[Any], Any], numpy: Callable[[Any], Any]) -> Records:
        return Records(
            arrow(self.keys),
            arrow(self.values),
            numpy(self.offsets),
            numpy(self.timestamps_ms),
            None if self.headers is None else arrow(self.headers),
            None if self.left_bytes is None else numpy(self.left_bytes),
            None if self.order_ms is None else numpy(self.order_ms),
        )


def parse_rows(rows: pa.RecordBatch, options: Options) -> Records:
    """Records of Kafka source rows of one partition, whose keys are not null."""
    values = rows.column("value")
    headers = left_bytes = None
    if options.headers:
        headers = header_blocks(rows.column("headers"), values)
    sizes = pc.fill_null(pc.binary_length(values), 0)
    is_large = pc.greater(sizes, options.max_value_bytes)
    if pc.any(is_large).as_py():
        left_bytes = np.asarray(pc.if_else(is_large, sizes, 0)).astype(np.int64)
        values = pc.if_else(is_large, b"", values)
    return Records(
        rows.column("key"),
        values,
        rows.column("offset").to_numpy(zero_copy_only=False),
        rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000,
        headers,
        left_bytes,
    )


def _headers(records: Records) -> pa.BinaryArray:
    return pa.repeat(pa.scalar(b""), len(records)) if records.headers is None else records.headers


def _left_bytes(records: Records) -> NDArray[np.int64]:
    return np.zeros(len(records), np.int64) if records.left_bytes is None else records.left_bytes
