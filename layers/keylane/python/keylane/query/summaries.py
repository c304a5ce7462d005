"""Reads how many topics are at once: in at most four rounds of requests, however many topics there are.

How much memory a topic takes is estimated: the mean of a few keys, each with its history and its share of the
lane's indexes, times the number of keys. A topic is sampled once a minute, and few topics in one request.
Without an index nobody knows which keys there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from keylane import routing
from keylane.ports import Call, Deadline
from keylane.query.key_count import count_commands
from keylane.query.topics import stray_totals
from keylane.state import redis_keys
from keylane.state.field_index import KEYS, indexes_of
from keylane.state.lanes import decode_watermark, index_keys, lanes_of_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from keylane.model.records import Layout, Watermark
    from keylane.query.store import Store
    from keylane.state.lanes import Lane

MOST_LANES = 20_000
"""Of all topics of one answer; a topic that has more is read alone."""
SAMPLED_TOPICS, SAMPLED_LANES, SAMPLED_KEYS = 40, 4, 4
"""Of one request, of a topic, of a lane."""
SAMPLE_S = 60


class TopicSummary(NamedTuple):
    """A topic's lanes with their watermarks, and the strays of its generation.

    `keys`: how many it has, None without an index. `memory_bytes`: about how many they take in Redis, None
    where that is not known, or not yet.
    """

    layout: Layout
    lanes: Sequence[tuple[Lane, Watermark | None]]
    strays: dict[str, int]
    keys: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemorySamples:
    """The mean bytes of a key by topic and generation, None where no key was met; each for `SAMPLE_S`."""

    _kept: dict[tuple[str, int], tuple[float | None, float]] = field(default_factory=dict)

    def is_due(self, layout: Layout, now_s: float) -> bool:
        """Return whether a topic has to be sampled."""
        return self._kept.get((layout.topic, layout.generation), (None, 0.0))[1] <= now_s

    def mean_of(self, layout: Layout) -> float | None:
        """Return the mean bytes of a topic's keys."""
        return self._kept.get((layout.topic, layout.generation), (None, 0.0))[0]

    def keep(self, layout: Layout, mean_bytes: float | None, now_s: float) -> None:
        """Keep what was sampled, and drop what nobody has asked for since."""
        for old in [each for each, (_, until_s) in self._kept.items() if until_s + SAMPLE_S < now_s]:
            self._kept.pop(old, None)
        self._kept[layout.topic, layout.generation] = mean_bytes, now_s + SAMPLE_S


class _SampledLane(NamedTuple):
    """A lane of a sampled topic: some of its keys, and how many the first part of its index has."""

    layout: Layout
    lane: Lane
    keys: Sequence[bytes]
    part_count: int

    @property
    def key_calls(self) -> list[Call]:
        """Ask for the memory of each key, and of its history."""
        of_lane = self.lane.tag, self.layout.topic, self.layout.generation
        names = [redis_keys.value_key(*of_lane, key) for key in self.keys]
        if self.layout.options.has_history:
            names += [redis_keys.history_key(*of_lane, key) for key in self.keys]
        return [_memory_call(self.lane, name) for name in names]

    @property
    def index_calls(self) -> list[Call]:
        """Ask for the memory of the first part of each index."""
        indexes = [KEYS, *indexes_of(self.layout.options).indexes]
        return [_memory_call(self.lane, index_keys(self.layout, self.lane, each)[0]) for each in indexes]


