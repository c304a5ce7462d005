"""Counts the entries of indexes of fields: one ZCARD for each part of each lane, for the job's metrics."""

from __future__ import annotations

from collections.abc import Mapping

from keylane.adapters.redis.cluster import Cluster, RedisSettings
from keylane.adapters.redis.state import RedisState
from keylane.errors import Unavailable
from keylane.model.records import Layout
from keylane.ports import Call, Clock, Deadline
from keylane.state.field_index import indexes_of
from keylane.state.lanes import index_keys, lanes_of_topic

INTERVAL_S = 10.0
_TIMEOUT_MS = 1000


class IndexSizes:
    """The sizes of the indexes of these topics, by connections of its own. Not thread-safe."""

    def __init__(self, redis: RedisSettings, layouts: Mapping[str, Layout], clock: Clock) -> None:
        self._state = RedisState(Cluster(redis))
        self._layouts = [layout for layout in layouts.values() if layout.options.fields]
        self._clock = clock
        self._due_s = clock.monotonic_s()

    def measure(self) -> dict[tuple[str, str], int]:
        """Return the entries of each index, by topic and index; of all topics or none, if it is not due.

        What does not answer now is measured the next time.
        """
        now_s = self._clock.monotonic_s()
        if not self._layouts or now_s < self._due_s:
            return {}
        self._due_s = now_s + INTERVAL_S
        sizes: dict[tuple[str, str], int] = {}
        for layout in self._layouts:
            try:
                sizes |= self._sizes_of(layout)
            except Unavailable:
                continue
        return sizes

    def _sizes_of(self, layout: Layout) -> dict[tuple[str, str], int]:
        topic, options = layout.topic, layout.options
        calls: list[Call] = []
        of_call: list[tuple[str, str]] = []
        for lane in lanes_of_topic(layout):
            for index in indexes_of(options).indexes:
                for part in index_keys(layout, lane, index):
                    calls.append(Call(lane.slot, (b"ZCARD", part)))
                    of_call.append((topic, index.name))
        sizes = dict.fromkeys(of_call, 0)
        for each, size in zip(of_call, self._state.run(calls, self._deadline()), strict=True):
            sizes[each] += size
        return sizes

    def _deadline(self) -> Deadline:
        return Deadline.after_ms(_TIMEOUT_MS, self._clock)

    def close(self) -> None:
        """Close the connections."""
        self._state.close()
