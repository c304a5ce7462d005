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
from keylane.formats.change_events import parse_event
from keylane_spark.config.transforms import OnError, Transform
from keylane_spark.engine.record_sql import NULL_RESULT, QUOTED_NUMBERS, UNREAD_RESULT
from keylane_spark.rows.json_values import LARGEST_VALUE, MOST_DIGITS, with_numbers
from keylane_spark.rows.record_function import FunctionCode, call_on_rows
from keylane_spark.rows.records import Rows

Results: TypeAlias = NDArray[np.int8]
KEPT, SET, LEFT_OUT, FAILED = np.arange(4, dtype=np.int8)
"""What becomes of a row: the value that it has, a new one, a deletion, or what `on_error` says."""
_UNREAD = "Spark can't read its JSON"
_LARGE = f"it has more than {LARGEST_VALUE:,} bytes"
_AMBIGUOUS = f"it has a number of more than {MOST_DIGITS} digits, and the same digits as a string"


@dataclass(frozen=True, slots=True)
class TopicTransform:
    """A topic's transform, and how it is run. `code`: of its function. `fault`: why it can't run at all.

    `has_onlooker`: a person looks at what it makes of a sample, and may interrupt it.
    """

    definition: Transform
    on_error: OnError = "stop"
    code: FunctionCode | None = None
    fault: str = ""
    has_onlooker: bool = False


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
        why = why or _why_no_event(rows.values[int(is_invalid.argmax())].as_py())
    return _apply(rows, Outcome(results, values, why), transform.on_error)


def _why_no_event(value: bytes) -> str:
    try:
        if not value.startswith(b"\0"):
            parse_event(value.decode())
    except ValueError as error:
        return str(error)
    return "it is not a change event"


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
        has_onlooker=transform.has_onlooker,
    )
    results = np.where(np.asarray(found.values.is_valid()), SET, LEFT_OUT).astype(np.int8)
    results[found.failed] = FAILED
    return Outcome(results, found.values, found.why)


def _sql_outcome(rows: Rows, definition: Transform) -> Outcome:
    if rows.wanted is None or rows.selected is None:
        raise WriterError("rows of a topic with SQL came without its results")
    is_unread = np.asarray(pc.fill_null(pc.equal(rows.selected, UNREAD_RESULT), False))
    selected, is_ambiguous = _with_numbers(rows.selected, rows.values)
    wanted = np.asarray(pc.fill_null(rows.wanted, False))
    failed, values = np.asarray(rows.wanted.is_null()), None
    results = np.where(wanted, KEPT, LEFT_OUT).astype(np.int8)
    if definition.select is not None:
        values = selected.cast(pa.binary())
        failed |= wanted & np.asarray(selected.is_null())
        is_null = np.asarray(pc.fill_null(pc.equal(selected, NULL_RESULT), True))
        results = np.where(wanted & ~is_null, SET, LEFT_OUT).astype(np.int8)
    results[failed | is_unread] = FAILED
    is_large = np.zeros(len(rows), np.bool_) if rows.left_bytes is None else rows.left_bytes > 0
    faults = (
        (is_large, _LARGE),
        (is_unread, _UNREAD),
        (is_ambiguous, _AMBIGUOUS),
        (failed, "its SQL fails on it"),
    )
    return Outcome(results, values, next((why for mask, why in faults if mask.any()), ""))


def _with_numbers(
    selected: pa.StringArray, values: pa.BinaryArray
) -> tuple[pa.StringArray, NDArray[np.bool_]]:
    """Return `selected` with the numbers that were strings for Spark, and where they are ambiguous."""
    is_quoted = np.asarray(pc.fill_null(pc.starts_with(selected, QUOTED_NUMBERS), False))
    is_ambiguous = np.zeros(len(selected), np.bool_)
    if not is_quoted.any():
        return selected, is_ambiguous
    found = selected.to_pylist()
    for row in np.flatnonzero(is_quoted).tolist():
        found[row] = with_numbers(values[row].as_py().decode(), found[row].removeprefix(QUOTED_NUMBERS))
        is_ambiguous[row] = found[row] is None
    return pa.array(found, pa.string()), is_ambiguous
