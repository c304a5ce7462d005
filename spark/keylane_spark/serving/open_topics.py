"""How a writer begins: an epoch for each topic, its layout, and every lane at its own watermark.

The watermarks are the checkpoint: the query begins at the offsets that the state holds, even if Spark's own
checkpoint is lost or older. So the job re-reads the records that a failover lost, and no others. It re-reads
strays that a lane has lost from their source partition, whatever that partition's watermark says.

The steps of a start; after a crash at any of them the next start does the same again:

1. One epoch for all topics, above every counter: from here on older writers are refused.
2. For each topic a plan: what is served, what is built beside it, what is removed.
3. The topic's record with the plan, and with this run as the owner; the layout, if it changes at once.
4. The lanes of what is served, then the lanes of what is built.
5. The comparison of what the lanes hold with the log: see `generations.lineage`. A state that holds records
   which the log has lost begins again, as a new generation. Else the present leaders go on record.
6. The search for lanes that may hold deleted keys: see `serving.missed_deletions`.

Where a shard takes no writes, its lanes are parked, and all others are opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from keylane.errors import BadConfig, StateUnavailable, UnknownTopic
from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout
from keylane_spark.config.topics import TopicConfig
from keylane_spark.config.transforms import Transform
from keylane_spark.context import JobContext
from keylane_spark.generations.epochs import (
    RECREATED,
    BegunState,
    StateAhead,
    StoredState,
    begin_state,
    is_recreated,
    open_with_epoch,
)
from keylane_spark.generations.lineage import LogCheck, last_epochs
from keylane_spark.generations.ownership import Ownership
from keylane_spark.generations.plan import wanted_layout
from keylane_spark.lanes.cluster import Cluster, check_eviction_policy
from keylane_spark.lanes.lane import lanes_of
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.lanes.old_libraries import remove_old_libraries
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.lanes.topic_record import TopicRecord
from keylane_spark.log.kafka_admin import TopicShape
from keylane_spark.rows.record_function import read_code
from keylane_spark.rows.transforms import TopicTransform
from keylane_spark.serving.missed_deletions import MissedDeletions
from keylane_spark.serving.open_lanes import LanesOpener, Losses
from keylane_spark.serving.parking import writable_slots
from keylane_spark.stream.openings import Opening, Openings, WriterSpec

_CREATED_WITHIN_S = 10.0
_CREATED_POLL_S = 0.1


def open_topics(
    context: JobContext, ownership: Ownership, parked_before: ParkedSlots | None = None
) -> Openings:
    """Open the lanes of all topics of the config that exist.

    `parked_before`: the parked slots of the opening before this one. Those that still take no writes are left
    out at once.

    Raises UnknownTopic (at the first start if any topic is missing that the process has not served before,
    later if all are), BadConfig for a Redis that evicts keys, a topic that Kafka refuses to create and a new
    one of too many lanes, Fenced, LogUnavailable, StateUnavailable, CorruptState, WriterError.
    """
    topics = context.config.topics
    shapes = context.broker.describe(topics)
    missing = [topic for topic in topics if topic not in shapes]
    if missing and context.config.job.create_topics and not ownership.has_begun:
        shapes = _create(context, set(missing))
        missing = [topic for topic in topics if topic not in shapes]
    new = [] if ownership.has_begun else [topic for topic in missing if topic not in context.served]
    if new or (missing and not shapes):
        raise UnknownTopic((new or missing)[0], "Kafka has no topic of this name")
    for topic in missing:
        context.say(f"topic {topic!r} is missing in Kafka: its state stays as it is until the topic is back")
    with contextlib.closing(Cluster(context.redis)) as cluster:
        check_eviction_policy(cluster, context.clock)
        parked, deletions = (
            _still_parked(context, parked_before),
            MissedDeletions(context, ownership, cluster),
        )
        opener = _TopicsOpener(context, ownership, cluster, shapes, parked, deletions)
        openings = open_with_epoch(ownership, shapes, opener.open, has_begun=ownership.has_begun)
        if not ownership.has_begun:
            remove_old_libraries(cluster, context.clock)
    ownership.has_begun = True
    return openings


def _create(context: JobContext, missing: set[str]) -> dict[str, TopicShape]:
    """Create topics, and return the shapes of all topics once the brokers know these."""
    topics = {name: context.config.topics[name].created_as for name in sorted(missing)}
    context.broker.create_topics(topics)
    for name, each in topics.items():
        context.say(f"topic {name!r} is created with {each.partition_count} partitions")
    until_s = context.clock.monotonic_s() + _CREATED_WITHIN_S
    while True:
        shapes = context.broker.describe(context.config.topics)
        if not missing - shapes.keys() or context.clock.monotonic_s() > until_s:
            return shapes
        context.clock.pause_s(_CREATED_POLL_S)


@dataclass(frozen=True)
class _TopicState(StoredState):
    """A topic's state. `unusable`: why it was found unusable before, if so."""

    lanes: LaneWriter
    config: TopicConfig
    unusable: str

    def wanted(self, kept: Layout | None) -> Layout:  # noqa: ARG002
        return wanted_layout(self.name, len(self.oldest), self.config)

    def why_unusable(self, kept: Layout | None, record: TopicRecord | None) -> str:
        if is_recreated(record, self.topic_id):
            return f"it was {RECREATED}"
        if kept and kept.partition_count > len(self.oldest) and not self.unusable:
            return f"it has {len(self.oldest)} partitions, its state {kept.partition_count}"
        return ""

    def supersede(self, kept: Layout) -> None:
        self.lanes.supersede(lanes_of(kept))


