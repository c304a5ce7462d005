"""How a view's writer begins: as a topic's, but that each lane tells itself which records it has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import UnknownTopic
from keylane.model.records import Layout, Options
from keylane.state.windows import Definition, Progress, state_name
from keylane_spark.adapters.view_lanes import Standing, ViewLanes
from keylane_spark.generations.epochs import RECREATED, Gone, Subject, is_recreated, put_on_record, with_epoch
from keylane_spark.views.view_writer import ViewWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane_spark.adapters.kafka_admin import TopicShape
    from keylane_spark.adapters.lane import LaneTarget
    from keylane_spark.adapters.topic_record import TopicRecord
    from keylane_spark.context import Parts
    from keylane_spark.generations.ownership import Ownership
    from keylane_spark.views.view_writer import Offsets


@dataclass(frozen=True, slots=True)
class ViewOpening:
    """A begun writer. `replaced`: the layout that readers go by until this one is whole, if there is one.

    `incomplete`: partitions with records that are lost before the view has seen them.
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
        """Lanes by the offsets at which they stand, those apart that stand furthest."""
        by_offsets: dict[Offsets, list[LaneTarget]] = {}
        for lane, standing in self.writer.standings.items():
            by_offsets.setdefault(standing.progress.offsets, []).append(lane)
        by_offsets.pop(self.furthest, None)
        return by_offsets

    @property
    def furthest(self) -> Offsets:
        """The offsets at which the lanes stand that are furthest."""
        every = [standing.progress.offsets for standing in self.writer.standings.values()]
        return tuple(max(offsets) for offsets in zip(*every, strict=True))


def open_view(parts: Parts, ownership: Ownership, name: str, *, has_begun: bool) -> ViewOpening:
    """Take the view's lanes. Raises UnknownTopic, Fenced, LogUnavailable, StateUnavailable, CorruptState."""
    topic = parts.config.views[name].topic
    shapes = parts.broker.describe([topic])
    if topic not in shapes:
        raise UnknownTopic(topic, f"Kafka has no topic of this name, of which view {name!r} is")
    cluster = Cluster(parts.redis)

    def attempt(epoch: int, anew: Mapping[str, str]) -> ViewOpening:
        return _open(parts, ownership, name, shapes[topic], epoch, cluster, anew.get(name, ""))

    try:
        return with_epoch(ownership, [state_name(name)], attempt, has_begun=has_begun)
    except BaseException:
        cluster.close()
        raise


def _open(  # noqa: PLR0917 (the start's own steps, one caller)
    parts: Parts,
    ownership: Ownership,
    name: str,
    shape: TopicShape,
    epoch: int,
    cluster: Cluster,
    anew: str,
) -> ViewOpening:
    config, state = parts.config.views[name], state_name(name)
    view = config.definition
    offsets = parts.broker.oldest_offsets({view.topic: shape.partition_count})
    oldest = tuple(offsets[view.topic, partition] for partition in range(shape.partition_count))

    def wanted(kept: Layout | None) -> Layout:
        count = config.partitions or (kept.partition_count if kept else shape.partition_count)
        return Layout(state, count, options=Options(index=True, view=view.to_json()))

    def unusable(_: Layout | None, record: TopicRecord | None) -> str:
        return f"topic {view.topic!r} was {RECREATED}" if is_recreated(record, shape.topic_id) else ""

    def supersede(kept: Layout) -> None:
        ViewLanes(kept, cluster, parts.clock, epoch, notify=parts.say).supersede()

    subject = Subject(state, f"view {name!r}", shape.topic_id, oldest, wanted, unusable, supersede)
    begun = put_on_record(subject, ownership, epoch, parts.say, anew)
    layout = begun.plan.building or begun.plan.serving
    lanes = ViewLanes(
        layout,
        cluster,
        parts.clock,
        epoch,
        ttl_ms=view.ttl_ms,
        patience_s=parts.config.job.redis_patience_s,
        notify=parts.say,
    )
    standings, incomplete = _stand(lanes, oldest, begun.began)
    writer = ViewWriter(view, layout, lanes, standings, parts.clock)
    replaced = begun.kept if begun.plan.building else None
    opening = ViewOpening(
        name, view, layout, replaced, epoch, shape, writer, lanes, cluster, tuple(sorted(incomplete))
    )
    _check_ends(parts, opening)
    return opening


def _stand(lanes: ViewLanes, oldest: Offsets, began: Offsets) -> tuple[dict[LaneTarget, Standing], set[int]]:
    """Where the lanes stand, none of them before what the log still has; partitions with lost records."""
    standings = lanes.open(Progress(began, (None,) * len(began)))
    incomplete: set[int] = set()
    short = []
    for lane, standing in standings.items():
        progress = standing.progress
        offsets = progress.offsets + began[len(progress.offsets) :]
        lost = {p for p, (at, first) in enumerate(zip(offsets, oldest, strict=True)) if at < first}
        if lost:
            incomplete |= lost
            short.append(lane)
        times = progress.times_ms + (None,) * (len(offsets) - len(progress.times_ms))
        offsets = tuple(max(pair) for pair in zip(offsets, oldest, strict=True))
        standings[lane] = replace(standing, progress=replace(progress, offsets=offsets, times_ms=times))
    lanes.mark_incomplete(short)
    return standings, incomplete


def _check_ends(parts: Parts, opening: ViewOpening) -> None:
    topic = opening.view.topic
    ends = parts.broker.highest_offsets({topic: opening.shape.partition_count})
    for partition, position in enumerate(opening.furthest):
        if position > ends[topic, partition]:
            told = (
                f"partition {partition} of topic {topic!r} ends at {ends[topic, partition]}, "
                f"but the view holds all below {position}"
            )
            raise Gone({opening.name: told})
