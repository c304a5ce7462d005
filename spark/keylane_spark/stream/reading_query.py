"""How far a query over topics has read and written each partition, and which partitions go no further.

Where a shard takes no writes, its lanes are parked: Spark reads on, and their rows are skipped until all
lanes are opened again. The position of a partition stays where it is from the batch on that

- could not be written into any of its lanes, or
- has a stray for a parked lane, or an event whose schema can't be read: the partition is held back.

Where a topic's transform fails on a record, and stops at such, the partition's position stays there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from keylane.errors import TopicChanged
from keylane.model.kafka import TopicPartition
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.stream.batch_query import BatchQuery
from keylane_spark.stream.freshness import ObservedEnds
from keylane_spark.stream.openings import Opening
from keylane_spark.stream.partition_chunks import PartitionResult


class ReadingQuery(BatchQuery):
    """What a query and its heartbeat share. Only Spark's thread moves positions, and it alone adds strays.

    `parked`: slots whose lanes are left out. `unread`: partitions without a position, which have been parked
    since the lanes were opened. `held_back`: partitions that go no further, and why. `strays`: topics with
    strays: each of their lanes is only as complete as all partitions of the topic. `lacking`: partitions
    whose lanes may lack strays, until all partitions of the topic were read once. `doubted`: partitions with
    lanes that may hold deleted keys, and are marked. `stopped`: partitions that a transform has stopped, each
    with the offset: their lanes have all records below it.
    """

    def __init__(self, name: str, title: str, checkpoint: Path, opening: Opening) -> None:
        super().__init__(name, title, checkpoint)
        self._writer = opening.writer
        self._positions: dict[TopicPartition, int] = dict(opening.positions)
        self._freshness = ObservedEnds()
        self.held_back: dict[TopicPartition, str] = {}
        self.parked = opening.parked
        self.unread = opening.unread
        self.strays = set(opening.strays)
        self.lacking = set(opening.lacking)
        self.doubted = frozenset(opening.missed_deletions)
        self.stopped: dict[TopicPartition, int] = {}

    @abstractmethod
    def check_topics(self) -> None:
        """Raise TopicChanged when the topics are not as they were."""

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition; everything below it is in the lanes."""
        return self._positions.copy()

    @property
    def stuck(self) -> set[TopicPartition]:
        """Partitions that go no further: those held back, and those whose lanes are all parked."""
        return self.held_back.keys() | (self._parked(all) if self.parked else set())

    @property
    def no_further(self) -> set[TopicPartition]:
        """Partitions that no batch reads: those that are stuck, and those that a transform has stopped."""
        return self.stuck | self.stopped.keys()

    @property
    def left_out(self) -> set[TopicPartition]:
        """Partitions of which any lane is parked, and those held back: their lanes are behind."""
        return self.held_back.keys() | (self._parked(any) | self.unread if self.parked else set())

    def _parked(self, which: Callable[[Iterable[bool]], bool]) -> set[TopicPartition]:
        """The partitions of which `which` (all, any) of the lanes are parked."""
        return {
            (topic, number)
            for topic, number in self._positions
            if which(
                lane.slot in self.parked
                for lane in LaneTarget.of_partition(self._writer.layouts[topic], number)
            )
        }

    def ranges_to(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
        """What a batch with these ends covers of each partition that has one and goes further.

        Raises TopicChanged for partitions that are new.
        """
        new = sorted(ends.keys() - self._positions.keys())
        if new:
            raise TopicChanged(f"there are new partitions: {new}")
        ranges, no_further, complete = {}, self.no_further, self._freshness.complete_as_of(ends)
        # Lanes of a topic with strays are marked by the heartbeat, once all partitions are written. So are
        # those that may hold deleted keys: it sees that a failover has taken back what says so.
        left_to_it = self.lacking | self.doubted
        for partition, begin in self._positions.items():
            if partition not in ends or partition in no_further:
                continue
            complete_ms, log_end = complete[partition]
            if partition[0] in self.strays or partition in left_to_it:
                complete_ms = 0
            ranges[partition] = OffsetRange(begin, ends[partition], complete_ms, log_end)
        return ranges

    def reach(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        results: Mapping[TopicPartition, PartitionResult],
    ) -> None:
        """Move the positions to the ends of these ranges, or to where the partitions stop.

        Partitions that are held back are skipped from now on.
        """
        held_back = {source: each.held_back for source, each in results.items() if each.held_back}
        stopped = {source: each.stopped_at for source, each in results.items() if each.is_stopped}
        self.stopped |= {source: at for source, at in stopped.items() if source not in held_back}
        for (topic, partition), why in held_back.items():
            self.say(f"holds partition {partition} of topic {topic!r} back: {why}")
        self.held_back |= held_back
        stuck = self.stuck
        self._positions |= {
            source: self.stopped.get(source, each.end)
            for source, each in ranges.items()
            if source not in stuck
        }
        self._freshness.reached(self._positions)
