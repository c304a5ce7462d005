"""What opening the lanes leaves to those who write them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from keylane_spark.adapters.function_library import FunctionLibrary, WriteOptions
from keylane_spark.adapters.lane import LaneTarget
from keylane_spark.adapters.lane_writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from keylane.adapters.redis.cluster import Cluster, RedisSettings
    from keylane.model.records import Layout
    from keylane.model.topic_partition import TopicPartition
    from keylane.ports import Clock
    from keylane_spark.adapters.kafka_admin import TopicShape


@dataclass(frozen=True, slots=True)
class WriterSpec:
    """What a task needs to make a lane writer: the cluster, the layouts, the epoch, the options."""

    redis: RedisSettings
    layouts: Mapping[str, Layout]
    epoch: int
    options: WriteOptions

    def lanes(
        self, cluster: Cluster, clock: Clock, notify: Callable[[str], None], *, durable: bool = True
    ) -> LaneWriter:
        """A lane writer over the calling thread's own cluster; unless `durable` it waits for no replicas."""
        options = self.options if durable else replace(self.options, wait_replicas=0)
        return LaneWriter(FunctionLibrary(cluster, clock, options, notify), self.epoch)


@dataclass(frozen=True, slots=True)
class Opening:
    """Opened lanes: how to write them, and the next offset of each partition.

    `incomplete`: partitions that have lost records. `strays`: topics whose lanes may hold records of other
    partitions than their own. `lacking`: partitions with lanes that may lack such records, whether or not
    anything says that the topic has them. `held`: the highest offset of each partition below which the lanes
    hold records, strays included. `leader_epochs`: of the leaders that had all these records.
    """

    writer: WriterSpec
    positions: dict[TopicPartition, int]
    incomplete: list[TopicPartition]
    strays: frozenset[str]
    lacking: frozenset[TopicPartition] = frozenset()
    held: Mapping[TopicPartition, int] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Openings:
    """The opened lanes that serve and, if a generation is being built, its lanes; the topics at that time."""

    serving: Opening
    building: Opening | None
    shapes: Mapping[str, TopicShape]


def lanes_of(layout: Layout) -> Iterator[LaneTarget]:
    """The lanes of a layout in which readers look for keys."""
    for partition in range(layout.partition_count):
        for stripe in range(layout.stripes):
            yield LaneTarget.of(layout, partition, stripe)
