"""Finds fields of records in Avro's binary encoding, of many values at once.

A cursor stands in each value. What a schema's maker makes moves a selection of cursors past one value of that
schema, with a few numpy operations for all of them: no Python loop runs over values. Cursors that meet what
the reader (`avro_reader`) refuses, or what only a reader with a budget should follow, are *lost*.

Source: the Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane.formats.avro_schema import Makers, compile_schema, decimal_scale

Selection: TypeAlias = NDArray[np.intp]
"""The indices of some cursors."""

_LONG_BYTES = 10
_LAST_LONG_BYTE = 1
"""No higher: the tenth byte has the 64th bit."""
_MOST_ITEMS = 10_000
"""Of all arrays and maps of a value, with the fields of its records: the reader's budget has more."""
_MOST_BLOCK_ITEMS = 1_000
_MOST_LEVELS = 50
_DECIMAL_BYTES = 1_000
"""The reader refuses decimals of more digits than Python makes a text of."""
_ASCII = 0x80


class Cursors:
    """A cursor in each of n values: `at`, and `ends` behind the value, both positions in `data`."""

    def __init__(self, values: pa.BinaryArray, skipped_bytes: int) -> None:
        """The cursors stand behind the first `skipped_bytes` of values that have as many; none is null."""
        _, bounds, data = values.buffers()
        offsets = np.frombuffer(bounds, np.int32)[values.offset : values.offset + len(values) + 1]
        self.data = np.frombuffer(data, np.uint8)
        self.at: NDArray[np.int64] = offsets[:-1].astype(np.int64) + skipped_bytes
        self.ends: NDArray[np.int64] = offsets[1:].astype(np.int64)
        self.lost = self.at > self.ends
        self.items = np.zeros(len(values), np.int64)
        self.levels = 0
        self._begin = int(offsets[0])
        self._not_ascii = np.zeros(int(offsets[-1]) - self._begin + 1, np.int32)
        """How many bytes before each one are not ASCII."""
        np.cumsum(self.data[self._begin : int(offsets[-1])] >= _ASCII, out=self._not_ascii[1:])

    def all(self) -> Selection:
        """The cursors that are not lost."""
        return np.flatnonzero(~self.lost)

    def those(self, selection: Selection, mask: NDArray[np.bool_]) -> Selection:
        """Those of the selection that the mask selects, and that are not lost."""
        selection = selection[mask]
        return selection[~self.lost[selection]]

    def advance(self, selection: Selection, sizes: NDArray[np.int64] | int) -> None:
        """Move by these many bytes; past the end, or backwards, cursors are lost."""
        left = self.ends[selection] - self.at[selection]
        fits = (left >= sizes) & (np.asarray(sizes) >= 0)
        self.at[selection] += np.where(fits, sizes, left)
        self.lost[selection[~fits]] = True

    def texts(self, selection: Selection) -> None:
        """Move past a length and as many bytes of UTF-8."""
        sizes = self.longs(selection)
        begins = self.at[selection]
        self.advance(selection, sizes)
        ends = self.at[selection]
        counts = self._not_ascii
        others = np.flatnonzero(counts[ends - self._begin] != counts[begins - self._begin])
        data = self.data.data
        for cursor, begin, end in zip(
            *(each[others].tolist() for each in (selection, begins, ends)), strict=True
        ):
            try:
                str(data[begin:end], "utf-8")
            except UnicodeDecodeError:
                self.lost[cursor] = True

    def spend(self, selection: Selection, items: NDArray[np.int64] | int) -> None:
        """Count items or fields; those with more than the budget are lost."""
        self.items[selection] += items
        self.lost[selection[self.items[selection] > _MOST_ITEMS]] = True

    def longs(self, selection: Selection) -> NDArray[np.int64]:
        """Read an int or long at each, zigzag and of variable length; 0 where the cursor is lost."""
        found = np.zeros(len(selection), np.uint64)
        left = np.arange(len(selection))
        for number in range(_LONG_BYTES):
            at = self.at[selection[left]]
            is_over = at >= self.ends[selection[left]]
            if is_over.any():
                self.lost[selection[left[is_over]]] = True
                left, at = left[~is_over], at[~is_over]
            read = self.data[at].astype(np.uint64)
            found[left] |= (read & np.uint64(0x7F)) << np.uint64(7 * number)
            self.at[selection[left]] += 1
            left = left[read > _LAST_LONG_BYTE if number == _LONG_BYTES - 1 else read >= _ASCII]
            if not len(left):
                break
        self.lost[selection[left]] = True
        found[self.lost[selection]] = 0
        return (found >> np.uint64(1)).astype(np.int64) ^ -(found & np.uint64(1)).astype(np.int64)


Skip: TypeAlias = Callable[[Cursors, Selection], None]


class RecordSkip:
    """Moves cursors past a record, field by field."""

    def __init__(self, fields: list[tuple[str, Skip]]) -> None:
        self.fields = fields

    def __call__(self, cursors: Cursors, selection: Selection) -> None:
        """Move past all fields."""
        cursors.spend(selection, len(self.fields))
        if cursors.levels == _MOST_LEVELS:
            cursors.lost[selection] = True
            return
        cursors.levels += 1
        for _, skip in self.fields:
            skip(cursors, selection)
        cursors.levels -= 1