def read_summaries(
    store: Store, samples: MemorySamples, topics: Sequence[str], timeout_ms: float
) -> dict[str, TopicSummary | None]:
    """Return the summary of each topic, None for one without a state that can be read.

    Of the first of `topics` alone where all have more than `MOST_LANES`. Raises StateUnavailable,
    CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    layouts = _first_layouts(store.layouts.refresh_all(topics, deadline))
    kept = [layout for layout in layouts.values() if layout is not None]
    _sample_memory(store, samples, kept, deadline)
    calls = [_calls_of(layout, store.clock.now_ms()) for layout in kept]
    replies = iter(store.state.run([call for each in calls for call in each], deadline))
    summaries = [_summary_of(layout, replies, samples.mean_of(layout)) for layout in kept]
    return dict.fromkeys(layouts) | {each.layout.topic: each for each in summaries}


def _first_layouts(layouts: Mapping[str, Layout | None]) -> dict[str, Layout | None]:
    found: dict[str, Layout | None] = {}
    lane_count = 0
    for topic, layout in layouts.items():
        lane_count += layout.partition_count * layout.stripes if layout else 0
        if found and lane_count > MOST_LANES:
            break
        found[topic] = layout
    return found


def _calls_of(layout: Layout, now_ms: int) -> Iterator[Call]:
    """Ask for the strays, then for each lane's watermark and, with an index, the number of its keys."""
    strays_key = redis_keys.strays_key(layout.topic)
    yield Call(routing.key_slot(strays_key), (b"HGETALL", strays_key))
    for lane in lanes_of_topic(layout):
        yield Call(lane.slot, (b"GET", lane.watermark_key))
        if layout.options.index:
            yield from (Call(lane.slot, words) for words in count_commands(layout, lane, now_ms))


def _summary_of(layout: Layout, replies: Iterator[Any], mean_bytes: float | None) -> TopicSummary:
    strays = stray_totals(layout, next(replies))
    lanes, keys = [], 0
    for lane in lanes_of_topic(layout):
        data = next(replies)
        lanes.append((lane, None if data is None else decode_watermark(lane.watermark_key, data)))
        keys += sum(next(replies) for _ in range(layout.options.index))
    if not layout.options.index:
        return TopicSummary(layout, lanes, strays)
    memory_bytes = None if mean_bytes is None and keys else round((mean_bytes or 0) * keys)
    return TopicSummary(layout, lanes, strays, keys, memory_bytes)


def _sample_memory(
    store: Store, samples: MemorySamples, layouts: Sequence[Layout], deadline: Deadline
) -> None:
    now_s = store.clock.monotonic_s()
    indexed = [each for each in layouts if each.options.index]
    wanted = [each for each in indexed if samples.is_due(each, now_s)][:SAMPLED_TOPICS]
    places = [(layout, lane) for layout in wanted for lane in _some_lanes(layout)]
    calls = []
    for layout, lane in places:
        part = index_keys(layout, lane, KEYS)[0]
        calls.append(Call(lane.slot, (b"ZRANDMEMBER", part, b"%d" % SAMPLED_KEYS)))
        calls.append(Call(lane.slot, (b"ZCARD", part)))
    found = store.state.run(calls, deadline)
    lanes = [_SampledLane(*place, *own) for place, *own in zip(places, found[::2], found[1::2], strict=True)]
    calls = [call for lane in lanes for call in (*lane.key_calls, *lane.index_calls)]
    replies = iter(store.state.run(calls, deadline))
    for layout in wanted:
        own = [_bytes_of_keys(lane, replies) for lane in lanes if lane.layout is layout]
        means = [mean for mean in own if mean is not None]
        samples.keep(layout, sum(means) / len(means) if means else None, now_s)


def _some_lanes(layout: Layout) -> list[Lane]:
    """Return lanes that lie apart."""
    lanes = lanes_of_topic(layout)
    return lanes[:: -(-len(lanes) // SAMPLED_LANES)]


def _memory_call(lane: Lane, name: bytes) -> Call:
    return Call(lane.slot, (b"MEMORY", b"USAGE", name))


def _bytes_of_keys(lane: _SampledLane, replies: Iterator[Any]) -> float | None:
    """Return the mean bytes of the lane's keys with their share of the indexes; None for a lane without."""
    own = sum(next(replies) or 0 for _ in lane.key_calls)
    indexes = sum(next(replies) or 0 for _ in lane.index_calls)
    return own / len(lane.keys) + indexes / lane.part_count if lane.keys and lane.part_count else None
