"""Rows of any number of a topic's partitions -> the records that are stored of them, and their lanes.

rows, joined -> those with keys -> tombstones of change events -> transform -> records -> numbers of lanes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane.model.records import Layout
from keylane.state.codec import HEADER_BYTES
from keylane_spark.rows.change_events import Judge, apply_events
from keylane_spark.rows.records import Records, Rows, bounds_of, lengths_of, stored_records
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

    `lanes`: of each record the number of its lane, as of `lane_column`, and LANES times that of its part:
    which of the given partitions it is of. `counts`: of each partition.
    """

    records: Records
    lanes: NDArray[np.integer]
    counts: list[PartCounts]


LANES = 1 << 32
"""More than a topic's lanes, and than partitions."""


def store_rows(
    given: Sequence[tuple[int, Rows]], layout: Layout, judge: Judge, transform: TopicTransform | None
) -> StoredRows:
    """Make records of rows, which are given with the numbers of their partitions.

    `judge`: of change events in a Schema Registry's wire format. Raises RegistryUnavailable.
    """
    lengths = [len(rows) for _, rows in given]
    rows, bounds = Rows.joined([rows for _, rows in given]), _bounds(lengths)
    if rows.keys.null_count:
        has_key = np.asarray(rows.keys.is_valid())
        rows, bounds = rows.where(has_key), _sums(has_key)[bounds]
    null_keys = [length - keyed for length, keyed in zip(lengths, _steps(bounds), strict=True)]
    invalid = [rows.offsets[:0]] * len(given)
    envelope = layout.options.envelope if transform is None else transform.definition.envelope
    if envelope != "none":
        rows, is_invalid = apply_events(rows, judge)
        if is_invalid.any():
            invalid = [rows.offsets[begin:end][is_invalid[begin:end]] for begin, end in _pairs(bounds)]
    transformed: Sequence[Transformed | None] = [None] * len(given)
    if transform is not None:
        # A function sees rows of one partition, and its failure may stop this one alone.
        found = [
            transform_rows(rows.part(*part), own, partition, transform)
            for (partition, _), own, part in zip(given, invalid, _pairs(bounds), strict=True)
        ]
        transformed, rows = found, Rows.joined([each.rows for each in found])
        bounds = _bounds([len(each.rows) for each in found])
    records = stored_records(rows, layout.options)
    lanes: NDArray[np.integer] = lane_column(records.keys, layout)
    if len(given) > 1:
        lanes = lanes + np.repeat(np.arange(len(given)) * LANES, bounds[1:] - bounds[:-1])
    counts = zip(lengths, null_keys, invalid, transformed, *_record_counts(records, bounds), strict=True)
    return StoredRows(records, lanes, [PartCounts(*each) for each in counts])


def _record_counts(records: Records, bounds: Ints) -> tuple[list[int], list[int], list[int]]:
    """The tombstones of each part, the bytes of its records, and how many values are left in Kafka."""
    nothing = [0] * (len(bounds) - 1)
    tombstones, left = nothing, nothing
    total: Ints = bounds * HEADER_BYTES + _bytes_up_to(records.keys, bounds)
    total = total + _bytes_up_to(records.values, bounds)
    if records.headers is not None:
        total = total + _bytes_up_to(records.headers, bounds)
    if records.values.null_count:
        tombstones = _steps(_sums(records.tombstones)[bounds])
    if records.left_bytes is not None:
        left = _steps(_sums(records.left_bytes > 0)[bounds])
        total = total + _sums(records.left_bytes)[bounds]
    return tombstones, _steps(total), left


def _bytes_up_to(strings: pa.BinaryArray, bounds: Ints) -> Ints:
    """The bytes of all strings before each of these rows, and of some that precede all."""
    if strings.null_count:  # which may have bytes in the buffer
        return _sums(lengths_of(strings).to_numpy(zero_copy_only=False))[bounds]
    return bounds_of(strings)[bounds].astype(np.int64) if len(strings) else bounds


def _bounds(lengths: Sequence[int]) -> Ints:
    """Where each part begins, and the last one ends."""
    return np.array([0, *accumulate(lengths)])


def _pairs(bounds: Ints) -> list[tuple[int, int]]:
    return list(pairwise(bounds.tolist()))


def _sums(values: NDArray[np.integer] | NDArray[np.bool_]) -> Ints:
    """The sum of all values before each row, and of all."""
    return np.concatenate(([0], np.cumsum(values, dtype=np.int64)))


def _steps(sums: Ints) -> list[int]:
    steps: list[int] = (sums[1:] - sums[:-1]).tolist()
    return steps
