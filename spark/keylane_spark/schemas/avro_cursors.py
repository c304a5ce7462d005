"""Finds fields of records in Avro's binary encoding, of many values at once.

A cursor stands in each value. What a schema's maker makes moves a selection of cursors past one value of that
schema, with a few numpy operations for all of them: no Python loop runs over values. Cursors that meet what
is not of the schema, or what only a reader with a budget should follow, are *lost*.

Source: the Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane.formats.avro_schema import Makers, compile_schema

Selection: TypeAlias = NDArray[np.intp]
"""The indices of some cursors."""

_LONG_BYTES = 10
_MOST_BLOCK_ITEMS = 1_000


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
            left = left[read >= 0x80]  # noqa: PLR2004 (the bit that says that more follows)
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
        for _, skip in self.fields:
            skip(cursors, selection)


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


def _bytes(cursors: Cursors, selection: Selection) -> None:
    sizes = cursors.longs(selection)
    cursors.advance(selection, sizes)


def _enum(symbols: tuple[str, ...]) -> Skip:
    del symbols
    return _long


def _fixed(schema: dict[str, Any], size: int) -> Skip:
    del schema
    return _of_size(size)


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
        while len(selection):
            counts = cursors.longs(selection)
            # A negative count is followed by the block's bytes.
            sized = cursors.those(selection, counts < 0)
            _bytes(cursors, sized)
            left = np.where(counts < 0, 0, counts)
            # Items may have no bytes: what claims to be long is left to the reader, which has a budget.
            cursors.lost[selection[left > _MOST_BLOCK_ITEMS]] = True
            for number in range(int(min(left.max(initial=0), _MOST_BLOCK_ITEMS))):
                chosen = cursors.those(selection, left > number)
                if not len(chosen):
                    break
                skip_item(cursors, chosen)
            selection = cursors.those(selection, counts != 0)

    return skip_blocks


def _entry(skip_value: Skip) -> Skip:
    def skip_entry(cursors: Cursors, selection: Selection) -> None:
        _bytes(cursors, selection)
        skip_value(cursors, selection)

    return skip_entry


_SKIPS: Makers[Skip] = Makers(
    primitives={
        "null": _null,
        "boolean": _of_size(1),
        "int": _long,
        "long": _long,
        "float": _of_size(4),
        "double": _of_size(8),
        "bytes": _bytes,
        "string": _bytes,
    },
    logical=lambda _schema, _kind: None,
    record=RecordSkip,
    enum=_enum,
    fixed=_fixed,
    array=_blocks,
    map=lambda value: _blocks(_entry(value)),
    union=_union,
)
