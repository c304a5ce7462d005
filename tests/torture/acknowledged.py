"""When each write was acknowledged: what an answer that is complete as of a later time must contain.

One machine has the clocks of producers, job and readers, so their times can be compared.
"""

from __future__ import annotations

import bisect
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from keylane.model.kafka import TopicPartition


class Acknowledged:
    """Of each partition, the offsets acknowledged so far by time.

    A record in a transaction counts as acknowledged once the commit has returned.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times_ms: dict[TopicPartition, list[float]] = {}
        self._next_offsets: dict[TopicPartition, list[int]] = {}

    def note(self, at_ms: float, positions: Iterable[tuple[str, int, int]]) -> None:
        """Add topic, partition and offset of records whose acknowledgement arrived by `at_ms`."""
        highest: dict[TopicPartition, int] = {}
        for topic, partition, offset in positions:
            source = topic, partition
            highest[source] = max(offset, highest.get(source, -1))
        with self._lock:
            for source, offset in highest.items():
                times_ms = self._times_ms.setdefault(source, [])
                next_offsets = self._next_offsets.setdefault(source, [])
                # The time comes last: `next_offset` looks for it, without the lock.
                next_offsets.append(max(offset + 1, next_offsets[-1] if next_offsets else 0))
                # A clock that goes back makes no earlier write due.
                times_ms.append(max(at_ms, times_ms[-1] if times_ms else 0))

    def ends(self) -> dict[TopicPartition, int]:
        """Of each partition the offset behind all that were acknowledged."""
        with self._lock:
            return {source: offsets[-1] for source, offsets in self._next_offsets.items()}

    def next_offset(self, topic: str, partition: int, before_ms: float) -> int:
        """Everything below this offset of the partition was written before a time; 0: nothing was."""
        source = topic, partition
        index = bisect.bisect_left(self._times_ms.get(source, ()), before_ms)
        return self._next_offsets[source][index - 1] if index else 0
