"""Watches the leaders of partitions: a query reads only from those that its lanes were compared with.

A new leader may lack records that the lanes have, or that Spark's consumers have fetched ahead. So a query
ends at a change of a leader, unless it can follow: see `serving.elections`. The lanes are then opened again
and compared with the log, see `generations.lineage`, and new consumers read on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from keylane.errors import LeaderChanged, LogUnavailable, Unavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.adapters.kafka_admin import LogEnd
from keylane_spark.context import JobContext

Observe = Callable[[], Mapping[TopicPartition, LogEnd]]
Follow = Callable[[Collection[TopicPartition], Observe], Mapping[TopicPartition, int]]
"""Compares lanes with the logs of these partitions' new leaders, and returns the leaders' epochs.

Raises TopicChanged where the lanes are to be opened again, Unavailable, Fenced.
"""

ELECTION_S = 30.0
"""How long a batch waits for a partition that has no leader, or is read again because leaders change."""
_PAUSE_S = 0.1


class Leaders:
    """The leaders of partitions. Thread-safe."""

    def __init__(
        self,
        context: JobContext,
        counts: Mapping[str, int],
        epochs: Mapping[TopicPartition, int],
        follow: Follow | None = None,
    ) -> None:
        """`counts`: partition counts by topic; `epochs`: the known leader epochs, of other topics too."""
        self._watch = context.watch(counts)
        self._clock = context.clock
        self._follow = follow
        self._lock = threading.Lock()
        self.epochs = {source: epoch for source, epoch in epochs.items() if source[0] in counts}
        """Of the leaders that are read from; they change where a new one is followed."""

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The end offset of each partition, from leaders that the lanes were compared with.

        Raises LeaderChanged for a newer leader that can't be followed, LogUnavailable for an older or no one.
        """
        ends = self._watch.ends()
        with self._lock:
            while newer := self._find_newer(ends):
                if self._follow is None:
                    ((topic, partition), epoch), *_ = newer.items()
                    raise LeaderChanged(
                        f"partition {partition} of topic {topic!r} has a new leader, "
                        f"of epoch {epoch} after {self.epochs[topic, partition]}"
                    )
                self.epochs |= self._follow(newer, self._watch.ends)
                ends = self._watch.ends()
        return {partition: end.offset for partition, end in ends.items()}

    def _find_newer(self, ends: Mapping[TopicPartition, LogEnd]) -> dict[TopicPartition, int]:
        """The epochs of leaders that are newer than those that are read from."""
        newer = {}
        for (topic, partition), known in self.epochs.items():
            epoch = ends[topic, partition].leader_epoch
            if epoch is not None and epoch > known:
                newer[topic, partition] = epoch
            if epoch is not None and epoch < known:
                self._watch.close()
                raise LogUnavailable(f"a former leader of partition {partition} of {topic!r} answered", 2)
        return newer

    def topics(self) -> memoryview:
        """See `LogWatch.topics`."""
        return self._watch.topics()

    def close(self) -> None:
        """Close the connections to the leaders."""
        self._watch.close()

    def wait(
        self, planned: Mapping[TopicPartition, int], is_ending: Callable[[], bool]
    ) -> dict[TopicPartition, int]:
        """As `end_offsets`, repeated while no leader has all below `planned`, unless `is_ending`.

        It is called before the first row below these offsets is read: none is then of a leader that the lanes
        were not compared with, or the next call reports a change.
        """
        until_s = self._clock.monotonic_s() + ELECTION_S
        while True:
            try:
                return self._reached(planned)
            except Unavailable:
                if is_ending() or self._clock.monotonic_s() > until_s:
                    raise
                self._clock.pause_s(_PAUSE_S)

    def wait_for_new(
        self, planned: Mapping[TopicPartition, int], changed: LeaderChanged, is_ending: Callable[[], bool]
    ) -> None:
        """As `wait`, after a reader has met a new leader. Raises `changed` where it can't be followed."""
        if self._follow is None:
            raise changed
        self._watch.close()  # its leaders may be the former ones
        self._clock.pause_s(_PAUSE_S)
        self.wait(planned, is_ending)

    def _reached(self, planned: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        ends = self.end_offsets()
        for (topic, partition), offset in planned.items():
            if ends[topic, partition] < offset:
                # Another broker has planned the batch: one of the two no longer leads.
                self._watch.close()
                raise LogUnavailable(f"partition {partition} of {topic!r} ends before {offset}", 2)
        return ends
