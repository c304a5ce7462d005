"""What is known of a topic: its layout, and where each lane lies and stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane import routing
from keylane.ports import Call, Deadline
from keylane.state import redis_keys
from keylane.state.lanes import decode_watermark, lanes_of_topic

if TYPE_CHECKING:
    from keylane.model.records import Layout, Watermark
    from keylane.ports import Clock, State
    from keylane.query.layouts import Layouts
    from keylane.state.lanes import Lane


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane, its primary as "host:port", and its watermark: None where it has not begun."""

    home: Lane
    shard: str
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic. `strays`: how many there were in this generation, and by which partitioner they lie right."""

    layout: Layout
    lanes: list[LaneView]
    strays: dict[str, int]


def describe(state: State, layouts: Layouts, clock: Clock, topic: str, timeout_ms: float = 1000) -> TopicView:
    """Read a topic's layout anew, and all its watermarks.

    Raises UnknownTopic, StateUnavailable, CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, clock)
    layout = layouts.refresh(topic, deadline)
    homes = lanes_of_topic(layout)
    strays_key = redis_keys.strays_key(topic)
    calls = [Call(home.slot, (b"GET", home.watermark_key)) for home in homes]
    calls.append(Call(routing.key_slot(strays_key), (b"HGETALL", strays_key)))
    *marks, counts = state.run(calls, deadline)
    shards = state.hosts([home.slot for home in homes], deadline)
    lanes = [
        LaneView(home, shard, None if mark is None else decode_watermark(home.watermark_key, mark))
        for home, shard, mark in zip(homes, shards, marks, strict=True)
    ]
    return TopicView(layout, lanes, _strays(layout, counts))


def partitions(
    state: State, layouts: Layouts, clock: Clock, topic: str, timeout_ms: float = 1000
) -> dict[str, list[int]]:
    """Which node has which of the topic's partitions: "host:port" -> partitions, in order.

    A partition whose stripes lie on several nodes is named by each. Raises as `describe`.
    """
    deadline = Deadline.after_ms(timeout_ms, clock)
    homes = lanes_of_topic(layouts.refresh(topic, deadline))
    shards = state.hosts([home.slot for home in homes], deadline)
    found: dict[str, set[int]] = {}
    for home, shard in zip(homes, shards, strict=True):
        found.setdefault(shard, set()).add(home.partition)
    return {shard: sorted(numbers) for shard, numbers in found.items()}


def _strays(layout: Layout, counts: list[bytes]) -> dict[str, int]:
    """The totals of the layout's generation: the fields are `GENERATION.name`."""
    prefix = b"%d." % layout.generation
    pairs = zip(counts[::2], counts[1::2], strict=True)
    return {name[len(prefix) :].decode(): int(count) for name, count in pairs if name.startswith(prefix)}