@dataclass(frozen=True, slots=True)
class _TopicsOpener:
    """Opens the lanes of all topics with one epoch."""

    context: JobContext
    ownership: Ownership
    cluster: Cluster
    shapes: Mapping[str, TopicShape]
    parked: ParkedSlots
    deletions: MissedDeletions
    had_strays: set[str] = field(default_factory=set)
    """Topics with strays whose state begins again: what one partition has lost, any lane may lack."""

    def open(self, epoch: int, unusable: Mapping[str, str]) -> Openings:
        """Open them; `unusable`: topics that begin again, and why. Raises Fenced, StateAhead, StateStale."""
        counts = {topic: shape.partition_count for topic, shape in self.shapes.items()}
        oldest = self.context.broker.oldest_offsets(counts)
        begun: dict[str, BegunState] = {}
        lost: set[TopicPartition] = set()
        for topic, count in counts.items():
            first = tuple(oldest[topic, partition] for partition in range(count))
            begun[topic] = self._begin(topic, first, epoch, unusable.get(topic, ""))
            began = begun[topic].began
            lost |= {(topic, partition) for partition in range(count) if first[partition] > began[partition]}
        served = {topic: each.plan.serving for topic, each in begun.items()}
        noted = self._may_have_strays(served)
        grown = {topic for topic, layout in served.items() if counts[topic] > layout.partition_count}
        mixed = noted | grown | self.had_strays
        serving = self._open_lanes(self._spec(served, epoch), oldest, Losses(lost, mixed), noted)
        built = {topic: each.plan.building for topic, each in begun.items() if each.plan.building}
        if not built:
            (serving,) = self._checked([serving], begun)
            serving = self.deletions.check(serving, None, begun, oldest)
            return Openings(serving, None, self.shapes)
        mixed = set(serving.strays) | {
            topic for topic, new in built.items() if _moves_keys(served[topic], new)
        }
        noted = self._may_have_strays(built)
        building = self._open_lanes(self._spec(built, epoch), oldest, Losses(lost, mixed), noted)
        serving, building = self._checked([serving, building], begun)
        serving = self.deletions.check(serving, building, begun, oldest)
        self.deletions.warn_of_rebuilds(serving, building, begun, building.strays | mixed)
        return Openings(serving, building, self.shapes)

    def _begin(self, topic: str, oldest: tuple[int, ...], epoch: int, unusable: str) -> BegunState:
        state = _TopicState(
            name=topic,
            title=f"topic {topic!r}",
            topic_id=self.shapes[topic].topic_id,
            oldest=oldest,
            lanes=self._lane_writer(self._spec({}, epoch)),
            config=self.context.config.topics[topic],
            unusable=unusable,
        )
        stale = self.deletions.reasons.get(topic, "")
        return begin_state(state, self.ownership, epoch, self.context.say, unusable, stale)

    def _open_lanes(
        self,
        spec: WriterSpec,
        oldest: Mapping[TopicPartition, int],
        losses: Losses,
        noted: Collection[str],
    ) -> Opening:
        """Open the lanes. `noted`: topics that may have strays, as far as the totals say."""
        writer = spec.lanes(self.cluster, self.context.clock, self.context.say, self.parked)
        opener = LanesOpener(writer, self.parked, oldest, losses, self.context.say)
        return opener.open(spec, noted)

    def _may_have_strays(self, layouts: Mapping[str, Layout]) -> set[str]:
        """The topics of which the totals have strays; all, where the totals can't be read."""
        try:
            return {topic for topic, layout in layouts.items() if self.ownership.has_strays(layout)}
        except StateUnavailable:
            # The shard of the totals is away, and perhaps the lanes that would say so.
            return set(layouts)

    def _spec(self, layouts: Mapping[str, Layout], epoch: int) -> WriterSpec:
        context = self.context
        transforms = {
            topic: _transform_of(layout, context.config.topics[topic])
            for topic, layout in layouts.items()
            if layout.options.transform is not None
        }
        return WriterSpec(context.redis, layouts, epoch, context.write_options, context.registry, transforms)

    def _lane_writer(self, spec: WriterSpec) -> LaneWriter:
        return spec.lanes(self.cluster, self.context.clock, self.context.say)

    def _checked(self, openings: list[Opening], begun: Mapping[str, BegunState]) -> list[Opening]:
        """The openings with the leaders that have all their records. Raises StateAhead, LogUnavailable."""
        held = {
            source: max(opening.held.get(source, 0) for opening in openings) for source in openings[0].held
        }
        lineages = {
            (topic, partition): lineage
            for topic, each in begun.items()
            for partition, lineage in enumerate(each.lineages)
        }
        counts = {topic: shape.partition_count for topic, shape in self.shapes.items()}
        check = LogCheck(held, lineages, self.context.broker.ends(counts), self.context.epoch_ends)
        truncated = check.find_truncated()
        if truncated:
            self.had_strays.update(truncated.keys() & openings[0].strays)
            raise StateAhead(truncated)
        extended = check.continued(lambda: self.context.broker.ends(counts))
        # What a parked lane holds is not known: it is compared later, by the lineage that it has now.
        parked = {source for opening in openings for source in opening.parked_partitions}
        known = extended | {source: lineages.get(source, ()) for source in parked}
        for topic, count in counts.items():
            of_topic = tuple(known.get((topic, partition), ()) for partition in range(count))
            self.ownership.note_lineages(topic, of_topic)
        epochs = last_epochs(extended)
        ids = {topic: shape.topic_id for topic, shape in self.shapes.items()}
        return [replace(opening, leader_epochs=epochs, topic_ids=ids) for opening in openings]


def _transform_of(layout: Layout, config: TopicConfig) -> TopicTransform:
    """How the transform of a layout is run: the config may have another one by now."""
    definition = Transform.from_json(layout.options.transform or "{}")
    if definition.function is None:
        return TopicTransform(definition, config.on_error)
    try:
        return TopicTransform(definition, config.on_error, read_code(definition.function))
    except BadConfig as error:
        return TopicTransform(definition, fault=str(error))


def _still_parked(context: JobContext, before: ParkedSlots | None) -> ParkedSlots:
    if not before:
        return ParkedSlots()
    slots = before.reasons.keys()
    return before.only(slots - writable_slots(context.redis, context.clock, slots))


def _moves_keys(old: Layout, new: Layout) -> bool:
    """Whether a key may belong to another partition in the new layout."""
    before, after = (
        (layout.partition_count, layout.partitioner, layout.partition_by) for layout in (old, new)
    )
    return before != after
