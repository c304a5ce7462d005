"""Reads the description of a topic: its layout, and how far each lane is and on which node."""

from dataclasses import dataclass

from keylane import routing
from keylane.model.records import Layout, Watermark
from keylane.ports import Call, Deadline
from keylane.query.store import Store
from keylane.state import redis_keys
from keylane.state.lanes import Lane, decode_watermark, lanes_of_topic


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane, its primary as "host:port", and its watermark: None where the lane has not begun."""

    lane: Lane
    shard: str
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic. `strays`: how many this generation has met, and how many of them each partitioner explains."""

    layout: Layout
    lanes: list[LaneView]
    strays: dict[str, int]


def describe_topic(store: Store, topic: str, timeout_ms: float) -> TopicView:
    """Read a topic's layout and all its watermarks; nothing is taken from the cache.

    Raises UnknownTopic, StateUnavailable, CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    layout = store.layouts.refresh(topic, deadline)
    lanes = lanes_of_topic(layout)
    strays_key = redis_keys.strays_key(topic)
    calls = [Call(lane.slot, (b"GET", lane.watermark_key)) for lane in lanes]
    calls.append(Call(routing.key_slot(strays_key), (b"HGETALL", strays_key)))
    *watermarks, counts = store.state.run(calls, deadline)
    shards = store.state.hosts([lane.slot for lane in lanes], deadline)
    views = [
        LaneView(lane, shard, None if data is None else decode_watermark(lane.watermark_key, data))
        for lane, shard, data in zip(lanes, shards, watermarks, strict=True)
    ]
    return TopicView(layout, views, _strays(layout, counts))


def partitions_by_node(store: Store, topic: str, timeout_ms: float) -> dict[str, list[int]]:
    """Return which node holds which of the topic's partitions: "host:port" -> partitions, in order.

    A partition whose stripes are on several nodes is listed under each. Raises as `describe_topic`.
    """
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    lanes = lanes_of_topic(store.layouts.refresh(topic, deadline))
    shards = store.state.hosts([lane.slot for lane in lanes], deadline)
    found: dict[str, set[int]] = {}
    for lane, shard in zip(lanes, shards, strict=True):
        found.setdefault(shard, set()).add(lane.partition)
    return {shard: sorted(numbers) for shard, numbers in found.items()}


def _strays(layout: Layout, counts: list[bytes]) -> dict[str, int]:
    """Return the totals of the layout's generation; the fields are `GENERATION.name`."""
    prefix = b"%d." % layout.generation
    pairs = zip(counts[::2], counts[1::2], strict=True)
    return {name[len(prefix) :].decode(): int(count) for name, count in pairs if name.startswith(prefix)}
