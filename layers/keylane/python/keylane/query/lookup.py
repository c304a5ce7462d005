"""The look-up of one key as a plan and its answer: what to ask of Redis, and what a reply says. No I/O.

This is the short way of most reads: the topic's layout is known, the lane's primary is asked once, and its
reply is the answer. Whatever needs more (a layout that is not known yet or may be stale, a lane that is
building, a reply that is an error) has no plan or no answer here; `read_latest` reads it then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from keylane import routing
from keylane.errors import BadRequest, CorruptState
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.records import Answer
from keylane.query.typed_keys import encode_json, json_keys
from keylane.state.lanes import decode_value, decode_watermark, lane_at

if TYPE_CHECKING:
    from keylane.model.records import Layout
    from keylane.query.layouts import Layouts
    from keylane.state.lanes import Lane


class LookupPlan(NamedTuple):
    """What to ask: `packed` (RESP), of the node that serves `slot`. The reply is for `answer_of`."""

    layout: Layout
    lane: Lane
    key: bytes
    packed: bytes

    @property
    def slot(self) -> int:
        """The lane's hash slot."""
        return self.lane.slot


class _LaneWords(NamedTuple):
    """A lane, and the parts of the command that reads one of its keys with its watermark."""

    lane: Lane
    value_prefix: bytes
    prefix_bytes: int
    end: bytes


class _TopicLanes:
    """How the lanes of a layout are found and asked."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.json_keys = json_keys(layout.options)
        self._find = routing.lane_finder(
            layout.partition_count, layout.stripes, layout.partitioner, layout.partition_by
        )
        self._words: dict[tuple[int, int], _LaneWords] = {}

    def plan(self, key: bytes) -> LookupPlan:
        number = self._find(key)
        words = self._words.get(number) or self._words.setdefault(number, self._words_of(*number))
        lane, prefix, prefix_bytes, end = words
        packed = b"*3\r\n$4\r\nMGET\r\n$%d\r\n%b%b%b" % (prefix_bytes + len(key), prefix, key, end)
        return LookupPlan(self.layout, lane, key, packed)

    def _words_of(self, partition: int, stripe: int) -> _LaneWords:
        lane = lane_at(self.layout, partition, stripe)
        name = lane.watermark_key
        return _LaneWords(
            lane, lane.value_prefix, len(lane.value_prefix), b"\r\n$%d\r\n%b\r\n" % (len(name), name)
        )


class Lookups:
    """Makes plans by the layouts that are known."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._topics: dict[str, _TopicLanes] = {}

    def plan(self, topic: str, key: bytes) -> LookupPlan | None:
        """Return what to ask for a key; None where the layout is not known, or the key's bytes are not."""
        layout = self._layouts.known(topic)
        if layout is None or not 0 < len(key) <= KEY_LIMIT_BYTES:
            return None
        if layout.options.key_format == "registry":
            return None
        lanes = self._topics.get(topic)
        if lanes is None or lanes.layout is not layout:
            lanes = self._topics[topic] = _TopicLanes(layout)
        if lanes.json_keys is not None:
            try:
                key = encode_json(lanes.json_keys, key)
            except BadRequest:
                return None
        return lanes.plan(key)


def answer_of(plan: LookupPlan, reply: Any) -> Answer | None:
    """Return what the reply to a plan says; None where the key has to be read with more care."""
    if not isinstance(reply, list):
        return None
    value, data = reply
    if data is None:
        return None
    lane = plan.lane
    try:
        watermark = decode_watermark(lane.watermark_key, data)
        if watermark.superseded or not watermark.complete_as_of_ms:
            return None
        return Answer(plan.layout, lane.partition, decode_value(lane, plan.key, value), watermark)
    except CorruptState:
        return None
