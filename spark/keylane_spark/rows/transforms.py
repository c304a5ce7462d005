"""What a topic's transform makes of rows, as columns: values that are set, left out, or failed.

Spark has computed SQL before (`engine.record_sql`), and its results come with the rows. A function is called
here. Tombstones pass. A row that is left out becomes one: its key is deleted, at its own offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.errors import WriterError
from keylane.formats.json_text import NestedTooDeeply, parse
from keylane_spark.config.transforms import OnError, Transform
from keylane_spark.engine.record_sql import NULL_RESULT, UNREAD, UNREAD_NULL
from keylane_spark.rows.record_function import FunctionCode, call_on_rows
from keylane_spark.rows.records import Rows

Results: TypeAlias = NDArray[np.int8]
KEPT, SET, LEFT_OUT, FAILED = np.arange(4, dtype=np.int8)
"""What becomes of a row: the value that it has, a new one, a deletion, or what `on_error` says."""


@dataclass(frozen=True, slots=True)
class TopicTransform:
    """A topic's transform, and how it is run. `code`: of its function. `fault`: why it can't run at all."""

    definition: Transform
    on_error: OnError = "stop"
    code: FunctionCode | None = None
    fault: str = ""


class Outcome(NamedTuple):
    """What a transform made of n rows. `values`: the new ones, where `results` has SET.

    `why`: a sentence about the first failure, for the log; it may hold data.
    """

    results: Results
    values: pa.BinaryArray | None
    why: str = ""


class Transformed(NamedTuple):
    """The rows as they are stored, and what became of others.

    `failed_offsets`: of those on which the transform failed, in rising order. `stopped_at`: the offset of the
    first of them, where the partition goes no further; no later row is in `rows`.
    """

    rows: Rows
    left_out: int
    failed_offsets: NDArray[np.int64]
    why: str = ""
    stopped_at: int | None = None


def transform_rows(
    rows: Rows, invalid_offsets: NDArray[np.int64], partition: int, transform: TopicTransform
) -> Transformed:
    """Transform rows of a partition, which all have keys.

    `invalid_offsets`: of values that are not the change events which they should be. They are stored where
    values stay as they are, and readers are answered why; a transform that returns values fails on them.
    """
    if transform.fault:
        return _stop_at(rows, 0, transform.fault)
    has_value = np.asarray(rows.values.is_valid())
    is_invalid = np.isin(rows.offsets, invalid_offsets)
    seen = has_value & ~is_invalid
    results, values, why = np.full(len(rows), KEPT), None, ""
    if seen.any():
        outcome = _outcome_of(rows if seen.all() else rows.where(seen), partition, transform)
        results[seen], why = outcome.results, outcome.why
        if outcome.values is not None:
            at = np.cumsum(seen) - 1
            values = outcome.values.take(pa.array(at, mask=~seen))
    if transform.definition.stores_other_values and is_invalid.any():
        results[is_invalid] = FAILED
        why = why or "it is not a change event"
    return _apply(rows, Outcome(results, values, why), transform.on_error)


def _apply(rows: Rows, outcome: Outcome, on_error: OnError) -> Transformed:
    failed = outcome.results == FAILED
    if on_error == "stop" and failed.any():
        first = int(failed.argmax())
        before = _apply(
            rows.part(0, first), Outcome(outcome.results[:first], _first(outcome.values, first)), on_error
        )
        return _stop_at(rows, first, outcome.why)._replace(rows=before.rows, left_out=before.left_out)
    left_out = outcome.results == LEFT_OUT
    values = rows.values
    if outcome.values is not None:
        values = pc.if_else(pa.array(outcome.results == SET), outcome.values, values)
    if left_out.any():
        values = pc.if_else(pa.array(left_out), None, values)
    stored = replace(rows, values=values, wanted=None, selected=None)
    if on_error == "skip" and failed.any():
        stored = stored.where(~failed)
    return Transformed(stored, int(left_out.sum()), rows.offsets[failed], outcome.why)


def _stop_at(rows: Rows, row: int, why: str) -> Transformed:
    if not len(rows):
        return Transformed(rows, 0, rows.offsets)
    offset = int(rows.offsets[row])
    return Transformed(rows.part(0, row), 0, rows.offsets[row : row + 1], why, offset)


def _first(values: pa.BinaryArray | None, count: int) -> pa.BinaryArray | None:
    return None if values is None else values[:count]


def _outcome_of(rows: Rows, partition: int, transform: TopicTransform) -> Outcome:
    """Return what the transform makes of rows that have values."""
    if transform.code is None:
        return _sql_outcome(rows, transform.definition)
    found = call_on_rows(
        transform.code,
        rows,
        partition,
        of_events=transform.definition.envelope != "none",
        until_first_failure=transform.on_error == "stop",
    )
    results = np.where(np.asarray(found.values.is_valid()), SET, LEFT_OUT).astype(np.int8)
    results[found.failed] = FAILED
    return Outcome(results, found.values, found.why)


def _sql_outcome(rows: Rows, definition: Transform) -> Outcome:
    if rows.wanted is None or rows.selected is None:
        raise WriterError("rows of a topic with SQL came without its results")
    selected, is_unread = _without_marks(rows.selected, rows.values)
    wanted = np.asarray(pc.fill_null(rows.wanted, False))
    failed, values = np.asarray(rows.wanted.is_null()), None
    results = np.where(wanted, KEPT, LEFT_OUT).astype(np.int8)
    if definition.select is not None:
        values = selected.cast(pa.binary())
        failed |= wanted & np.asarray(selected.is_null())
        is_null = np.asarray(pc.fill_null(pc.equal(selected, NULL_RESULT), True))
        results = np.where(wanted & ~is_null, SET, LEFT_OUT).astype(np.int8)
    results[failed | is_unread] = FAILED
    why = "Spark can't read its JSON" if is_unread.any() else "its SQL fails on it" if failed.any() else ""
    return Outcome(results, values, why)


def _without_marks(
    selected: pa.StringArray, values: pa.BinaryArray
) -> tuple[pa.StringArray, NDArray[np.bool_]]:
    """Return `selected` without UNREAD, and the rows whose values are JSON for readers, but not for Spark.

    SQL would see no field of theirs, and a row that it wants would be left out: its key would be deleted.
    """
    marked = pc.fill_null(pc.starts_with(selected, UNREAD), False)
    is_marked = np.asarray(marked)
    if not is_marked.any():
        return selected, is_marked
    is_null = pc.equal(selected, UNREAD_NULL)
    plain = pc.if_else(marked, pc.utf8_slice_codeunits(selected, 1), selected)
    is_unread = is_marked.copy()
    for row in np.flatnonzero(is_marked).tolist():
        is_unread[row] = _is_json(values[row].as_py())
    return pc.if_else(is_null, None, plain), is_unread


def _is_json(value: bytes | None) -> bool:
    try:
        parse(value or b"")
    except NestedTooDeeply:
        return True  # it may well be
    except ValueError:
        return False
    return True
