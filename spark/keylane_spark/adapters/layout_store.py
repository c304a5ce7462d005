"""The layout and topic records of topics, their epochs and stray totals, from the writer's side.

Whatever changes a record names the epoch of its writer, and is refused where a newer writer has begun.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keylane import routing
from keylane.adapters.redis.resp import encode_command, translate_redis_errors
from keylane.errors import CorruptState, Fenced
from keylane.ports import Deadline
from keylane.state import codec, redis_keys
from keylane_spark.adapters import function_library as library
from keylane_spark.adapters.lane_writer import LaneTarget
from keylane_spark.adapters.topic_record import TopicRecord, topic_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.adapters.redis.cluster import Cluster, Node
    from keylane.model.records import Layout
    from keylane.ports import Clock

_TIMEOUT_MS = 5000
_AT_ONCE = 1000


class LayoutStore:
    """Layouts, records and epochs in the cluster. Raises StateUnavailable when it does not answer."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def get(self, topic: str) -> Layout | None:
        """The topic's layout, None when it has none yet. Raises CorruptState."""
        key = redis_keys.layout_key(topic)
        data = self._command(key, b"GET", key)
        try:
            return None if data is None else codec.decode_layout(data)
        except codec.CodecError as error:
            raise CorruptState(key.decode(), str(error)) from error

    def record(self, topic: str) -> TopicRecord | None:
        """The topic's record, None when it has none yet. Raises CorruptState."""
        key = topic_key(topic)
        data = self._command(key, b"GET", key)
        try:
            return None if data is None else TopicRecord.from_json(data)
        except codec.CodecError as error:
            raise CorruptState(key.decode(), str(error)) from error

    def change(
        self, topic: str, epoch: int, *, layout: Layout | None = None, record: TopicRecord | None = None
    ) -> None:
        """Set what is given, both at once. Raises Fenced where a newer epoch than `epoch` has begun."""
        self._function(
            topic,
            epoch,
            *(
                library.LAYOUT,
                b"3",
                redis_keys.epoch_key(topic),
                redis_keys.layout_key(topic),
                topic_key(topic),
            ),
            *(b"%d" % epoch, codec.encode_layout(layout) if layout else b""),
            record.to_json() if record else b"",
        )

    def next_epoch(self, topic: str, expected: int = -1, above: int = 0, run: str = "") -> int:
        """A number higher than every one given out before, and than `above`.

        `expected`: the epoch that the caller holds, -1 at its first start; `run`: the caller's name. Raises
        Fenced where another run has taken a newer one than that: a writer that was replaced can't come back
        over its successor.
        """
        key = redis_keys.epoch_key(topic)
        arguments = (library.EPOCH, b"1", key, b"%d" % expected, b"%d" % above, run.encode())
        return int(self._function(topic, expected, *arguments))

    def free_generation(self, layout: Layout, first: int) -> tuple[Layout, list[int]]:
        """The layout with the first generation from `first` on whose lanes have no watermark.

        And those before it that have: left behind where records were lost and lanes were not.
        """
        used: list[int] = []
        while self._are_used(candidate := replace(layout, generation=first + len(used))):
            used.append(candidate.generation)
        return candidate, used

    def _are_used(self, layout: Layout) -> bool:
        keys = [
            (lane.slot, lane.watermark_key)
            for partition in range(layout.partition_count)
            for stripe in range(layout.stripes)
            for lane in (LaneTarget.of(layout, partition, stripe),)
        ]
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
        with translate_redis_errors():
            self._cluster.refresh(deadline)
            by_node: dict[Node, list[bytes]] = {}
            for slot, key in keys:
                by_node.setdefault(self._cluster.primary(slot), []).append(key)
            for node, group in by_node.items():
                for first in range(0, len(group), _AT_ONCE):
                    some = group[first : first + _AT_ONCE]
                    packed = b"".join(encode_command(b"EXISTS", key) for key in some)
                    replies = self._cluster.roundtrip(node, packed, len(some), deadline)
                    for reply in replies:
                        if isinstance(reply, Exception):
                            raise reply
                    if any(replies):
                        return True
        return False

    def add_strays(self, layout: Layout, counts: Mapping[str, int]) -> None:
        """Add to the totals of a topic's generation: at least once, a repeated call counts again."""
        key = redis_keys.strays_key(layout.topic)
        for name, count in counts.items():
            self._command(key, b"HINCRBY", key, b"%d.%b" % (layout.generation, name.encode()), b"%d" % count)

    def strays(self, layout: Layout) -> dict[str, int]:
        """The totals of a topic's generation, as `add_strays` has named them."""
        key = redis_keys.strays_key(layout.topic)
        flat = self._command(key, b"HGETALL", key)
        prefix = f"{layout.generation}."
        names = [name.decode() for name in flat[::2]]
        return {
            name.removeprefix(prefix): int(count)
            for name, count in zip(names, flat[1::2], strict=True)
            if name.startswith(prefix)
        }

    def forget_strays(self, topic: str, generation: int) -> None:
        """Remove the totals of a generation that is removed."""
        key = redis_keys.strays_key(topic)
        names = [name for name in self._command(key, b"HKEYS", key) if name.startswith(b"%d." % generation)]
        if names:
            self._command(key, b"HDEL", key, *names)

    def _function(self, topic: str, epoch: int, *arguments: bytes) -> Any:
        packed = encode_command(b"FCALL", *arguments)
        key = redis_keys.epoch_key(topic)
        try:
            return library.call(
                self._cluster, routing.key_slot(key), packed, self._clock, patience_s=_TIMEOUT_MS / 1000
            )
        except library.Refused as refused:
            if refused.word == "FENCED":
                raise Fenced(topic, epoch, int(refused.detail)) from refused
            raise CorruptState(key.decode(), str(refused)) from refused

    def _command(self, key: bytes, *arguments: bytes) -> Any:
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
        slot = routing.key_slot(key)
        with translate_redis_errors():
            if not self._cluster.nodes:
                self._cluster.refresh(deadline)
            (reply,) = self._cluster.roundtrip(
                self._cluster.primary(slot), encode_command(*arguments), 1, deadline
            )
            if isinstance(reply, Exception):
                # The map is old or a failover is under way: the job comes back with a new map.
                self._cluster.refresh(deadline)
                raise reply
            return reply
