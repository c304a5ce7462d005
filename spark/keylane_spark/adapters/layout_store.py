"""A topic's layout, its writer's record, its epochs and its stray totals, as the writer stores them.

Every change of a record names the epoch of its writer, and is refused where a newer writer has begun.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ResponseError

from keylane import routing
from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.errors import CorruptState
from keylane.ports import Deadline
from keylane.state import codec, redis_keys
from keylane_spark.adapters import function_library as library
from keylane_spark.adapters.function_library import CallRefused, FunctionLibrary, WriteOptions
from keylane_spark.adapters.lane import LaneTarget
from keylane_spark.adapters.topic_record import TopicRecord, topic_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.adapters.redis.cluster import Cluster, Node
    from keylane.model.records import Layout
    from keylane.ports import Clock

T = TypeVar("T")

_TIMEOUT_MS = 5000
_KEYS_PER_CALL = 1000


class LayoutStore:
    """Layouts, records and epochs in the cluster. All methods raise StateUnavailable. Not thread-safe."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._library = FunctionLibrary(cluster, clock, WriteOptions(retry_budget_s=_TIMEOUT_MS / 1000))

    def get(self, topic: str) -> Layout | None:
        """The topic's layout; None when it has none yet. Raises CorruptState."""
        return self._read(redis_keys.layout_key(topic), codec.decode_layout)

    def record(self, topic: str) -> TopicRecord | None:
        """The topic's record; None when it has none yet. Raises CorruptState."""
        return self._read(topic_key(topic), TopicRecord.from_json)

    def _read(self, key: bytes, decode: Callable[[bytes], T]) -> T | None:
        data = self._command(key, b"GET", key)
        try:
            return None if data is None else decode(data)
        except codec.CodecError as error:
            raise CorruptState(key.decode(), str(error)) from error

    def change(
        self, topic: str, epoch: int, *, layout: Layout | None = None, record: TopicRecord | None = None
    ) -> None:
        """Set what is given, both at once. Raises Fenced where a newer epoch than `epoch` has begun."""
        keys = redis_keys.epoch_key(topic), redis_keys.layout_key(topic), topic_key(topic)
        new_layout = codec.encode_layout(layout) if layout else b""
        new_record = record.to_json() if record else b""
        arguments = b"%d" % epoch, new_layout, new_record
        self._call(topic, epoch, library.LAYOUT, b"3", *keys, *arguments)

    def next_epoch(self, topic: str, expected: int = -1, above: int = 0, run: str = "") -> int:
        """Return a new epoch: higher than all earlier ones of the topic, and than `above`.

        `expected`: the epoch that the caller holds, -1 at its first start; `run`: the caller's name. Raises
        Fenced if another run has taken a newer epoch: a writer that was replaced can't take over from its
        successor.
        """
        key = redis_keys.epoch_key(topic)
        arguments = b"%d" % expected, b"%d" % above, run.encode()
        return int(self._call(topic, expected, library.EPOCH, b"1", key, *arguments))

    def free_generation(self, layout: Layout, first: int) -> tuple[Layout, list[int]]:
        """The layout with the first generation, from `first` on, whose lanes have no watermark.

        And the generations skipped: their lanes were left behind when the topic's records were lost.
        """
        used: list[int] = []
        while self._is_used(candidate := replace(layout, generation=first + len(used))):
            used.append(candidate.generation)
        return candidate, used

    def _is_used(self, layout: Layout) -> bool:
        """Whether any lane of the layout has a watermark."""
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
        with translate_redis_errors():
            self._cluster.refresh(deadline)
            by_node: dict[Node, list[bytes]] = {}
            for partition in range(layout.partition_count):
                for stripe in range(layout.stripes):
                    lane = LaneTarget.of(layout, partition, stripe)
                    command = encode_command(b"EXISTS", lane.watermark_key)
                    by_node.setdefault(self._cluster.primary(lane.slot), []).append(command)
            for node, commands in by_node.items():
                for first in range(0, len(commands), _KEYS_PER_CALL):
                    some = commands[first : first + _KEYS_PER_CALL]
                    if any(self._cluster.execute(node, some, deadline)):
                        return True
        return False

    def add_strays(self, layout: Layout, counts: Mapping[str, int]) -> None:
        """Add to the stray totals of a topic's generation, at least once: a retried call counts again."""
        key = redis_keys.strays_key(layout.topic)
        for name, count in counts.items():
            self._command(key, b"HINCRBY", key, b"%d.%b" % (layout.generation, name.encode()), b"%d" % count)

    def strays(self, layout: Layout) -> dict[str, int]:
        """The totals of a topic's generation, by the names that `add_strays` was given."""
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
        """Remove the totals of a generation."""
        key = redis_keys.strays_key(topic)
        names = [name for name in self._command(key, b"HKEYS", key) if name.startswith(b"%d." % generation)]
        if names:
            self._command(key, b"HDEL", key, *names)

    def _call(self, topic: str, epoch: int, function: bytes, *arguments: bytes) -> Any:
        key = redis_keys.epoch_key(topic)
        try:
            return self._library.call(routing.key_slot(key), encode_command(b"FCALL", function, *arguments))
        except CallRefused as refused:
            raise refused.for_lane(topic, key, epoch) from refused

    def _command(self, key: bytes, *words: bytes) -> Any:
        """The reply to a plain command, which is tried once: the callers have their own retries."""
        deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
        with translate_redis_errors():
            if not self._cluster.nodes:
                self._cluster.refresh(deadline)
            primary = self._cluster.primary(routing.key_slot(key))
            try:
                (reply,) = self._cluster.execute(primary, [encode_command(*words)], deadline)
            except ResponseError:
                # The slot map is outdated or a failover is under way: the next attempt has a new map.
                self._cluster.refresh(deadline)
                raise
            return reply
