"""A begun writer: what a start gives to those who write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane_spark.adapters.lane_writer import LaneTarget, LaneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from keylane.adapters.redis.cluster import Cluster, RedisSettings
    from keylane.model.records import Layout
    from keylane.model.topic_partition import TopicPartition
    from keylane.ports import Clock
    from keylane_spark.adapters.kafka_admin import TopicShape


@dataclass(frozen=True, slots=True)
class Writer:
    """What a task must know to write: where, in which layouts, as which writer."""

    redis: RedisSettings
    layouts: Mapping[str, Layout]
    epoch: int
    patience_s: float
    wait_replicas: int = 0
    wait_ms: int = 1000

    def lanes(
        self, cluster: Cluster, clock: Clock, notify: Callable[[str], None], *, durable: bool = True
    ) -> LaneWriter:
        """A lane writer over a cluster of this thread's own; `durable`: it waits for replicas, if any do."""
        return LaneWriter(
            cluster,
            clock,
            self.epoch,
            patience_s=self.patience_s,
            wait_replicas=self.wait_replicas if durable else 0,
            wait_ms=self.wait_ms,
            notify=notify,
        )


@dataclass(frozen=True, slots=True)
class Opening:
    """A begun writer, and the next offset of each partition.

    `incomplete`: partitions with lost records. `strays`: topics whose lanes may have records of other
    partitions than their own.
    """

    writer: Writer
    positions: dict[TopicPartition, int]
    incomplete: list[TopicPartition]
    strays: frozenset[str]


@dataclass(frozen=True, slots=True)
class Openings:
    """What a start has opened: what is served, what is built beside it, and the topics as they were then."""

    serving: Opening
    building: Opening | None
    shapes: Mapping[str, TopicShape]


def lanes_of(layout: Layout) -> Iterator[LaneTarget]:
    """The lanes of a layout where readers look for keys."""
    for partition in range(layout.partition_count):
        for stripe in range(layout.stripes):
            yield LaneTarget.of(layout, partition, stripe)
