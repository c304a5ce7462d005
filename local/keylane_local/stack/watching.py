"""Reads the progress of a topic's lanes from outside the job."""

from typing import Self

from keylane.adapters.kafka.options import Connection
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.ports import Clock, Deadline
from keylane.state import codec
from keylane_local.errors import PartFailed
from keylane_local.stack.stack import Stack
from keylane_spark.adapters.kafka_admin import JobKafka
from keylane_spark.adapters.lane import LaneTarget
from keylane_spark.adapters.layout_store import LayoutStore

_TIMEOUT_MS = 10_000


class Lanes:
    """The lanes of one topic of a running stack."""

    def __init__(self, stack: Stack, topic: str) -> None:
        """Connect; raise PartFailed if the topic has no layout."""
        self._clock = Clock()
        self._cluster = Cluster(redis_settings(stack.environment()))
        self._state = RedisState(self._cluster)
        self._broker = JobKafka(Connection(stack.kafka_bootstrap))
        layout = LayoutStore(self._cluster, self._clock).get(topic)
        if layout is None:
            raise PartFailed("job", f"topic {topic!r} has no layout: is it in keylane.toml?", stack.job.log)
        self._layout = layout

    def end_offsets(self) -> dict[int, int]:
        """Return the end offset of each partition in Kafka."""
        counts = {self._layout.topic: self._layout.partition_count}
        return {partition: end for (_, partition), end in self._broker.end_offsets(counts).items()}

    def next_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition in the state: that of its slowest stripe."""
        return {
            partition: min(self._next_offset(partition, stripe) for stripe in range(self._layout.stripes))
            for partition in range(self._layout.partition_count)
        }

    def _next_offset(self, partition: int, stripe: int) -> int:
        lane = LaneTarget.of(self._layout, partition, stripe)
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
        (data,) = self._state.read(lane.slot, [lane.watermark_key], deadline)
        return codec.decode_watermark(data).next_offset if data else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
