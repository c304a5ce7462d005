"""A topic that a writer begins as the job does, without Spark and without Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support import lanes as t

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane_spark.generations.epochs import BegunState, StoredState, begin_state, is_recreated
from keylane_spark.generations.ownership import Ownership
from keylane_spark.stream.openings import lanes_of

if TYPE_CHECKING:
    from keylane.model.records import Layout
    from keylane_spark.lanes.lane_writer import LaneWriter
    from keylane_spark.lanes.topic_record import TopicRecord

TOPIC_ID = "id"


@dataclass(frozen=True)
class BegunTopic(StoredState):
    """A topic that wants this layout."""

    layout: Layout
    lanes: LaneWriter

    def wanted(self, kept: Layout | None) -> Layout:  # noqa: ARG002
        return self.layout

    def why_unusable(self, kept: Layout | None, record: TopicRecord | None) -> str:  # noqa: ARG002
        return "it was created again" if is_recreated(record, self.topic_id) else ""

    def supersede(self, kept: Layout) -> None:
        self.lanes.supersede(lanes_of(kept))


class Run:
    """One run of a job that serves one topic."""

    def __init__(self, nodes: str, topic: str) -> None:
        self.topic = topic
        self.ownership = Ownership(t.settings(nodes), t.CLOCK)
        self.cluster = Cluster(t.settings(nodes))
        self.said: list[str] = []
        self.epoch = 0

    def begin(self, wanted: Layout, oldest: int = 0, topic_id: str = TOPIC_ID) -> BegunState:
        """Take an epoch, record the plan and open the lanes of what serves."""
        self.epoch = self.ownership.take([self.topic])
        firsts = (oldest,) * wanted.partition_count
        state = BegunTopic(self.topic, f"topic {self.topic!r}", topic_id, firsts, wanted, self.writer)
        begun = begin_state(state, self.ownership, self.epoch, self.said.append)
        lanes = list(lanes_of(begun.plan.serving))
        lost = [lane for lane in lanes if oldest > begun.began[lane.partition]]
        self.writer.open([(lane, oldest) for lane in lanes], lost)
        return begun

    @property
    def writer(self) -> LaneWriter:
        return t.writer_over(self.cluster, self.epoch)

    def write(self, layout: Layout, count: int) -> list[bytes]:
        """Write some keys to each lane; return them all. The lanes are complete then."""
        keys = []
        now_ms = t.CLOCK.now_ms()
        for lane in lanes_of(layout):
            mine = keys_of_lane(layout, lane.partition, count)
            events = [t.Event(offset, key, key) for offset, key in enumerate(mine)]
            t.write(self.writer, lane, 0, events, count)
            t.complete(self.writer, lane, count, now_ms)
            keys += mine
        return keys

    def close(self) -> None:
        self.ownership.close()
        self.cluster.close()


def keys_of_lane(layout: Layout, partition: int, count: int) -> list[bytes]:
    """The first `count` keys that belong to a partition of a layout without stripes."""
    numbers = (b"key-%d" % number for number in range(count * layout.partition_count * 20))
    return [key for key in numbers if routing.partition_for(key, layout.partition_count) == partition][:count]
