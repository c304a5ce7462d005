"""Change events in Avro, as columns: which of them delete their row.

A schema's event is judged by one field, `op` or `__deleted`. Cursors pass over all fields, so an event that
is cut off is found; values are made of none of them. What that does not decide is read one by one, as reads
read it: events that say neither, and schemas of another form, as where `after` is a string.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane.formats import avro_reader
from keylane.formats.change_events import DELETE, DELETED, SETS
from keylane.formats.confluent import PREFIX_BYTES
from keylane_spark.rows.change_events import DELETION, INVALID, SET, Verdicts, judge_each
from keylane_spark.schemas.avro_cursors import Cursors, RecordSkip, compile_skip, spans

_DELETED, _OP, _AFTER, _PAYLOAD = "__deleted", "op", "after", "payload"
_NO_RECORDS = {"string", "bytes", "boolean", "int", "long", "float", "double", "enum", "fixed", "array"}
_UNSURE = np.int8(-1)
"""A verdict that the mark does not decide: without one another field may, and a row may have no bytes."""
FEW = 16
"""So many events are read one by one as fast as by cursors, which take half a millisecond to begin."""
_MARK_BYTES = 16
"""Longer than any encoding of what `op` and `__deleted` may be."""


class AvroEvents:
    """The events of one Avro schema, each behind the prefix of the wire format."""

    def __init__(self, schema: str, references: Sequence[str] = ()) -> None:
        """Raises ValueError, whose sentence says what is wrong with the schema."""
        skip = compile_skip(schema, references)
        self._decode = avro_reader.decoder(schema, references)
        self._fields = skip.fields if isinstance(skip, RecordSkip) else []
        types = _field_types(schema)
        self._mark = _DELETED if _DELETED in types else _OP
        self._may_be_event = not types or bool(types.keys() & {_DELETED, _OP, _PAYLOAD})
        self._read_mark = _reader_of(types.get(self._mark))
        after = types.get(_AFTER)
        self._after_is_union = isinstance(after, list)
        self._has_documents = self._mark == _OP and _is_text(after)

    def judge(self, values: pa.BinaryArray) -> Verdicts:
        """Return the verdicts of values, of which none is null."""
        if not self._may_be_event:
            return np.full(len(values), INVALID)
        if len(values) <= FEW or self._has_documents or self._read_mark is None:
            return judge_each(values, self._as_json)
        cursors = Cursors(values, PREFIX_BYTES)
        every = np.arange(len(values))
        marks, has_row = pa.nulls(len(values), pa.binary()), np.full(len(values), self._mark == _DELETED)
        for name, skip in self._fields:
            begins = cursors.at.copy()
            skip(cursors, cursors.all())
            if name == self._mark:
                marks = spans(cursors, every, begins, _MARK_BYTES)
            elif name == _AFTER and self._mark == _OP:
                # A union's null is the number of its branch alone.
                has_row = cursors.at - begins > self._after_is_union
        verdicts = self._by_mark(marks, has_row)
        doubtful = cursors.lost | (cursors.at != cursors.ends) | (verdicts == _UNSURE)
        if doubtful.any():
            verdicts[doubtful] = judge_each(values.filter(pa.array(doubtful)), self._as_json)
        return verdicts

    def _by_mark(self, marks: pa.Array, has_row: NDArray[np.bool_]) -> Verdicts:
        encoded = marks.dictionary_encode(null_encoding="encode")
        of_mark = np.array([self._verdict(mark) for mark in encoded.dictionary.to_pylist()], np.int8)
        verdicts: Verdicts = of_mark[encoded.indices.to_numpy(zero_copy_only=False)]
        verdicts[(verdicts == SET) & ~has_row] = _UNSURE
        return verdicts

    def _verdict(self, mark: bytes | None) -> np.int8:
        if mark is None or self._read_mark is None:
            return INVALID
        try:
            found = json.loads(self._read_mark(mark))
        except ValueError:
            return INVALID
        if found is None:
            return _UNSURE
        if not isinstance(found, str | bool):
            return INVALID
        if self._mark == _DELETED:
            is_deleted = DELETED.get(found)
            return INVALID if is_deleted is None else DELETION if is_deleted else SET
        return DELETION if found == DELETE else SET if found in SETS else INVALID

    def _as_json(self, value: bytes) -> str:
        return self._decode(value[PREFIX_BYTES:])


def _field_types(schema: str) -> dict[str, Any]:
    """Return the types of a record's fields; of any other schema none."""
    found = json.loads(schema)
    fields = found.get("fields") if isinstance(found, dict) else None
    return {each["name"]: each["type"] for each in fields or ()}


def _reader_of(mark: Any) -> Callable[[bytes], str] | None:
    """Return what reads a field of this type; None where it has none, or is defined elsewhere."""
    try:
        return None if mark is None else avro_reader.decoder(json.dumps(mark))
    except ValueError:
        return None


def _is_text(after: Any) -> bool:
    """Whether a value of this type may be a string, as MongoDB's rows are, or what is no row at all."""
    branches = after if isinstance(after, list) else [after]
    return any((each["type"] if isinstance(each, dict) else each) in _NO_RECORDS for each in branches)
