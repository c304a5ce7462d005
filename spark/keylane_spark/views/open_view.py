"""How a view's writer begins: as a topic's, but that each lane itself stores which records it has."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from keylane.errors import UnknownTopic
from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout, Options
from keylane.state.windows import Definition, Progress, state_name
from keylane_spark.config.views import ViewConfig
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
from keylane_spark.lanes.cluster import Cluster
from keylane_spark.lanes.dictionaries import Compressors
from keylane_spark.lanes.function_library import FunctionLibrary
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.topic_record import Lineage, TopicRecord
from keylane_spark.lanes.view_lanes import ViewLanes, ViewLaneState
from keylane_spark.lanes.window_values import WindowValues
from keylane_spark.log.kafka_admin import TopicShape
from keylane_spark.views.closings import Offsets
from keylane_spark.views.table_writer import TableTopic, TableWriter
from keylane_spark.views.view_writer import ViewWriter


@dataclass(frozen=True, slots=True)
class ViewOpening:
    """A view's opened lanes.

    `replaced`: the layout that readers go by until this one is complete, if there is one. `incomplete`:
    partitions whose records were lost before the view had seen them. `leader_epochs`: of the leaders that
    had all records which the lanes have counted.
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
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


def open_view(context: JobContext, ownership: Ownership, name: str, *, has_begun: bool) -> ViewOpening:
    """Open the view's lanes. Raises UnknownTopic, Fenced, LogUnavailable, StateUnavailable, CorruptState."""
    topic = context.config.views[name].topic
    shapes = context.broker.describe([topic])
    if topic not in shapes:
        raise UnknownTopic(topic, f"Kafka has no topic of this name, which view {name!r} reads")
    cluster = Cluster(context.redis)
    try:
        opener = _ViewOpener(context, ownership, cluster, name, shapes[topic])
        return open_with_epoch(ownership, [state_name(name)], opener.open, has_begun=has_begun)
    except BaseException:
        cluster.close()
        raise


@dataclass(frozen=True)
class _ViewState(StoredState):
    """A view's state."""

    config: ViewConfig
    definition: Definition
    library: FunctionLibrary
    epoch: int

    def wanted(self, kept: Layout | None) -> Layout:
        default_count = kept.partition_count if kept else len(self.oldest)
        compression = self.config.compression
        options = Options(index=True, view=self.definition.to_json(), compression=compression)
        return Layout(self.name, self.config.partitions or default_count, options=options)

    def why_unusable(self, kept: Layout | None, record: TopicRecord | None) -> str:  # noqa: ARG002
        if is_recreated(record, self.topic_id):
            return f"topic {self.config.topic!r} was {RECREATED}"
        return ""

    def supersede(self, kept: Layout) -> None:
        ViewLanes(kept, self.library, self.epoch).supersede()


@dataclass(frozen=True, slots=True)
class _ViewOpener:
    """Opens the lanes of one view with one epoch."""

    context: JobContext
    ownership: Ownership
    cluster: Cluster
    name: str
    shape: TopicShape

    def open(self, epoch: int, unusable: Mapping[str, str]) -> ViewOpening:
        """Open them; `unusable`: views that begin again, and why. Raises Fenced, StateAhead."""
        context, config = self.context, self.context.config.views[self.name]
        view, library = context.config.definition(self.name), context.library(self.cluster)
        offsets = context.broker.oldest_offsets({view.topic: self.shape.partition_count})
        oldest = tuple(offsets[view.topic, partition] for partition in range(self.shape.partition_count))
        state = _ViewState(
            name=state_name(self.name),
            title=f"view {self.name!r}",
            topic_id=self.shape.topic_id,
            oldest=oldest,
            config=config,
            definition=view,
            library=library,
            epoch=epoch,
        )
        begun = begin_state(state, self.ownership, epoch, context.say, unusable.get(self.name, ""))
        layout = begun.plan.building or begun.plan.serving
        marker_ms = context.config.topics[view.topic].tombstone_marker if view.has_rows else 0
        values = WindowValues(layout, self._compressors(layout))
        lanes = ViewLanes(layout, library, epoch, ttl_ms=view.ttl_ms, marker_ms=marker_ms, values=values)
        states, incomplete = _open_lanes(lanes, oldest, begun.began)
        opening = ViewOpening(
            name=self.name,
            view=view,
            layout=layout,
            replaced=begun.kept if begun.plan.building else None,
            epoch=epoch,
            shape=self.shape,
            writer=self._writer(view, lanes, states, layout, begun),
            lanes=lanes,
            cluster=self.cluster,
            incomplete=tuple(sorted(incomplete)),
        )
        return replace(opening, leader_epochs=self._check_log(opening, begun.lineages))

    def _compressors(self, layout: Layout) -> Compressors | None:
        if layout.options.compression == "none":
            return None
        context = self.context
        return Compressors(context.redis, context.write_options, context.clock, context.say)

    def _writer(
        self,
        view: Definition,
        lanes: ViewLanes,
        states: dict[LaneTarget, ViewLaneState],
        layout: Layout,
        begun: BegunState,
    ) -> ViewWriter:
        def say(line: str) -> None:
            self.context.say(f"view {self.name!r}: {line}")

        if not view.has_rows:
            return ViewWriter(view, layout, lanes, states, self.context.clock, say)
        config = self.context.config.topics[view.topic]
        read_since_ms = begun.read_since_ms.get(layout.generation, 0)
        topic = TableTopic(config.partitioner, config.partition_by, config.tombstone_marker, read_since_ms)
        return TableWriter(view, layout, lanes, states, self.context.clock, say, topic=topic)

    def _check_log(self, opening: ViewOpening, stored: tuple[Lineage, ...]) -> dict[TopicPartition, int]:
        """The leaders that have all records of the view. Raises StateAhead, LogUnavailable."""
        topic = opening.view.topic
        held = {(topic, partition): offset for partition, offset in enumerate(opening.writer.furthest)}
        lineages = {(topic, partition): lineage for partition, lineage in enumerate(stored)}
        counts = {topic: self.shape.partition_count}
        check = LogCheck(held, lineages, self.context.broker.ends(counts), self.context.epoch_ends)
        truncated = check.find_truncated()
        if truncated:
            raise StateAhead({self.name: truncated[topic]})
        extended = check.continued(lambda: self.context.broker.ends(counts))
        self.ownership.note_lineages(state_name(self.name), tuple(extended[source] for source in held))
        return last_epochs(extended)


def _open_lanes(
    lanes: ViewLanes, oldest: Offsets, began: Offsets
) -> tuple[dict[LaneTarget, ViewLaneState], set[int]]:
    """Open the lanes; return their states, and the partitions that lost records before they were read.

    The states' offsets are at least the log's oldest ones. Lanes that lack records are marked incomplete.
    """
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
