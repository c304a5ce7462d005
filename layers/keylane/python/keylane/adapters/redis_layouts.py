"""The layout records and epoch counters of topics, from the writer's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane import codec, routing
from keylane.adapters.redis_wire import encode_command, translate_redis_errors
from keylane.errors import CorruptState
from keylane.ports import Deadline

if TYPE_CHECKING:
    from keylane.adapters.redis_cluster import Cluster
    from keylane.model import Layout
    from keylane.ports import Clock

_TIMEOUT_MS = 5000


class LayoutStore:
    """Layouts and epochs in the cluster. Raises StateUnavailable when it does not answer."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def get(self, topic: str) -> Layout | None:
        """The topic's layout, None when it has none yet. Raises CorruptState."""
        key = codec.layout_key(topic)
        data = self._command(key, b"GET", key)
        if data is None:
            return None
        try:
            return codec.decode_layout(data)
        except codec.CodecError as error:
            raise CorruptState(key.decode(), str(error)) from error

    def put(self, layout: Layout) -> None:
        """Make the layout the one that readers go by."""
        key = codec.layout_key(layout.topic)
        self._command(key, b"SET", key, codec.encode_layout(layout))

    def next_epoch(self, topic: str, above: int = 0) -> int:
        """A number higher than every one given out before, and than `above`."""
        key = codec.epoch_key(topic)
        epoch = int(self._command(key, b"INCR", key))
        if epoch <= above:
            epoch = int(self._command(key, b"INCRBY", key, b"%d" % (above + 1 - epoch)))
        return epoch

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