def compile_skip(schema: str, references: Sequence[str]) -> Skip:
    """Return what moves cursors past a value of the schema. Raises ValueError, as `compile_schema`."""
    return compile_schema(schema, references, _SKIPS)


def spans(cursors: Cursors, selection: Selection, begins: NDArray[np.int64], most_bytes: int) -> pa.Array:
    """The bytes between `begins` and the cursors as binary; null where they are more than `most_bytes`."""
    ends = cursors.at[selection]
    sizes = ends - begins
    steps = np.arange(most_bytes)
    # What lies behind the data's end is masked: the index has to be valid all the same.
    index = np.minimum(begins[:, None] + steps, max(len(cursors.data) - 1, 0))
    bytes_ = cursors.data[index][steps < sizes[:, None]]
    fits = sizes <= most_bytes
    bounds = np.concatenate([[0], np.cumsum(np.minimum(sizes, most_bytes))]).astype(np.int32)
    validity = pa.array(fits).buffers()[1]
    buffers = [validity, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(bytes_))]
    return pa.Array.from_buffers(pa.binary(), len(selection), buffers)


def _null(_: Cursors, selection: Selection) -> None:
    del selection


def _of_size(size: int) -> Skip:
    return lambda cursors, selection: cursors.advance(selection, size)


def _long(cursors: Cursors, selection: Selection) -> None:
    cursors.longs(selection)


def _boolean(cursors: Cursors, selection: Selection) -> None:
    begins = cursors.at[selection]
    cursors.advance(selection, 1)
    moved = cursors.at[selection] > begins
    cursors.lost[selection[moved][cursors.data[begins[moved]] > 1]] = True


def _bytes(cursors: Cursors, selection: Selection) -> None:
    sizes = cursors.longs(selection)
    cursors.advance(selection, sizes)


def _decimal(cursors: Cursors, selection: Selection) -> None:
    sizes = cursors.longs(selection)
    cursors.advance(selection, sizes)
    cursors.lost[selection[sizes > _DECIMAL_BYTES]] = True


def _logical(schema: dict[str, Any], kind: str) -> Skip | None:
    return _decimal if kind == "bytes" and decimal_scale(schema) is not None else None


def _enum(symbols: tuple[str, ...]) -> Skip:
    def skip_enum(cursors: Cursors, selection: Selection) -> None:
        numbers = cursors.longs(selection)
        cursors.lost[selection[(numbers < 0) | (numbers >= len(symbols))]] = True

    return skip_enum


def _lose(cursors: Cursors, selection: Selection) -> None:
    cursors.lost[selection] = True


def _fixed(schema: dict[str, Any], size: int) -> Skip:
    is_long = size > _DECIMAL_BYTES and decimal_scale(schema, size) is not None
    return _lose if is_long else _of_size(size)


def _union(branches: list[tuple[str, Skip]]) -> Skip:
    skips = [skip for _, skip in branches]

    def skip_union(cursors: Cursors, selection: Selection) -> None:
        numbers = cursors.longs(selection)
        cursors.lost[selection[(numbers < 0) | (numbers >= len(skips))]] = True
        for number, skip in enumerate(skips):
            chosen = cursors.those(selection, numbers == number)
            if len(chosen):
                skip(cursors, chosen)

    return skip_union


def _blocks(skip_item: Skip) -> Skip:
    def skip_blocks(cursors: Cursors, selection: Selection) -> None:
        selection = cursors.those(selection, np.ones(len(selection), np.bool_))
        if cursors.levels == _MOST_LEVELS:
            cursors.lost[selection] = True
            return
        cursors.levels += 1
        while len(selection):
            counts = cursors.longs(selection)
            # A negative count is followed by the block's bytes, which few writers write.
            left = np.maximum(counts, 0)
            # Items may have no bytes: what claims to be long is left to the reader, which has a budget.
            cursors.lost[selection[(counts < 0) | (left > _MOST_BLOCK_ITEMS)]] = True
            cursors.spend(selection, left)
            for number in range(int(min(left.max(initial=0), _MOST_BLOCK_ITEMS))):
                chosen = cursors.those(selection, left > number)
                if not len(chosen):
                    break
                skip_item(cursors, chosen)
            selection = cursors.those(selection, counts != 0)
        cursors.levels -= 1

    return skip_blocks


def _entry(skip_value: Skip) -> Skip:
    def skip_entry(cursors: Cursors, selection: Selection) -> None:
        cursors.texts(selection)
        skip_value(cursors, selection)

    return skip_entry


_SKIPS: Makers[Skip] = Makers(
    primitives={
        "null": _null,
        "boolean": _boolean,
        "int": _long,
        "long": _long,
        "float": _of_size(4),
        "double": _of_size(8),
        "bytes": _bytes,
        "string": Cursors.texts,
    },
    logical=_logical,
    record=RecordSkip,
    enum=_enum,
    fixed=_fixed,
    array=_blocks,
    map=lambda value: _blocks(_entry(value)),
    union=_union,
)
