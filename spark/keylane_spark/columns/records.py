"""One lane's records as columns."""

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
    """Records in offset order: keys without nulls, a null value is a tombstone.

    `keys`, `values`: binary (n); `offsets`, `timestamps_ms`: int64 (n). The others are None where they would
    say nothing. `headers`: the codec's blocks, binary (n), empty for a record without. `left_bytes`:
    int64 (n), above 0 where the value is left in Kafka: its size, the value here is empty. `order_ms`:
    int64 (n), the highest timestamp of the key so far, where that isn't always the record's own.
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
        """The order timestamps, whichever column has them."""
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
        """Copies of the rows of a boolean mask (n)."""
        selection = pa.array(mask)
        return self._map(lambda column: column.filter(selection), lambda column: column[mask])

    def part(self, start: int, end: int) -> Records:
        """The rows [start, end), not copied."""
        return self._map(lambda column: column[start:end], lambda column: column[start:end])

    def copy(self) -> Records:
        """The same rows in memory of their own."""
        return self.where(np.ones(len(self), np.bool_))

    def then(self, more: Records) -> Records:
        """Copies of these rows and of those after them."""
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


def from_rows(rows: pa.RecordBatch, options: Options) -> Records:
    """Rows of one partition, as the source gives them, without null keys."""
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
