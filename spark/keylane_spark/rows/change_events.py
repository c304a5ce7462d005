"""Change events of databases, as columns: which of them delete their row, and which are not events.

What an event is says `keylane.formats.change_events`, for readers too. msgspec reads the few members of JSON
that decide, and validates the others; that module reads the documents that msgspec refuses, and MongoDB's,
whose rows are strings. Each document is judged alone, so no verdict depends on what comes together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.formats.change_events import DELETE, DELETED, SETS, RowEvent, parse_event
from keylane.formats.change_events import DELETION as ROW_DELETED
from keylane.formats.json_text import may_be_deep
from keylane_spark.rows.records import Rows

Verdicts: TypeAlias = NDArray[np.int8]
Judge: TypeAlias = Callable[[pa.BinaryArray], Verdicts]
SET, DELETION, INVALID = np.arange(3, dtype=np.int8)

_NULL = msgspec.Raw(b"null")


class AppliedEvents(NamedTuple):
    """Rows with tombstones in place of the events that delete, and which of them are not events."""

    rows: Rows
    is_invalid: NDArray[np.bool_]

    @property
    def invalid_offsets(self) -> NDArray[np.int64]:
        """The offsets of what are not events."""
        return self.rows.offsets[self.is_invalid]


def apply_events(rows: Rows, judge_framed: Judge) -> AppliedEvents:
    """Make tombstones of the rows' deletions; what is not an event stays as it is.

    `judge_framed`: the verdicts of values in a Schema Registry's wire format, which begin with the byte 0.
    """
    verdicts = np.full(len(rows), SET)
    is_framed = np.asarray(pc.fill_null(pc.equal(pc.binary_slice(rows.values, 0, 1), b"\0"), False))
    is_json = np.asarray(rows.values.is_valid()) & ~is_framed
    for mask, judge in ((is_json, judge_json), (is_framed, judge_framed)):
        if mask.all():
            verdicts = judge(rows.values)
        elif mask.any():
            verdicts[mask] = judge(rows.values.filter(pa.array(mask)))
    if (verdicts == DELETION).any():
        values = pc.if_else(pa.array(verdicts == DELETION), None, rows.values)
        rows = replace(rows, values=values)
    return AppliedEvents(rows, verdicts == INVALID)


def judge_json(documents: pa.BinaryArray) -> Verdicts:
    """Return the verdicts of documents, of which none is null."""
    return np.array([_judge(read_event, value, bytes.decode) for value in documents.to_pylist()], np.int8)


def judge_each(values: pa.BinaryArray, as_json: Callable[[bytes], str]) -> Verdicts:
    """Return the verdicts of values whose JSON `as_json` returns; it raises ValueError as decoders do."""
    return np.array([_judge(parse_event, value, as_json) for value in values.to_pylist()], np.int8)


def _judge(read: Callable[[str], RowEvent], value: bytes, as_json: Callable[[bytes], str]) -> np.int8:
    try:
        return DELETION if read(as_json(value)).text is None else SET
    except ValueError:
        return INVALID


class _Event(msgspec.Struct, rename={"is_deleted": "__deleted"}, gc=False):
    """The members of an event that say what it is."""

    op: str | None = None
    is_deleted: str | bool | None = None
    after: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL
    schema: msgspec.Raw = _NULL

    @property
    def has_marks(self) -> bool:
        """Whether it is an event, and not what an event is in."""
        return self.op is not None or self.is_deleted is not None


_decode = msgspec.json.Decoder(_Event).decode


def read_event(text: str) -> RowEvent:
    """As `parse_event`, which reads only what is not as most events are: it takes twenty times as long."""
    found = None if may_be_deep(text, 0, len(text)) else _usual_event(text)
    return parse_event(text) if found is None else found


def _usual_event(text: str) -> RowEvent | None:
    try:
        event, schema = _decode(text), "null"
        if not event.has_marks:
            text, schema = bytes(event.payload).decode(), bytes(event.schema).decode()
            event = _decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    beside = None if schema == "null" else schema
    if event.is_deleted is not None:
        is_deleted = DELETED.get(event.is_deleted)
        if is_deleted is None:
            return None
        return ROW_DELETED if is_deleted else RowEvent(text, beside)
    if event.op == DELETE:
        return ROW_DELETED
    after = bytes(event.after)
    if event.op not in SETS or not after.startswith(b"{"):
        return None
    return RowEvent(after.decode(), beside)
