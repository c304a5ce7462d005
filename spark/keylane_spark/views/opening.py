"""How a view's writer begins: as a topic's, but that each lane tells itself which records it has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keylane.adapters.redis_cluster import Cluster
from keylane.adapters.redis_views import Standing, ViewLanes
from keylane.adapters.topic_record import TopicRecord
from keylane.errors import Fenced, StateUnavailable, UnknownTopic
from keylane.model import Layout, Options
from keylane.windows import Definition, Progress, state_name
from keylane_spark.generations import plan
from keylane_spark.views.writer import ViewWriter

if TYPE_CHECKING:
    from keylane.adapters.kafka_broker import TopicShape
    from keylane.adapters.lane import Lane
    from keylane_spark.ownership import Ownership
    from keylane_spark.query import Parts
    from keylane_spark.views.writer import Offsets

_TRIES = 5


class _Gone(Exception):
    """The view has records that its topic hasn't; the sentence says which."""


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
    def behind(self) -> dict[Offsets, list[Lane]]:
        """Lanes by the offsets at which they stand, those apart that stand furthest."""
        by_offsets: dict[Offsets, list[Lane]] = {}
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
    above, anew = 0, ""
    for _ in range(_TRIES):
        epoch = ownership.take([state_name(name)], above)
        cluster = Cluster(parts.redis)
        try:
            return _open(parts, ownership, name, shapes[topic], epoch, cluster, anew)
        except Fenced as fenced:
            cluster.close()
            if has_begun and fenced.newer_epoch > epoch:
                raise
            # The counter was lost with a failover: the lanes know better.
            above = max(above, fenced.newer_epoch)
        except _Gone as gone:
            cluster.close()
            anew = str(gone)
        except BaseException:
            cluster.close()
            raise
    raise StateUnavailable(f"the lanes of view {name!r} were taken {_TRIES} times meanwhile")


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
    kept, record = ownership.layout(state), ownership.record(state)
    last_layout, last_record = ownership.remembered(state)
    if record and record.topic_id != shape.topic_id:
        anew = f"topic {view.topic!r} was deleted and created anew"
    count = config.partitions or (kept.partition_count if kept else shape.partition_count)
    wanted = Layout(state, count, options=Options(index=True, view=view.to_json()))
    listed = record.remove if record else ()
    building = record.building if record else None
    taken = {*listed, *(each.generation for each in (kept, last_layout, building) if each)}
    left: list[int] = []

    def free(layout: Layout) -> Layout:
        found, used = ownership.free(layout, taken)
        left.extend(used)
        return found

    planned = plan(wanted, kept, record, anew=anew, free=free)
    if planned.why:
        parts.say(f"view {name!r}: {planned.why}")
    known = record or last_record
    began = oldest
    if known and known.topic_id == shape.topic_id and not anew:
        began = known.began + oldest[len(known.began) :]
    layout = planned.building or planned.serving
    new = TopicRecord(shape.topic_id, began, ownership.owner(epoch), planned.building)
    if kept and kept.generation != planned.serving.generation:
        # Another topic's windows: readers that have the old layout must ask for the new one.
        ViewLanes(kept, cluster, parts.clock, epoch, notify=parts.say).supersede()
    ownership.change(state, layout=planned.serving, record=new.removing([*listed, *planned.remove, *left]))
    lanes = ViewLanes(
        layout,
        cluster,
        parts.clock,
        epoch,
        ttl_ms=view.ttl_ms,
        patience_s=parts.config.job.redis_patience_s,
        notify=parts.say,
    )
    standings, incomplete = _stand(lanes, oldest, began)
    writer = ViewWriter(view, layout, lanes, standings, parts.clock)
    replaced = kept if planned.building else None
    opening = ViewOpening(
        name, view, layout, replaced, epoch, shape, writer, lanes, cluster, tuple(sorted(incomplete))
    )
    _check_ends(parts, opening)
    return opening


def _stand(lanes: ViewLanes, oldest: Offsets, began: Offsets) -> tuple[dict[Lane, Standing], set[int]]:
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
            raise _Gone(
                f"partition {partition} of topic {topic!r} ends at {ends[topic, partition]}, "
                f"but the view holds all below {position}"
            )
