"""Counts of what a batch wrote."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counts of one partition's records. `written`: those left by the fold of each chunk."""

    records: int = 0
    written: int = 0
    tombstones: int = 0
    null_keys: int = 0
    record_bytes: int = 0
    left_in_kafka: int = 0
    strays: int = 0
    """Records whose key belongs to another partition. The next three: how many each partitioner explains."""
    murmur2: int = 0
    crc32: int = 0
    fnv1a: int = 0
    whole_key: int = 0
    """Of a topic partitioned by a part of its keys: strays in the partition of the complete key."""
