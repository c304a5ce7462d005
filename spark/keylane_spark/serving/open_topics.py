"""How a writer begins: an epoch for each topic, its layout, and every lane taken at its own watermark.

The watermarks are the checkpoint. Wherever Spark's own stands, or if it is lost, the state says what it
holds, and the query begins at just that: what a failover lost is read again, what is there is not. Strays
that a lane has lost are read again from the partition that gave them, whatever that one's watermark says.

A start in order (whatever it is broken off after, the next one does the same again):

1. One epoch for all topics, above every counter: from here on older writers are refused.
2. For each topic the plan: what is served, what is built beside it, what is removed.
3. The topic's record with all that, and this run as its owner; the layout, where it changes at once.
4. The lanes of what is served, then those of what is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import UnknownTopic
from keylane_spark.adapters.lane import LaneTarget, lost_strays
from keylane_spark.generations.epochs import RECREATED, Gone, Subject, is_recreated, put_on_record, with_epoch
from keylane_spark.generations.plan import wanted_layout
from keylane_spark.stream.openings import Opening, Openings, Writer, lanes_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from keylane.model.records import Layout
    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.adapters.kafka_admin import TopicShape
    from keylane_spark.adapters.lane_writer import LaneWriter
    from keylane_spark.adapters.topic_record import TopicRecord
    from keylane_spark.context import Parts
    from keylane_spark.generations.ownership import Ownership
    from keylane_spark.generations.plan import Plan


def open_topics(parts: Parts, ownership: Ownership) -> Openings:
    """Take all topics of the config that there are.

    Raises UnknownTopic (at the first start if any is missing, later if all are), Fenced, LogUnavailable,
    StateUnavailable, CorruptState, WriterError.
    """
    topics = parts.config.topics
    shapes = parts.broker.describe(topics)
    missing = [topic for topic in topics if topic not in shapes]
    if missing and not (ownership.has_begun and shapes):
        raise UnknownTopic(missing[0], "Kafka has no topic of this name")
    for topic in missing:
        parts.say(f"topic {topic!r} is away: its state stays as it is until the topic is back")
    cluster = Cluster(parts.redis)

    def attempt(epoch: int, anew: Mapping[str, str]) -> Openings:
        return _Start(parts, ownership, cluster, shapes, epoch, anew).open()

    try:
        openings = with_epoch(ownership, shapes, attempt, has_begun=ownership.has_begun)
    finally:
        cluster.close()
    ownership.has_begun = True
    return openings


@dataclass(frozen=True, slots=True)
class _Start:
    """One try, with one epoch. `anew`: topics whose state can't be used, and why."""

    parts: Parts
    ownership: Ownership
    cluster: Cluster
    shapes: Mapping[str, TopicShape]
    epoch: int
    anew: Mapping[str, str]

    def open(self) -> Openings:
        counts = {topic: shape.partition_count for topic, shape in self.shapes.items()}
        oldest = self.parts.broker.oldest_offsets(counts)
        plans: dict[str, Plan] = {}
        lost: set[TopicPartition] = set()
        for topic, count in counts.items():
            first = tuple(oldest[topic, partition] for partition in range(count))
            plans[topic], began = self._begin(topic, first)
            lost |= {(topic, partition) for partition in range(count) if first[partition] > began[partition]}
        served = {topic: each.serving for topic, each in plans.items()}
        mixed = {topic for topic, layout in served.items() if counts[topic] > layout.partition_count}
        serving = self._take(served, oldest, _incomplete(lost, mixed))
        self._check_ends(serving, counts)
        built = {topic: each.building for topic, each in plans.items() if each.building}
        if not built:
            return Openings(serving, None, self.shapes)
        mixed = set(serving.strays) | {topic for topic, new in built.items() if _moves(served[topic], new)}
        return Openings(serving, self._take(built, oldest, _incomplete(lost, mixed)), self.shapes)

    def _begin(self, topic: str, oldest: tuple[int, ...]) -> tuple[Plan, tuple[int, ...]]:
        """Plan what to do with the topic, and put it on record; the plan, and where the state began."""
        shape = self.shapes[topic]

        def unusable(kept: Layout | None, record: TopicRecord | None) -> str:
            if is_recreated(record, shape.topic_id):
                return f"it was {RECREATED}"
            if kept and kept.partition_count > shape.partition_count and not self.anew.get(topic):
                return f"it has {shape.partition_count} partitions, its state {kept.partition_count}"
            return ""

        subject = Subject(
            name=topic,
            title=f"topic {topic!r}",
            topic_id=shape.topic_id,
            oldest=oldest,
            wanted=lambda _: wanted_layout(topic, shape.partition_count, self.parts.config.topics[topic]),
            unusable=unusable,
            supersede=lambda kept: self._lanes({}).supersede(lanes_of(kept)),
        )
        begun = put_on_record(subject, self.ownership, self.epoch, self.parts.say, self.anew.get(topic, ""))
        return begun.plan, begun.began

    def _take(
        self,
        layouts: Mapping[str, Layout],
        oldest: Mapping[TopicPartition, int],
        lost: Collection[TopicPartition | str],
    ) -> Opening:
        """Open all lanes of these layouts, those of partitions by which a topic has grown among them.

        `lost`: partitions, or whole topics, without their first records.
        """
        lanes = [
            (LaneTarget.of(layouts[topic], partition, stripe), offset)
            for (topic, partition), offset in oldest.items()
            if topic in layouts
            for stripe in range(layouts[topic].stripes)
        ]
        incomplete_lanes = {
            lane for lane, _ in lanes if lane.topic in lost or (lane.topic, lane.partition) in lost
        }
        positions: dict[TopicPartition, int] = {}
        incomplete: set[TopicPartition] = set()
        strays = {topic for topic, layout in layouts.items() if layout.options.guarded}
        writer = self._lanes(layouts)
        starts = writer.open(lanes, incomplete_lanes)
        for lane, start in starts.items():
            place = lane.topic, lane.partition
            positions[place] = min(start.next_offset, positions.get(place, start.next_offset))
            if start.incomplete:
                incomplete.add(place)
            if start.has_strays or lane.partition >= layouts[lane.topic].partition_count:
                strays.add(lane.topic)
        for lane, source, offset in lost_strays(starts):
            place = lane.topic, source
            self.parts.say(f"lane {lane} has lost strays: partition {source} is read again from {offset}")
            positions[place] = min(positions[place], max(offset, oldest[place]))
            if offset < oldest[place] and place in lost:
                writer.mark_incomplete([lane])
                incomplete.add((lane.topic, lane.partition))
        return Opening(self._writer(layouts), positions, sorted(incomplete), frozenset(strays))

    def _lanes(self, layouts: Mapping[str, Layout]) -> LaneWriter:
        return self._writer(layouts).lanes(self.cluster, self.parts.clock, self.parts.say)

    def _writer(self, layouts: Mapping[str, Layout]) -> Writer:
        job = self.parts.config.job
        return Writer(
            self.parts.redis,
            layouts,
            self.epoch,
            job.redis_patience_s,
            job.wait_replicas,
            job.wait_timeout_ms,
        )

    def _check_ends(self, opening: Opening, counts: Mapping[str, int]) -> None:
        ends = self.parts.broker.highest_offsets(counts)
        gone = {
            topic: f"partition {partition} ends at {ends[topic, partition]}, "
            f"but its state holds all below {position}"
            for (topic, partition), position in opening.positions.items()
            if position > ends[topic, partition]
        }
        if gone:
            raise Gone(gone)


def _incomplete(lost: Collection[TopicPartition], mixed: Collection[str]) -> set[TopicPartition | str]:
    """Partitions without their first records, and topics of `mixed` as a whole: keys may be from any."""
    return {*lost, *({topic for topic, _ in lost} & set(mixed))}


def _moves(old: Layout, new: Layout) -> bool:
    """Whether a key's partition may be another one in the new layout."""
    before, after = (
        (layout.partition_count, layout.partitioner, layout.partition_by) for layout in (old, new)
    )
    return before != after
