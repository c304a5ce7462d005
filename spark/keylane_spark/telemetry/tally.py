"""Counts of what a batch wrote."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane.model.records import WHOLE_KEY, Layout
from keylane.routing import PARTITIONERS
from keylane_spark.rows.records import Records
from keylane_spark.rows.routing import partition_column, partition_keys

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

    def add_rows(self, count: int, with_keys: int) -> None:
        """Count rows, and those of them that have a key."""
        self.records += count
        self.null_keys += count - with_keys

    def add(self, records: Records, record_bytes: int | None = None) -> None:
        """Count records as they are stored. `record_bytes`: their total, if known."""
        self.tombstones += records.values.null_count
        self.record_bytes += records.total_bytes if record_bytes is None else record_bytes
        if records.left_bytes is not None:
            self.left_in_kafka += int(np.count_nonzero(records.left_bytes))

    def add_invalid(self, offsets: NDArray[np.int64]) -> None:
        """Count values that are not change events, by their offsets in rising order."""
        self.invalid_events += len(offsets)
        if self.first_invalid < 0 and len(offsets):
            self.first_invalid = int(offsets[0])

    def add_failed(self, offsets: NDArray[np.int64]) -> None:
        """Count records on which the transform fails, by their offsets in rising order."""
        self.failed += len(offsets)
        if self.first_failed < 0 and len(offsets):
            self.first_failed = int(offsets[0])

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
