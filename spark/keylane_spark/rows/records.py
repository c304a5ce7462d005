"""Records as columns: as a partition's log has them, and as its lanes store them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.model.kafka import TopicPartition
from keylane.model.keys import LARGEST_KEY
from keylane.model.records import Options
from keylane.state import codec
from keylane_spark.rows.headers import header_blocks, large_headers

RowsOfPartitions: TypeAlias = Generator[tuple[TopicPartition, "Rows"], None, None]
ArrowFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` takes."""


class _Columns:
    """Columns of n rows, numpy's or Arrow's; None for one that no row needs."""

    __slots__: tuple[str, ...] = ()
    offsets: NDArray[np.int64]

    def where(self, mask: NDArray[np.bool_]) -> Self:
        """A copy of the rows that a boolean mask (n) selects."""
        selection = pa.array(mask)
        return self._map(lambda each: each[mask] if isinstance(each, np.ndarray) else each.filter(selection))

    def take(self, order: NDArray[np.int64]) -> Self:
        """A copy of the rows of these numbers."""
        numbers = pa.array(order)
        return self._map(lambda each: each[order] if isinstance(each, np.ndarray) else each.take(numbers))

    def part(self, start: int, end: int) -> Self:
        """The rows [start, end), without a copy."""
        columns = [getattr(self, name) for name in self.__slots__]
        return type(self)(*[None if each is None else each[start:end] for each in columns])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one behind the other, a copy if there are several."""
        if len(parts) == 1:
            return parts[0]
        joined: list[Any] = []
        for name in cls.__slots__:
            columns = [getattr(part, name) for part in parts]
            if any(each is not None for each in columns):
                pairs = zip(parts, columns, strict=True)
                columns = [part.absent_column(name) if each is None else each for part, each in pairs]
                is_numpy = isinstance(columns[0], np.ndarray)
                joined.append(np.concatenate(columns) if is_numpy else pa.concat_arrays(columns))
            else:
                joined.append(None)
        return cls(*joined)

    def absent_column(self, name: str) -> Any:
        """Return what stands for a column that these rows lack, and others have."""
        if name == "left_bytes":
            return np.zeros(len(self.offsets), np.int64)
        raise ValueError(f"some rows have {name}, and others lack it")

    def _map(self, change: Callable[[Any], Any]) -> Self:
        columns = (getattr(self, name) for name in self.__slots__)
        return type(self)(*(None if column is None else change(column) for column in columns))


@dataclass(frozen=True, slots=True)
class Rows(_Columns):
    """What a consumer sees of one partition, in offset order, as columns of n rows.

    `offsets`, `timestamps_ms`: int64. `keys`, `values`: binary, with nulls. `headers`: see
    `rows.headers`; None where they were not read. `wanted`, `selected`: see `engine.record_sql`; None for
    topics without SQL. `left_bytes`: int64, the size of a value that is left in Kafka (the value here is
    empty), else 0; None where there is none.
    """

    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None = None
    wanted: pa.BooleanArray | None = None
    selected: pa.StringArray | None = None
    left_bytes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def held_bytes(self) -> int:
        """The bytes of keys, values and headers, roughly, without a look at each."""
        columns = self.keys, self.values, self.headers
        return sum(int(each.nbytes) for each in columns if each is not None)


@dataclass(frozen=True, slots=True)
class Records(_Columns):
    """Records in offset order, as columns of n rows. Keys are never null; a null value is a tombstone.

    `keys`, `values`: binary. `offsets`, `timestamps_ms`: int64. The others are None where no record needs
    them. `headers`: binary, the codec's headers blocks, empty for a record without. `left_bytes`: int64,
    the size of a value that is left in Kafka (the value here is empty), else 0. `order_ms`: int64, the
    highest timestamp of the key so far. `fields`: binary, what `rows.fields` adds to what is written.
    `compressed`: bool, which values are frames of `state.compression`.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    headers: pa.BinaryArray | None = None
    left_bytes: NDArray[np.int64] | None = None
    order_ms: NDArray[np.int64] | None = None
    fields: pa.BinaryArray | None = None
    compressed: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def order(self) -> NDArray[np.int64]:
        """The timestamps that order the records: `order_ms` if it is set, else the records' timestamps."""
        return self.timestamps_ms if self.order_ms is None else self.order_ms

    @property
    def tombstones(self) -> NDArray[np.bool_]:
        """Which values are null."""
        return _mask(self.values.is_null()) if self.values.null_count else np.zeros(len(self), np.bool_)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each record: key, value, headers and the envelope's fixed part."""
        sizes = pc.add(pc.binary_length(self.keys), lengths_of(self.values))
        if self.headers is not None:
            sizes = pc.add(sizes, pc.binary_length(self.headers))
        array: NDArray[np.int64] = sizes.to_numpy(zero_copy_only=False).astype(np.int64)
        return array + codec.HEADER_BYTES

    def copy(self) -> Records:
        """A copy of all rows."""
        return self.where(np.ones(len(self), np.bool_))

    def absent_column(self, name: str) -> Any:
        """Return what stands for a column that no record here needs."""
        if name == "order_ms":
            return self.timestamps_ms
        if name in {"left_bytes", "compressed"}:
            return np.zeros(len(self), np.int64 if name == "left_bytes" else np.bool_)
        return pa.repeat(pa.scalar(b""), len(self))


