"""How a view's writer begins: as a topic's, but that each lane itself stores which records it has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import UnknownTopic
from keylane.model.records import Layout, Options
from keylane.state.windows import Definition, Progress, state_name
from keylane_spark.adapters.view_lanes import ViewLanes, ViewLaneState
from keylane_spark.generations.epochs import (
    RECREATED,
    StateAhead,
    begin_state,
    is_recreated,
    open_with_epoch,
)
from keylane_spark.views.view_writer import ViewWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane_spark.adapters.kafka_admin import TopicShape
    from keylane_spark.adapters.lane import LaneTarget
    from keylane_spark.adapters.topic_record import TopicRecord
    from keylane_spark.config.views import ViewConfig
    from keylane_spark.context import JobContext
    from keylane_spark.generations.ownership import Ownership
    from keylane_spark.views.view_writer import Offsets


@dataclass(frozen=True, slots=True)
class ViewOpening:
    """A view's opened lanes.

    `replaced`: the layout that readers go by until this one is complete, if there is one. `incomplete`:
    partitions whose records were lost before the view had seen them.
    """

    name: str
    view: Definition
    layout: Layout
    replaced: Layout | None
    epoch: int
    shape: TopicShape
    writer: ViewWriter
    lanes: ViewLanes
    cluster: Cluster
    incomplete: tuple[int, ...]

    @property
    def behind(self) -> dict[Offsets, list[LaneTarget]]:
        """The lanes that have not reached the furthest offsets, by the offsets that they have reached."""
        by_offsets: dict[Offsets, list[LaneTarget]] = {}
        for lane, state in self.writer.states.items():
            by_offsets.setdefault(state.progress.offsets, []).append(lane)
        by_offsets.pop(self.furthest, None)
        return by_offsets

    @property
    def furthest(self) -> Offsets:
        """The offset of each partition that the furthest lane has reached."""
        every = [state.progress.offsets for state in self.writer.states.values()]
        return tuple(max(offsets) for offsets in zip(*every, strict=True))


def open_view(context: JobContext, ownership: Ownership, name: str, *, has_begun: bool) -> ViewOpening:
    """Open the view's lanes. Raises UnknownTopic, Fenced, LogUnavailable, StateUnavailable, CorruptState."""
    topic = context.config.views[name].topic
    shapes = context.broker.describe([topic])
    if topic not in shapes:
        raise UnknownTopic(topic, f"Kafka has no topic of this name, which view {name!r} reads")
    cluster = Cluster(context.redis)
    try:
        opener = _ViewOpener(context, ownership, cluster, name, shapes[topic])
        return open_with_epoch(ownership, [state_name(name)], opener, has_begun=has_begun)
    except BaseException:
        cluster.close()
        raise


@dataclass(frozen=True, slots=True)
class _ViewState:
    """A view's state as `begin_state` takes it."""

    opener: _ViewOpener
    epoch: int
    oldest: Offsets

    @property
    def name(self) -> str:
        return state_name(self.opener.name)

    @property
    def title(self) -> str:
        return f"view {self.opener.name!r}"

    @property
    def topic_id(self) -> str:
        return self.opener.shape.topic_id

    def wanted(self, kept: Layout | None) -> Layout:
        config = self.opener.config
        own_count = kept.partition_count if kept else self.opener.shape.partition_count
        options = Options(index=True, view=config.definition.to_json())
        return Layout(self.name, config.partitions or own_count, options=options)

    def why_unusable(self, _: Layout | None, record: TopicRecord | None) -> str:
        topic = self.opener.config.topic
        return f"topic {topic!r} was {RECREATED}" if is_recreated(record, self.topic_id) else ""

    def supersede(self, kept: Layout) -> None:
        ViewLanes(kept, self.opener.context.library(self.opener.cluster), self.epoch).supersede()


@dataclass(frozen=True, slots=True)
class _ViewOpener:
    """Opens the lanes of one view with one epoch: an `epochs.Opener`."""

    context: JobContext
    ownership: Ownership
    cluster: Cluster
    name: str
    shape: TopicShape

    @property
    def config(self) -> ViewConfig:
        return self.context.config.views[self.name]

    def open(self, epoch: int, unusable: Mapping[str, str]) -> ViewOpening:
        context, view = self.context, self.config.definition
        offsets = context.broker.oldest_offsets({view.topic: self.shape.partition_count})
        oldest = tuple(offsets[view.topic, partition] for partition in range(self.shape.partition_count))
        state = _ViewState(self, epoch, oldest)
        begun = begin_state(state, self.ownership, epoch, context.say, unusable.get(self.name, ""))
        layout = begun.plan.building or begun.plan.serving
        lanes = ViewLanes(layout, context.library(self.cluster), epoch, ttl_ms=view.ttl_ms)
        states, incomplete = _open_lanes(lanes, oldest, begun.began)
        opening = ViewOpening(
            name=self.name,
            view=view,
            layout=layout,
            replaced=begun.kept if begun.plan.building else None,
            epoch=epoch,
            shape=self.shape,
            writer=ViewWriter(view, layout, lanes, states, context.clock),
            lanes=lanes,
            cluster=self.cluster,
            incomplete=tuple(sorted(incomplete)),
        )
        self._check_ends(opening)
        return opening

    def _check_ends(self, opening: ViewOpening) -> None:
        topic = opening.view.topic
        ends = self.context.broker.highest_offsets({topic: self.shape.partition_count})
        for partition, position in enumerate(opening.furthest):
            if position > ends[topic, partition]:
                reason = (
                    f"partition {partition} of topic {topic!r} ends at {ends[topic, partition]}, "
                    f"but the view holds all below {position}"
                )
                raise StateAhead({self.name: reason})


def _open_lanes(
    lanes: ViewLanes, oldest: Offsets, began: Offsets
) -> tuple[dict[LaneTarget, ViewLaneState], set[int]]:
    """The lanes' states, none of them below what the log still has; and partitions that lost records."""
    states = lanes.open(Progress(began, (None,) * len(began)))
    incomplete: set[int] = set()
    short = []
    for lane, state in states.items():
        progress = state.progress
        offsets = progress.offsets + began[len(progress.offsets) :]
        lost = {p for p, (at, first) in enumerate(zip(offsets, oldest, strict=True)) if at < first}
        if lost:
            incomplete |= lost
            short.append(lane)
        times = progress.times_ms + (None,) * (len(offsets) - len(progress.times_ms))
        offsets = tuple(max(pair) for pair in zip(offsets, oldest, strict=True))
        states[lane] = replace(state, progress=replace(progress, offsets=offsets, times_ms=times))
    lanes.mark_incomplete(short)
    return states, incomplete
