"""Change events of databases, as columns: which of them delete their row, and which are not events.

What an event is says `keylane.formats.change_events`, for readers too. Of JSON, Arrow's parser reads the few
members that decide; that module reads, one by one, the documents that Arrow's refuses and those that it may
take although they are not JSON. So a verdict does not depend on what comes together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from keylane.formats.change_events import DELETE, SETS, parse_event
from keylane.formats.json_text import MAX_NESTING
from keylane_spark.rows.records import Rows

Verdicts: TypeAlias = NDArray[np.int8]
Judge: TypeAlias = Callable[[pa.BinaryArray], Verdicts]
SET, DELETION, INVALID = np.arange(3, dtype=np.int8)

FEW = 16
"""So many events are read one by one as fast as in columns, which take half a millisecond to begin."""
_NAN, _INF = (np.frombuffer(word, np.uint8) for word in (b"NaN", b"Inf"))
"""Arrow's parser takes these for numbers."""
_OBJECT, _ARRAY = b"{["
_MARKS = [("op", pa.string()), ("__deleted", pa.string()), ("after", pa.struct([]))]
_DOCUMENT = pa.struct([*_MARKS, ("payload", pa.struct(_MARKS))])
_PARSING = pyarrow.json.ParseOptions(
    explicit_schema=pa.schema([("event", _DOCUMENT)]), unexpected_field_behavior="ignore"
)


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
    if len(documents) <= FEW:
        return judge_each(documents, bytes.decode)
    is_doubtful = _is_doubtful(documents)
    if is_doubtful.any():
        verdicts = np.empty(len(documents), np.int8)
        verdicts[is_doubtful] = judge_each(documents.filter(pa.array(is_doubtful)), bytes.decode)
        verdicts[~is_doubtful] = judge_json(documents.filter(pa.array(~is_doubtful)))
        return verdicts
    try:
        events = _parse(documents)
    except pa.ArrowInvalid:
        middle = len(documents) // 2
        return np.concatenate([judge_json(documents[:middle]), judge_json(documents[middle:])])
    marks = {name: events.field(name) for name, _ in _MARKS}
    payloads = events.field("payload")
    is_bare = pc.or_(marks["op"].is_valid(), marks["__deleted"].is_valid())
    if not pc.all(is_bare).as_py():
        inner = dict(zip(marks, payloads.flatten(), strict=True))
        marks = {name: pc.if_else(is_bare, column, inner[name]) for name, column in marks.items()}
    deleted, operations = marks["__deleted"], marks["op"]
    deletes = pc.if_else(deleted.is_valid(), pc.equal(deleted, "true"), pc.equal(operations, DELETE))
    sets = pc.and_(pc.is_in(operations, pa.array(SETS)), marks["after"].is_valid())
    sets = pc.if_else(deleted.is_valid(), pc.equal(deleted, "false"), sets)
    return np.select([_mask(deletes), _mask(sets)], [DELETION, SET], INVALID).astype(np.int8)


def judge_each(values: pa.BinaryArray, as_json: Callable[[bytes], str]) -> Verdicts:
    """Return the verdicts of values that are read one by one; `as_json` raises ValueError as decoders do."""
    return np.array([_judge(value, as_json) for value in values.to_pylist()], np.int8)


def _judge(value: bytes, as_json: Callable[[bytes], str]) -> np.int8:
    try:
        return DELETION if parse_event(as_json(value)).row is None else SET
    except ValueError:
        return INVALID


def _is_doubtful(documents: pa.BinaryArray) -> NDArray[np.bool_]:
    """Which documents Arrow's parser may take although they are not JSON. Those not in UTF-8 it refuses."""
    is_doubtful = np.zeros(len(documents), np.bool_)
    _, ends, data = documents.buffers()
    bounds = np.frombuffer(ends, np.int32, len(documents) + 1, 4 * documents.offset)
    text = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    begins = np.flatnonzero((text[:-2] == _NAN[0]) | (text[:-2] == _INF[0]))
    words = np.stack([text[begins], text[begins + 1], text[begins + 2]], axis=1)
    found = begins[(words == _NAN).all(axis=1) | (words == _INF).all(axis=1)]
    is_doubtful[np.searchsorted(bounds, found + bounds[0], "right") - 1] = True
    if (np.diff(bounds) > MAX_NESTING).any():
        openings = np.flatnonzero((text == _OBJECT) | (text == _ARRAY))
        is_doubtful |= np.diff(np.searchsorted(openings, bounds - bounds[0])) > MAX_NESTING
    return is_doubtful


def _parse(documents: pa.BinaryArray) -> pa.StructArray:
    """Parse each document as the only member of a line.

    No document can spoil its neighbours: a line ends where no string and no document can go on, for what
    follows begins another object. So as many objects as lines are one for each. Raises ArrowInvalid.
    """
    documents.cast(pa.string())  # what it passes over need not be UTF-8 for Arrow's parser
    lines = pc.binary_join_element_wise(b'{"event":', documents, b"}\n", b"")
    text = lines.buffers()[2]
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1)
    events = pyarrow.json.read_json(pa.BufferReader(text), reading, _PARSING).column("event")
    if len(events) != len(documents):
        raise pa.ArrowInvalid("a value has several documents")
    return events.combine_chunks()


def _mask(column: pa.BooleanArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = pc.fill_null(column, fill_value=False).to_numpy(zero_copy_only=False)
    return mask
