"""What opening the lanes leaves to those who write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from keylane.adapters.registry.login import RegistrySettings
from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout
from keylane.ports import Clock
from keylane_spark.config.transforms import Transform
from keylane_spark.lanes.cluster import Cluster, RedisSettings
from keylane_spark.lanes.dictionaries import Compressors
from keylane_spark.lanes.function_library import FunctionLibrary, WriteOptions
from keylane_spark.lanes.lane import LaneStart, LaneTarget, lanes_of
from keylane_spark.lanes.lane_writer import LaneWriter
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.log.kafka_admin import TopicShape
from keylane_spark.rows.transforms import TopicTransform
from keylane_spark.schemas.framed_values import FramedReaders

_BEAT_TIMEOUT_S = 1.0
"""A heartbeat gives a node that is silent for longer up: the next beat tries again."""


@dataclass(frozen=True, slots=True)
class WriterSpec:
    """What a task needs to make a lane writer: the cluster, the layouts, the epoch, the options.

    `registry`: of the schemas of values, None where no topic needs it. `transforms`: by topic, for
    those that have one.
    """

    redis: RedisSettings
    layouts: Mapping[str, Layout]
    epoch: int
    options: WriteOptions
    registry: RegistrySettings | None = None
    transforms: Mapping[str, TopicTransform] = field(default_factory=dict)

    @property
    def sql(self) -> dict[str, Transform]:
        """The SQL of the topics that have any, and that Spark can compute."""
        return {
            topic: each.definition
            for topic, each in self.transforms.items()
            if each.definition.is_sql and not each.fault
        }

    @property
    def stores_headers(self) -> bool:
        """Whether any of the topics keeps headers."""
        return any(layout.options.headers for layout in self.layouts.values())

    @property
    def framed(self) -> FramedReaders:
        """How values in a Schema Registry's wire format are read."""
        return FramedReaders.of(self.registry)

    def lanes(
        self,
        cluster: Cluster,
        clock: Clock,
        notify: Callable[[str], None],
        parked: ParkedSlots | None = None,
    ) -> LaneWriter:
        """A lane writer over the calling thread's own cluster; `parked`: as of LaneWriter."""
        return LaneWriter(FunctionLibrary(cluster, clock, self.options, notify), self.epoch, parked)

    def compressors(self, clock: Clock, notify: Callable[[str], None]) -> Compressors:
        """What compresses values, with connections of its own."""
        return Compressors(self.redis, self.options, clock, notify)

    def heartbeat_lanes(self, cluster: Cluster, clock: Clock, parked: ParkedSlots) -> LaneWriter:
        """A lane writer that waits for no replicas, and not for a node that is away."""
        options = replace(self.options, wait_replicas=0, retry_budget_s=0, attempt_timeout_s=_BEAT_TIMEOUT_S)
        return LaneWriter(FunctionLibrary(cluster, clock, options), self.epoch, parked)


@dataclass(frozen=True, slots=True)
class Opening:
    """Opened lanes: how to write them, and the next offset of each partition.

    `incomplete`: partitions that have lost records. `strays`: topics whose lanes may hold records of other
    partitions than their own. `lacking`: partitions with lanes that may lack such records, whether or not
    anything says that the topic has them. `held`: the highest offset of each partition below which the lanes
    hold records, strays included. `leader_epochs`: of the leaders that had all these records. `parked`: the
    slots whose lanes could not be opened. `unread`: partitions that are not read, because their lanes are
    parked; they have no position. `topic_ids`: Kafka's own, by topic. `starts`: the lanes as they were.
    """

    writer: WriterSpec
    positions: dict[TopicPartition, int]
    incomplete: list[TopicPartition]
    strays: frozenset[str]
    lacking: frozenset[TopicPartition] = frozenset()
    held: Mapping[TopicPartition, int] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    parked: ParkedSlots = field(default_factory=ParkedSlots)
    unread: frozenset[TopicPartition] = frozenset()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[LaneTarget, LaneStart] = field(default_factory=dict)

    @property
    def missed_deletions(self) -> set[TopicPartition]:
        """The partitions with lanes that may hold deleted keys."""
        return {(lane.topic, lane.partition) for lane, start in self.starts.items() if start.missed_deletions}

    @property
    def parked_partitions(self) -> dict[TopicPartition, str]:
        """The partitions of which any lane is parked, and why."""
        reasons = self.parked.reasons
        if not reasons:
            return {}
        unread = dict.fromkeys(self.unread, "its lanes are parked")
        return unread | {
            (lane.topic, lane.partition): reasons[lane.slot]
            for layout in self.writer.layouts.values()
            for lane in lanes_of(layout)
            if lane.slot in reasons
        }


@dataclass(frozen=True, slots=True)
class Openings:
    """The opened lanes that serve and, if a generation is being built, its lanes; the topics at that time."""

    serving: Opening
    building: Opening | None
    shapes: Mapping[str, TopicShape]

    @property
    def parked(self) -> ParkedSlots:
        """The parked slots that hold any of the lanes."""
        return self.serving.parked.only({lane.slot for lane in self._lanes()})

    @property
    def parked_partitions(self) -> dict[TopicPartition, str]:
        """The partitions of which any lane is parked, and why."""
        building = self.building.parked_partitions if self.building else {}
        return building | self.serving.parked_partitions

    def _lanes(self) -> Iterator[LaneTarget]:
        for opening in (self.serving, *([self.building] if self.building else [])):
            for layout in opening.writer.layouts.values():
                yield from lanes_of(layout)
