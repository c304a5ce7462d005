"""How a writer begins: an epoch for each topic, its layout, and every lane taken at its own watermark.

The watermarks are the checkpoint. Wherever Spark's own stands, or if it is lost, the state says what it
holds, and the query begins at just that: what a failover lost is read again, what is there is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.adapters.redis_cluster import Cluster, RedisSettings
from keylane.adapters.redis_lanes import Lane, LaneWriter
from keylane.adapters.redis_layouts import LayoutStore
from keylane.errors import Fenced, WriterError
from keylane.model import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.adapters.kafka_broker import Broker
    from keylane.ports import Clock
    from keylane_spark.config import Config
    from keylane_spark.freshness import Place

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Writer:
    """What a task must know to write: where, in which layout, as which writer."""

    redis: RedisSettings
    layouts: Mapping[str, Layout]
    epoch: int
    patience_s: float

    def lanes(self, cluster: Cluster, clock: Clock, notify: Callable[[str], None]) -> LaneWriter:
        """A lane writer over a cluster of this thread's own."""
        return LaneWriter(cluster, clock, self.epoch, patience_s=self.patience_s, notify=notify)


@dataclass(frozen=True, slots=True)
class Opening:
    """A begun writer, and the next offset of each partition. `incomplete`: partitions with lost records."""

    writer: Writer
    positions: dict[Place, int]
    incomplete: list[Place]


def open_topics(
    config: Config, broker: Broker, redis: RedisSettings, clock: Clock, notify: Callable[[str], None]
) -> Opening:
    """Take all topics of the config. Raises UnknownTopic, LogUnavailable, StateUnavailable, WriterError."""
    cluster = Cluster(redis)
    try:
        store = LayoutStore(cluster, clock)
        counts = {topic: broker.partition_count(topic) for topic in config.topics}
        layouts = {topic: _layout(config, store, topic, count) for topic, count in counts.items()}
        oldest = broker.oldest_offsets(counts)
        lanes = [
            (Lane.of(layout, partition, stripe), oldest[layout.topic, partition])
            for layout in layouts.values()
            for partition in range(layout.partition_count)
            for stripe in range(layout.stripes)
        ]
        above = 0
        for _ in range(_TRIES):
            # One epoch for all topics of the job: above each topic's own counter.
            above = max(store.next_epoch(topic, above) for topic in layouts)
            writer = Writer(redis, layouts, above, config.job.redis_patience_s)
            try:
                starts = writer.lanes(cluster, clock, notify).open(lanes)
            except Fenced as fenced:
                # The counter was lost with a failover: the lanes know better.
                above = max(above, fenced.newer_epoch)
                continue
            break
        else:
            raise WriterError(f"other writers took the lanes {_TRIES} times: is the job running twice?")
        positions: dict[Place, int] = {}
        incomplete: set[Place] = set()
        for lane, start in starts.items():
            place = lane.topic, lane.partition
            positions[place] = min(start.next_offset, positions.get(place, start.next_offset))
            if start.incomplete:
                incomplete.add(place)
        _check_ends(broker, counts, positions)
        for layout in layouts.values():
            store.put(layout)
        return Opening(writer, positions, sorted(incomplete))
    finally:
        cluster.close()


def _layout(config: Config, store: LayoutStore, topic: str, partition_count: int) -> Layout:
    wanted = config.topics[topic]
    layout = Layout(topic, partition_count, wanted.stripes, wanted.partitioner)
    kept = store.get(topic)
    if kept is not None and kept != layout:
        raise WriterError(
            f"topic {topic!r} lies in the cluster as {kept.partition_count} partitions, "
            f"{kept.stripes} stripes, {kept.partitioner}; now it would be {partition_count}, "
            f"{wanted.stripes}, {wanted.partitioner}. "
            f"A layout is not changed in place: put the old values back, or delete the topic's keys"
        )
    return layout


def _check_ends(broker: Broker, counts: Mapping[str, int], positions: Mapping[Place, int]) -> None:
    ends = broker.end_offsets(counts)
    for (topic, partition), position in positions.items():
        if position > ends[topic, partition]:
            raise WriterError(
                f"partition {partition} of topic {topic!r} ends at {ends[topic, partition]}, "
                f"but its state holds all below {position}: was the topic deleted and made anew? "
                f"The state of the old one must be removed first"
            )
