"""Reads the description of a topic: its layout, and how far each lane is and on which node."""

import json
from dataclasses import dataclass

from keylane import routing
from keylane.model.records import Layout, Watermark
from keylane.ports import Call, Deadline
from keylane.query.store import Store
from keylane.state import codec, redis_keys
from keylane.state.lanes import Lane, decode_watermark, lanes_of_topic


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane, its primary as "host:port", and its watermark: None where the lane has not begun."""

    lane: Lane
    shard: str
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class NextGeneration:
    """The generation that is built beside the one that serves. `percent` of its log is applied, if known."""

    generation: int
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic. `strays`: how many this generation has met, and how many of them each partitioner explains.

    `next`: what is being built beside it, None for nothing.
    """

    layout: Layout
    lanes: list[LaneView]
    strays: dict[str, int]
    next: NextGeneration | None = None


def describe_topic(store: Store, topic: str, timeout_ms: float) -> TopicView:
    """Read a topic's layout and all its watermarks; nothing is taken from the cache.

    Raises UnknownTopic, StateUnavailable, CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    layout = store.layouts.refresh(topic, deadline)
    lanes = lanes_of_topic(layout)
    strays_key, record_key = redis_keys.strays_key(topic), redis_keys.record_key(topic)
    calls = [Call(lane.slot, (b"GET", lane.watermark_key)) for lane in lanes]
    calls.append(Call(routing.key_slot(strays_key), (b"HGETALL", strays_key)))
    calls.append(Call(routing.key_slot(record_key), (b"GET", record_key)))
    *watermarks, counts, record = store.state.run(calls, deadline)
    shards = store.state.hosts([lane.slot for lane in lanes], deadline)
    views = [
        LaneView(lane, shard, None if data is None else decode_watermark(lane.watermark_key, data))
        for lane, shard, data in zip(lanes, shards, watermarks, strict=True)
    ]
    return TopicView(layout, views, stray_totals(layout, counts), _describe_next(store, record, deadline))


def building_layout(record: bytes | None) -> Layout | None:
    """Return the layout of the generation that a writer's record says is being built, None for none.

    A record that cannot be read is the writer's to report: a reader knows of none then.
    """
    try:
        building = json.loads(record or b"{}").get("building")
        return codec.decode_layout(json.dumps(building).encode()) if building else None
    except codec.ODD_JSON:
        return None


def _describe_next(store: Store, record: bytes | None, deadline: Deadline) -> NextGeneration | None:
    building = building_layout(record)
    if building is None:
        return None
    lanes = lanes_of_topic(building)
    found = store.state.run([Call(lane.slot, (b"GET", lane.watermark_key)) for lane in lanes], deadline)
    watermarks = [
        decode_watermark(lane.watermark_key, data) for lane, data in zip(lanes, found, strict=True) if data
    ]
    log_end = sum(each.log_end for each in watermarks)
    applied = sum(min(each.next_offset, each.log_end) for each in watermarks)
    known = log_end and len(watermarks) == len(lanes)
    return NextGeneration(building.generation, 100 * applied // log_end if known else None)


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


def stray_totals(layout: Layout, counts: list[bytes]) -> dict[str, int]:
    """Return the totals of the layout's generation; the fields are `GENERATION.name`."""
    prefix = b"%d." % layout.generation
    pairs = zip(counts[::2], counts[1::2], strict=True)
    return {name[len(prefix) :].decode(): int(count) for name, count in pairs if name.startswith(prefix)}
