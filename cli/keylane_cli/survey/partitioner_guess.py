"""Which partitioner has placed a topic's records: the one by which their keys belong where they are."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from keylane.routing import PARTITIONERS, partition_for

USUAL = "murmur2"
FEW_KEYS = 20
"""Fewer keys than this may lie where they do by chance."""
_ALL, _MOST = 1.0, 0.5


@dataclass(frozen=True, slots=True)
class PartitionerGuess:
    """A partitioner, whether others are in use too (`is_guarded`), and a sentence that says why.

    `is_found`: the keys say so; else it is the usual one.
    """

    partitioner: str
    is_guarded: bool
    reason: str
    is_found: bool = False


def guess_partitioner(placed: Iterable[tuple[int, bytes | None]], partition_count: int) -> PartitionerGuess:
    """Look at records, each as its partition and its key."""
    distinct = {(partition, key) for partition, key in placed if key}
    if partition_count == 1:
        return PartitionerGuess(USUAL, is_guarded=False, reason="the topic has one partition: any is right")
    if len(distinct) < FEW_KEYS:
        return PartitionerGuess(
            USUAL,
            is_guarded=False,
            reason=f"only {len(distinct)} keys were found, too few to tell: this is that of Java clients",
        )
    right = Counter(
        name
        for name in PARTITIONERS
        for partition, key in distinct
        if partition_for(key, partition_count, name) == partition
    )
    best = max(PARTITIONERS, key=lambda name: right[name])
    share = right[best] / len(distinct)
    if share == _ALL:
        return PartitionerGuess(
            best, is_guarded=False, reason=f"all {len(distinct)} keys are where it puts them", is_found=True
        )
    if share >= _MOST:
        reason = (
            f"{share:.0%} of {len(distinct)} keys are where it puts them: producers use several partitioners"
        )
        return PartitionerGuess(best, is_guarded=True, reason=reason, is_found=True)
    return PartitionerGuess(
        USUAL,
        is_guarded=True,
        reason=f"no known one puts the {len(distinct)} keys where they are: each is found, at a higher cost",
    )
