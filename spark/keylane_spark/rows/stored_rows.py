"""Rows of any number of a topic's partitions -> the records that are stored of them, and their lanes.

rows, joined -> those with keys -> tombstones of change events -> transform -> records -> numbers of lanes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keylane.model.records import Layout
from keylane_spark.rows.change_events import Judge, apply_events
from keylane_spark.rows.records import Records, Rows, stored_records
from keylane_spark.rows.routing import lane_column
from keylane_spark.rows.transforms import TopicTransform, Transformed, transform_rows

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartCounts:
    """What became of a partition's rows. `transformed`: None for topics without a transform."""

    rows: int
    null_keys: int
    invalid_offsets: Ints
    transformed: Transformed | None
    tombstones: int
    record_bytes: int
    left_in_kafka: int


class StoredRows(NamedTuple):
    """The records of several partitions, those of a partition behind those of another.

    `parts`: of each record, which of the given partitions it is of; `lanes`: its lane, as of `lane_column`.
    `are_strays`: whether that is no lane of its partition. `counts`: of each partition.
    """

    records: Records
    parts: Ints
    lanes: NDArray[np.int32]
    are_strays: NDArray[np.bool_]
    counts: list[PartCounts]


def store_rows(
    given: Sequence[tuple[int, Rows]], layout: Layout, judge: Judge, transform: TopicTransform | None
) -> StoredRows:
    """Make records of rows, which are given with the numbers of their partitions.

    `judge`: of change events in a Schema Registry's wire format. Raises RegistryUnavailable.
    """
    lengths = [len(rows) for _, rows in given]
    rows, parts = Rows.joined([rows for _, rows in given]), np.repeat(np.arange(len(given)), lengths)
    if rows.keys.null_count:
        has_key = np.asarray(rows.keys.is_valid())
        rows, parts = rows.where(has_key), parts[has_key]
    bounds = _bounds(parts, len(given))
    with_keys = np.diff(bounds).tolist()
    invalid = [rows.offsets[:0]] * len(given)
    envelope = layout.options.envelope if transform is None else transform.definition.envelope
    if envelope != "none":
        rows, is_invalid = apply_events(rows, judge)
        if is_invalid.any():
            invalid = [rows.offsets[part][is_invalid[part]] for part in _slices(bounds)]
    transformed: Sequence[Transformed | None] = [None] * len(given)
    if transform is not None:
        # A function sees rows of one partition, and its failure may stop this one alone.
        found = [
            transform_rows(rows.part(part.start, part.stop), own, partition, transform)
            for (partition, _), own, part in zip(given, invalid, _slices(bounds), strict=True)
        ]
        transformed, rows = found, Rows.joined([each.rows for each in found])
        parts = np.repeat(np.arange(len(given)), [len(each.rows) for each in found])
        bounds = _bounds(parts, len(given))
    records = stored_records(rows, layout.options)
    lanes = lane_column(records.keys, layout)
    partitions = np.array([partition for partition, _ in given])
    left_bytes = 0 if records.left_bytes is None else records.left_bytes
    counts = zip(
        lengths,
        (length - keyed for length, keyed in zip(lengths, with_keys, strict=True)),
        invalid,
        transformed,
        _totals(records.tombstones, bounds),
        _totals(records.sizes + left_bytes, bounds),
        [0] * len(given) if records.left_bytes is None else _totals(records.left_bytes > 0, bounds),
        strict=True,
    )
    are_strays = lanes // layout.stripes != partitions[parts]
    return StoredRows(records, parts, lanes, are_strays, [PartCounts(*each) for each in counts])


def _bounds(parts: Ints, count: int) -> Ints:
    """Where each part begins, and the last one ends."""
    return np.searchsorted(parts, np.arange(count + 1))


def _slices(bounds: Ints) -> list[slice]:
    return [slice(begin, end) for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]


def _totals(values: NDArray[np.integer] | NDArray[np.bool_], bounds: Ints) -> list[int]:
    """The sum of each part."""
    sums = np.concatenate([[0], np.cumsum(values)])
    totals: list[int] = np.diff(sums[bounds]).tolist()
    return totals
