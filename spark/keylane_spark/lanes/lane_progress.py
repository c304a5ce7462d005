"""How far the lanes of one topic are, by their watermarks, seen from outside the job."""

from __future__ import annotations

from keylane.adapters.redis.cluster import Cluster, RedisSettings
from keylane.adapters.redis.state import RedisState
from keylane.errors import UnknownTopic
from keylane.ports import Clock, Deadline
from keylane.state import codec
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.layout_store import LayoutStore

_TIMEOUT_MS = 10_000


class LaneProgress:
    """The lanes of a topic, by connections of its own; `layout` is what they were when it was made."""

    def __init__(self, redis: RedisSettings, topic: str) -> None:
        """Connect; raise UnknownTopic if the topic has no layout."""
        self._clock = Clock()
        self._cluster = Cluster(redis)
        self._state = RedisState(self._cluster)
        layout = LayoutStore(self._cluster, self._clock).get(topic)
        if layout is None:
            raise UnknownTopic(topic)
        self.layout = layout

    def next_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition: that of its slowest stripe."""
        return {
            partition: min(self._next_offset(partition, stripe) for stripe in range(self.layout.stripes))
            for partition in range(self.layout.partition_count)
        }

    def _next_offset(self, partition: int, stripe: int) -> int:
        lane = LaneTarget.of(self.layout, partition, stripe)
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
        (data,) = self._state.read(lane.slot, [lane.watermark_key], deadline)
        return codec.decode_watermark(data).next_offset if data else 0

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()
