"""What each row of a table adds to its window, as a lane stores it, and what its changes do to windows.

    u8       2, the version
    u32      the partition of the row's last change, big-endian as all numbers but the last
    u64      its offset
    i64      its order timestamp in ms, see `row_order`
    u8       of each column with a field: 1 where the row has it, else 0
    i128     of each `sum` and `avg`: the number in units of 10^-9, little-endian; 0 where there is none
    ...      the key of the view; of a row that is in no window nothing: a marker

All is done by columns: rows are those of an Arrow table with partition, offset, ms, group and c0, c1, ...
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.errors import CorruptState
from keylane.state.aggregates import add_decimals
from keylane.state.windows import Column
from keylane_spark.rows.records import tails_of

VERSION = 2
_NUMBER = pa.decimal128(38, 9)
_FIXED = ("partition", "offset", "ms")


class RowStates:
    """Rows of a view with these columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._with_field = [(f"c{i}", each.kind != "count") for i, each in enumerate(columns) if each.path]
        fields = [("version", "u1"), ("partition", ">u4"), ("offset", ">u8"), ("ms", ">i8")]
        for name, is_number in self._with_field:
            fields += [(f"has_{name}", "u1"), *([(name, "V16")] if is_number else [])]
        self._dtype = np.dtype(fields)

    def encode(self, rows: pa.Table) -> list[bytes]:
        """Return what is stored of each row."""
        heads = np.zeros(len(rows), self._dtype)
        heads["version"] = VERSION
        for name in _FIXED:
            heads[name] = rows.column(name).to_numpy()
        for name, is_number in self._with_field:
            column = combined(rows.column(name))
            if is_number:
                filled = pc.fill_null(column, pa.scalar(Decimal(0), _NUMBER))
                heads[f"has_{name}"] = column.is_valid().to_numpy(zero_copy_only=False)
                numbers = np.frombuffer(filled.buffers()[1], "V16")
                heads[name] = numbers[filled.offset : filled.offset + len(filled)]
            else:
                heads[f"has_{name}"] = column.to_numpy(zero_copy_only=False)
        fixed = pa.Array.from_buffers(
            pa.binary(self._dtype.itemsize), len(rows), [None, pa.py_buffer(heads.tobytes())]
        )
        groups = combined(rows.column("group"))
        found: list[bytes] = pc.binary_join_element_wise(fixed.cast(pa.binary()), groups, b"").to_pylist()
        return found

    def decode(self, stored: Sequence[bytes]) -> pa.Table:
        """The opposite of `encode`. Raises CorruptState."""
        values = pa.array(stored, pa.binary())
        size = self._dtype.itemsize
        if len(stored) and pc.min(pc.binary_length(values)).as_py() < size:
            raise CorruptState("a row of a view", "it is too short")
        heads = np.frombuffer(b"".join(pc.binary_slice(values, 0, size).to_pylist()), self._dtype)
        if (heads["version"] != VERSION).any():
            raise CorruptState("a row of a view", "it has an unknown version")
        columns: dict[str, Any] = {name: pa.array(heads[name].astype(np.int64)) for name in _FIXED}
        columns["group"] = tails_of(values, size)
        for name, is_number in self._with_field:
            has = heads[f"has_{name}"].astype(np.bool_)
            if is_number:
                numbers = pa.py_buffer(np.ascontiguousarray(heads[name]).tobytes())
                buffers = [pa.array(has).buffers()[1], numbers]
                columns[name] = pa.Array.from_buffers(_NUMBER, len(has), buffers)
            else:
                columns[name] = pa.array(has)
        return pa.table(columns)

    def net(self, gone: pa.Table, come: pa.Table) -> list["NetChange"]:
        """What the windows lose with the rows that were, and get with those that are; by their groups."""
        parts = [self._signed(gone, -1), self._signed(come, 1)]
        names = [name for name in parts[0].column_names if name != "group"]
        # As int64 and decimals of 38 digits: see `fields` for how large numbers are.
        summed = pa.concat_tables(parts).group_by("group").aggregate([(name, "sum") for name in names])
        return [
            NetChange(
                row["group"],
                [
                    row["rows_sum"],
                    *(row.get(f"has_c{i}_sum", row["rows_sum"]) for i in range(len(self._columns))),
                ],
                [row.get(f"c{i}_sum") for i in range(len(self._columns))],
            )
            for row in summed.to_pylist()
        ]

    def _signed(self, rows: pa.Table, sign: int) -> pa.Table:
        columns: dict[str, Any] = {
            "group": rows.column("group"),
            "rows": pa.array(np.full(len(rows), sign, np.int64)),
        }
        for name, is_number in self._with_field:
            column = rows.column(name)
            has = column.is_valid() if is_number else column
            columns[f"has_{name}"] = pc.multiply(pc.cast(has, pa.int64()), sign)
            if is_number:
                columns[name] = column if sign > 0 else pc.negate(column)
        return pa.table(columns)


class NetChange(NamedTuple):
    """What a window's rows change: how many come (less those that go), then for each column; its numbers."""

    group: bytes
    counts: list[int]
    numbers: list[Decimal | None]

    def applied(
        self, columns: Sequence[Column], counts: Sequence[int], states: Sequence[Any]
    ) -> tuple[list[int], list[Any]]:
        """Return counts and states of the window after the change, from those before."""
        after = [before + change for before, change in zip(counts, self.counts, strict=True)]
        return after, [
            _state(column, state, count, number)
            for column, state, count, number in zip(columns, states, after[1:], self.numbers, strict=True)
        ]


def no_states(columns: Sequence[Column]) -> tuple[list[int], list[Any]]:
    """Return counts and states of a window that has no rows."""
    nothing = {"count": 0, "sum": None, "avg": [None, 0]}
    return [0] * (1 + len(columns)), [nothing[column.kind] for column in columns]


def _state(column: Column, state: Any, count: int, number: Decimal | None) -> Any:
    if column.kind == "count":
        return count
    before = state[0] if column.kind == "avg" else state
    total = add_decimals(before, number) if count else None
    return [total, count] if column.kind == "avg" else total


def combined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