def split_by_partition(
    rows: Rows, partitions: NDArray[np.int32], topics: pa.StringArray | str
) -> RowsOfPartitions:
    """The rows of each partition, in their order, without a copy: one comes again where others are between.

    `partitions`: of each row; `topics`: of each row, or of all.
    """
    is_last = partitions[1:] != partitions[:-1]
    if not isinstance(topics, str):
        is_last |= pc.not_equal(topics[1:], topics[:-1]).to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(is_last) + 1).tolist(), len(rows)] if len(rows) else []
    for begin, end in pairwise(bounds):
        topic = topics if isinstance(topics, str) else topics[begin].as_py()
        yield (topic, int(partitions[begin])), rows.part(begin, end)


def tails_of(values: pa.BinaryArray, begin: int) -> pa.BinaryArray:
    """The bytes of each value from `begin` on, which none is shorter than.

    Without an end `binary_slice` fails on values of different lengths (pyarrow 26).
    """
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    return pc.binary_slice(values, begin, max(begin, longest))


def bounds_of(strings: pa.BinaryArray) -> NDArray[np.int32]:
    """Where in their buffer each string begins, and the last one ends."""
    return np.frombuffer(strings.buffers()[1], np.int32)[strings.offset :][: len(strings) + 1]


def lengths_of(values: pa.BinaryArray) -> pa.Int32Array:
    """The bytes of each value, 0 where it is null."""
    lengths = pc.binary_length(values)
    return pc.fill_null(lengths, 0) if values.null_count else lengths


def without_large_keys(keys: pa.BinaryArray) -> pa.BinaryArray:
    """Return the keys with nulls for those over LARGEST_KEY."""
    sizes = pc.binary_length(keys)
    if (pc.max(sizes).as_py() or 0) <= LARGEST_KEY:
        return keys
    return pc.if_else(pc.greater(sizes, LARGEST_KEY), None, keys)


def leave_large(
    values: pa.BinaryArray | pa.StringArray, limit_bytes: int, left_bytes: NDArray[np.int64] | None = None
) -> tuple[pa.BinaryArray | pa.StringArray, NDArray[np.int64] | None]:
    """Return the values with empty ones for those over the limit, and `left_bytes` with the sizes of these.

    `left_bytes`: of values that were left before, else 0; None where there is none.
    """
    sizes = lengths_of(values)
    if (pc.max(sizes).as_py() or 0) <= limit_bytes:
        return values, left_bytes
    is_large = pc.greater(sizes, limit_bytes)
    more_bytes = pc.if_else(is_large, sizes, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = pc.if_else(is_large, pa.scalar("", values.type), values)
    return values, more_bytes if left_bytes is None else left_bytes + more_bytes


def stored_records(rows: Rows, options: Options) -> Records:
    """What a topic with these options stores of rows, which all have keys.

    A value that is too large, or has such headers, is left in Kafka.
    """
    if options.headers and rows.headers is not None:
        rows = _without_large_headers(rows)
    headers = header_blocks(rows.headers, rows.values) if options.headers else None
    values, left_bytes = leave_large(rows.values, options.max_value_bytes, rows.left_bytes)
    return Records(rows.keys, values, rows.offsets, rows.timestamps_ms, headers, left_bytes)


def _without_large_headers(rows: Rows) -> Rows:
    is_large = large_headers(rows.headers)
    if is_large is None:
        return rows
    sizes = np.asarray(lengths_of(rows.values)).astype(np.int64)
    is_left = is_large & np.asarray(rows.values.is_valid())
    before = rows.absent_column("left_bytes") if rows.left_bytes is None else rows.left_bytes
    return replace(
        rows,
        values=pc.if_else(pa.array(is_left), b"", rows.values),
        headers=pc.if_else(pa.array(is_large), None, rows.headers),
        left_bytes=np.where(is_left & (before == 0), np.maximum(sizes, 1), before),
    )


def _mask(column: pa.BooleanArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return mask
