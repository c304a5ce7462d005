"""What a batch has written, counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """What happened to the records of one partition; `written`: after the fold of each chunk."""

    records: int = 0
    written: int = 0
    tombstones: int = 0
    null_keys: int = 0
    record_bytes: int = 0
    left_in_kafka: int = 0
    strays: int = 0
    """Records that a reader looks for in another partition; of those, how many each partitioner explains:"""
    murmur2: int = 0
    crc32: int = 0
    fnv1a: int = 0
    whole_key: int = 0
    """And, of a topic that is partitioned by a part of its keys, how many lie where all of the key says."""
