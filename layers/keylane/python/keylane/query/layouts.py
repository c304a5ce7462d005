"""The topics' layouts as records in Redis, kept in memory for a while."""

from collections.abc import Sequence

from keylane import routing
from keylane.errors import CorruptState, UnknownTopic
from keylane.model.keys import printable
from keylane.model.records import Layout
from keylane.ports import Call, Clock, Deadline, State
from keylane.state import codec, redis_keys


class Layouts:
    """The topics' layouts, each read once and kept for `ttl_s` seconds. Unknown topics are not kept.

    A layout whose record vanished is kept for the rest of its time: the state was lost a moment ago, and the
    writer is about to rebuild it.
    """

    def __init__(self, state: State, clock: Clock, ttl_s: float) -> None:
        self._state = state
        self._clock = clock
        self._ttl_s = ttl_s
        self._kept: dict[str, tuple[Layout, float]] = {}

    def known(self, topic: str) -> Layout | None:
        """Return the topic's layout if it was read within `ttl_s`, else None."""
        kept = self._kept.get(topic)
        return kept[0] if kept is not None and self._clock.monotonic_s() < kept[1] else None

    def get(self, topic: str, deadline: Deadline) -> Layout:
        """Return the topic's layout, at most `ttl_s` old. Raises as `refresh`."""
        return self.known(topic) or self._replace_expired(topic, deadline)

    def refresh(self, topic: str, deadline: Deadline) -> Layout:
        """Read the topic's layout from Redis. Raises UnknownTopic, CorruptState, StateUnavailable."""
        key, data = self._read(topic, deadline)
        try:
            layout = _decode(data)
        except ValueError as error:
            raise CorruptState(printable(key), str(error)) from error
        self._kept[topic] = (layout, self._clock.monotonic_s() + self._ttl_s)
        return layout

    def refresh_all(self, topics: Sequence[str], deadline: Deadline) -> dict[str, Layout | None]:
        """Read the layouts of many topics at once; None for one without a layout that can be read.

        They are not kept. Raises StateUnavailable.
        """
        keys = {topic: _keys_of(topic) for topic in topics}
        calls = [Call(routing.key_slot(key), (b"GET", key)) for own in keys.values() for key in own]
        found = iter(self._state.run(calls, deadline))
        layouts: dict[str, Layout | None] = {}
        for topic, own in keys.items():
            copies = [next(found) for _ in own]
            data = next((each for each in copies if each is not None), None)
            try:
                layouts[topic] = None if data is None else _decode(data)
            except ValueError:
                layouts[topic] = None
        return layouts

    def _replace_expired(self, topic: str, deadline: Deadline) -> Layout:
        """Return the layout of a topic that has none here, or an expired one. Raises as `refresh`."""
        return self.refresh(topic, deadline)

    def _read(self, topic: str, deadline: Deadline) -> tuple[bytes, bytes]:
        """Return key and bytes of the layout record or, where its shard has lost it, of a copy."""
        for key in _keys_of(topic):
            (data,) = self._state.read(routing.key_slot(key), [key], deadline)
            if data is not None:
                return key, data
        raise UnknownTopic(topic)


def _keys_of(topic: str) -> list[bytes]:
    """Return the keys of a topic's layout record and of its copies."""
    return [redis_keys.layout_key(topic, tag) for tag in redis_keys.ALL_TAGS]


def _decode(data: bytes) -> Layout:
    """Decode a layout record. Raises ValueError."""
    layout = codec.decode_layout(data)
    routing.check_partitioning(layout.partition_count, layout.partitioner)
    routing.separator_of(layout.partition_by)
    routing.slot_for(0, 0, layout.partition_count, layout.stripes)  # refuses more lanes than slots
    return layout
