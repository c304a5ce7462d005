"""Counts of what a batch wrote."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane.model.records import WHOLE_KEY, Layout
from keylane.routing import PARTITIONERS
from keylane_spark.rows.routing import partition_column, partition_keys
from keylane_spark.rows.stored_rows import PartCounts

EXPLANATIONS = (*PARTITIONERS, "whole_key")
"""What may have placed a stray: fields of `Tally`."""


@dataclass(slots=True)
class Tally:
    """Counts of one partition's records. `written`: those left by the fold of each chunk."""

    records: int = 0
    written: int = 0
    tombstones: int = 0
    null_keys: int = 0
    record_bytes: int = 0
    left_in_kafka: int = 0
    invalid_events: int = 0
    first_invalid: int = -1
    """The offset of the first value that is not a change event, where the topic's values should be."""
    left_out: int = 0
    """Records that the topic's transform leaves out."""
    failed: int = 0
    """Records on which the topic's transform fails."""
    first_failed: int = -1
    """The offset of the first of them."""
    invalid_fields: int = 0
    """Values that a topic's fields can't have, of the records that were written."""
    strays: int = 0
    """Records whose key belongs to another partition. The next three: how many each partitioner explains."""
    murmur2: int = 0
    crc32: int = 0
    fnv1a: int = 0
    whole_key: int = 0
    """Of a topic partitioned by a part of its keys: strays in the partition of the complete key."""

    @property
    def stray_counts(self) -> dict[str, int]:
        """How many strays there are, and how many of them each of EXPLANATIONS explains."""
        return {name: getattr(self, name) for name in ("strays", *EXPLANATIONS)}

    def add(self, counts: PartCounts) -> None:
        """Count rows, and what became of them."""
        self.records += counts.rows
        self.null_keys += counts.null_keys
        self.tombstones += counts.tombstones
        self.record_bytes += counts.record_bytes
        self.left_in_kafka += counts.left_in_kafka
        self.invalid_events += len(counts.invalid_offsets)
        self.first_invalid = _first(self.first_invalid, counts.invalid_offsets)
        if counts.transformed is not None:
            self.left_out += counts.transformed.left_out
            self.failed += len(counts.transformed.failed_offsets)
            self.first_failed = _first(self.first_failed, counts.transformed.failed_offsets)

    def add_strays(self, keys: pa.BinaryArray, partition: int, layout: Layout) -> None:
        """Count strays in a partition by their keys."""
        self.strays += len(keys)
        routed_by = partition_keys(keys, layout.partition_by)
        for name in PARTITIONERS:
            explained = partition_column(routed_by, layout.partition_count, name) == partition
            setattr(self, name, getattr(self, name) + int(explained.sum()))
        if layout.partition_by != WHOLE_KEY:
            by_whole_key = partition_column(keys, layout.partition_count, layout.partitioner)
            self.whole_key += int((by_whole_key == partition).sum())


def _first(known: int, offsets: NDArray[np.int64]) -> int:
    """The first offset that was counted; `offsets` rise."""
    return int(offsets[0]) if known < 0 and len(offsets) else known
