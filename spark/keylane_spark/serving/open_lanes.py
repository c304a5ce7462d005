"""Opens all lanes of some layouts, and finds where each partition is read from.

A partition is read if any of its lanes is open; in a topic with strays, if its first lane is: it notes the
strays that the partition gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from keylane.errors import StateUnavailable
from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout
from keylane_spark.lanes.lane import LaneStart, LaneTarget, lost_strays
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.stream.openings import Opening, WriterSpec


@dataclass(frozen=True, slots=True)
class Losses:
    """What logs have lost. `lost`: partitions that have lost their first records.

    `mixed`: topics of which a lane may lack what another partition has lost.
    """

    lost: Collection[TopicPartition]
    mixed: Collection[str]

    @property
    def incomplete(self) -> set[TopicPartition | str]:
        """The partitions that lost records; of topics in `mixed` all: lanes hold keys of any partition."""
        return {*self.lost, *({topic for topic, _ in self.lost} & set(self.mixed))}


@dataclass(slots=True)
class _LanesFound:
    """What the lanes have said. `held`: the offsets below which they may hold records of a partition."""

    strays: set[str]
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    held: Counter[TopicPartition] = field(default_factory=Counter)
    incomplete: set[TopicPartition] = field(default_factory=set)
    lacking: set[TopicPartition] = field(default_factory=set)

    def note(self, lane: LaneTarget, start: LaneStart, partition_count: int) -> None:
        """Note how a lane of a topic with so many partitions begins."""
        own = lane.topic, lane.partition
        self.positions[own] = min(start.next_offset, self.positions.get(own, start.next_offset))
        self.held[own] = max(start.next_offset, self.held[own])
        for source_partition, to in start.taken.items():
            self.held[lane.topic, source_partition] = max(to, self.held[lane.topic, source_partition])
        if start.incomplete:
            self.incomplete.add(own)
        if start.may_lack_strays:
            self.lacking.add(own)
        is_beyond = lane.partition >= partition_count
        if start.has_strays or start.given or is_beyond:
            self.strays.add(lane.topic)


@dataclass(frozen=True, slots=True)
class LanesOpener:
    """Opens lanes by one writer. `oldest`: the first offset of each partition that Kafka has."""

    writer: LaneWriter
    parked: ParkedSlots
    oldest: Mapping[TopicPartition, int]
    losses: Losses
    say: Callable[[str], None]

    def open(self, spec: WriterSpec, noted: Collection[str]) -> Opening:
        """Open all lanes of the layouts, and those of partitions by which a topic has grown.

        `noted`: topics that may have strays, as far as the totals say. Raises StateUnavailable if all lanes
        are parked.
        """
        layouts, mixed = spec.layouts, set(self.losses.mixed)
        guarded = {topic for topic, layout in layouts.items() if layout.options.guarded}
        found = _LanesFound(guarded | set(noted))
        starts = self._start_lanes(layouts)
        for lane, start in starts.items():
            found.note(lane, start, layouts[lane.topic].partition_count)
        unread = _unread(starts, {source for source in self.oldest if source[0] in layouts}, found.strays)
        found.incomplete |= _spread_incomplete(self.writer, starts, found.strays | mixed)
        self._read_again(starts, found)
        for partition in unread:
            found.positions.pop(partition, None)
        return Opening(
            spec,
            found.positions,
            sorted(found.incomplete),
            frozenset(found.strays),
            frozenset(found.lacking - unread),
            found.held,
            parked=self.parked,
            unread=unread,
            starts=starts,
        )

    def _start_lanes(self, layouts: Mapping[str, Layout]) -> dict[LaneTarget, LaneStart]:
        lanes = [
            (lane, offset)
            for (topic, partition), offset in self.oldest.items()
            if topic in layouts
            for lane in LaneTarget.of_partition(layouts[topic], partition)
        ]
        lost = self.losses.incomplete
        incomplete = {lane for lane, _ in lanes if lane.topic in lost or (lane.topic, lane.partition) in lost}
        starts = self.writer.open(lanes, incomplete)
        if lanes and not starts:
            why = next(iter(self.parked.reasons.values()), "")
            raise StateUnavailable(f"no lane can be opened: {why}", 10)
        return starts

    def _read_again(self, starts: Mapping[LaneTarget, LaneStart], found: _LanesFound) -> None:
        """Read partitions again from where a lane has lost strays of them."""
        for lane, source_partition, offset, _ in lost_strays(starts):
            source = lane.topic, source_partition
            self.say(f"lane {lane} has lost strays: partition {source_partition} is read again from {offset}")
            found.positions[source] = min(found.positions[source], max(offset, self.oldest[source]))
            if offset < self.oldest[source] and source in self.losses.lost:
                self.writer.mark_incomplete([lane])
                found.incomplete.add((lane.topic, lane.partition))


def _unread(
    starts: Collection[LaneTarget], partitions: Collection[TopicPartition], strays: Collection[str]
) -> frozenset[TopicPartition]:
    """Return the partitions that can't be read."""
    opened = {(lane.topic, lane.partition) for lane in starts}
    opened_first = {(lane.topic, lane.partition) for lane in starts if lane.stripe == 0}
    return frozenset(
        source for source in partitions if source not in (opened_first if source[0] in strays else opened)
    )


def _spread_incomplete(
    writer: LaneWriter, starts: Mapping[LaneTarget, LaneStart], mixed: Collection[str]
) -> set[TopicPartition]:
    """Mark all lanes of a topic in `mixed` as incomplete where one of them is; return their partitions.

    What retention removed unread may have been strays, for any of them. The flag of the lane that jumped
    stays, so a start that ends in between leaves the rest to the next one.
    """
    short = {lane.topic for lane, start in starts.items() if start.incomplete} & set(mixed)
    lanes = [lane for lane in starts if lane.topic in short]
    writer.mark_incomplete(lane for lane in lanes if not starts[lane].incomplete)
    return {(lane.topic, lane.partition) for lane in lanes}
