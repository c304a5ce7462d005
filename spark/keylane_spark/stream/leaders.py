"""Watches the leaders of partitions: a query reads only from those that its lanes were compared with.

A new leader may lack records that the lanes have, or that Spark's consumers have fetched ahead. So a query
ends at each change of a leader. The lanes are then opened again and compared with the log, see
`generations.lineage`, and new consumers read on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from keylane.errors import LogUnavailable, TopicChanged, Unavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.context import JobContext

_ELECTION_S = 30.0
"""How long a batch waits for a partition that has no leader."""
_PAUSE_S = 0.1


class Leaders:
    """The leaders of partitions. Thread-safe."""

    def __init__(
        self, context: JobContext, counts: Mapping[str, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """`counts`: partition counts by topic; `epochs`: the known leader epochs, of other topics too."""
        self._watch = context.watch(counts)
        self._clock = context.clock
        self._epochs = {source: epoch for source, epoch in epochs.items() if source[0] in counts}

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The end offset of each partition, from the same leaders as before.

        Raises TopicChanged for a newer leader, LogUnavailable for an older or no one.
        """
        ends = self._watch.ends()
        for (topic, partition), known in self._epochs.items():
            epoch = ends[topic, partition].leader_epoch
            if epoch is not None and epoch > known:
                raise TopicChanged(
                    f"partition {partition} of topic {topic!r} has a new leader, "
                    f"of epoch {epoch} after {known}"
                )
            if epoch is not None and epoch < known:
                self._watch.close()
                raise LogUnavailable(f"a former leader of partition {partition} of {topic!r} answered", 2)
        return {partition: end.offset for partition, end in ends.items()}

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
        until_s = self._clock.monotonic_s() + _ELECTION_S
        while True:
            try:
                return self._reached(planned)
            except Unavailable:
                if is_ending() or self._clock.monotonic_s() > until_s:
                    raise
                self._clock.pause_s(_PAUSE_S)

    def _reached(self, planned: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        ends = self.end_offsets()
        for (topic, partition), offset in planned.items():
            if ends[topic, partition] < offset:
                # Another broker has planned the batch: one of the two no longer leads.
                self._watch.close()
                raise LogUnavailable(f"partition {partition} of {topic!r} ends before {offset}", 2)
        return ends
