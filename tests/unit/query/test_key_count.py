"""The count of a topic's keys through a fake state: summed over all lanes, in one round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import NOW_MS, TERMS, a_layout, a_watermark, in_part, lane_of, layout_entry
from tests.support.fakes import FakeState, FakeTime

from keylane.errors import LaneBuilding, NoIndex, StateTooOld, UnknownTopic
from keylane.model.records import Options
from keylane.query.key_count import KeyCount, read_key_count
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.state import codec, redis_keys
from keylane.state.lanes import lanes_of_topic

if TYPE_CHECKING:
    from keylane.model.records import Layout, Watermark

INDEXED = Options(index=True)
KEYS = [b"k%03d" % number for number in range(200)]


@dataclass
class Topic:
    """A topic in a fake state: the indexes of its lanes, and their watermarks."""

    layout: Layout
    state: FakeState = field(default_factory=FakeState)
    time: FakeTime = field(default_factory=lambda: FakeTime(NOW_MS))

    def __post_init__(self) -> None:
        self.store = Store(self.state, Layouts(self.state, self.time.clock, 30), self.time.clock)
        self.publish(self.layout)

    def publish(self, layout: Layout) -> None:
        self.layout = layout
        self.state.entries |= layout_entry(layout)
        for lane in lanes_of_topic(layout):
            self.mark(lane.watermark_key, a_watermark())

    def mark(self, watermark_key: bytes, watermark: Watermark) -> None:
        self.state.entries[watermark_key] = codec.encode_watermark(watermark)

    def add(self, *keys: bytes, expires_ms: int | None = None) -> None:
        for key in keys:
            partition, stripe, tag = lane_of(self.layout, key)
            name = tag, self.layout.topic, self.layout.generation
            index = redis_keys.index_key(*name, partition, stripe)
            parts = self.layout.options.index
            self.state.sorted_sets.setdefault(in_part(index, key, parts), {})[key] = 0
            if expires_ms is not None:
                times = redis_keys.lane_key(*name, b"x", b"%d.%d" % (partition, stripe))
                self.state.sorted_sets.setdefault(in_part(times, key, parts), {})[key] = expires_ms

    def count(self, **terms: Any) -> KeyCount:
        return read_key_count(self.store, self.layout.topic, TERMS._replace(**terms))


@pytest.mark.parametrize("shape", [(1, 1), (9, 1), (3, 4), (60, 5)])
@pytest.mark.parametrize("parts", [1, 4])
def test_the_keys_of_all_lanes_are_counted_in_one_round(shape: tuple[int, int], parts: int):
    topic = Topic(a_layout(partition_count=shape[0], stripes=shape[1], options=Options(index=parts)))
    assert topic.count().count == 0
    topic.add(*KEYS)
    topic.state.runs.clear()
    assert topic.count().count == len(KEYS)
    (commands,) = topic.state.runs
    assert len(commands) == (1 + parts) * shape[0] * shape[1]


def test_a_lanes_watermark_is_read_before_its_keys_are_counted():
    topic = Topic(a_layout(options=INDEXED))
    topic.count()
    (commands,) = topic.state.runs
    assert [name for name, *_ in commands] == [b"GET", b"ZCARD"] * 9
    assert [key for name, key in commands if name == b"GET"] == [
        lane.watermark_key for lane in lanes_of_topic(topic.layout)
    ]


@pytest.mark.parametrize("parts", [1, 4])
def test_keys_count_until_the_millisecond_in_which_they_expire(parts: int):
    topic = Topic(a_layout(options=Options(index=parts, ttl_ms=1_000)))
    topic.add(*KEYS[:30], expires_ms=NOW_MS - 1)
    topic.add(*KEYS[30:50], expires_ms=NOW_MS)
    topic.add(*KEYS[50:], expires_ms=NOW_MS + 500)
    assert topic.count().count == 170
    topic.time.move(0.001)
    assert topic.count().count == 150


def test_topic_without_an_index_says_which_option_makes_one_and_is_counted_once_it_has_it():
    topic = Topic(a_layout(options=Options(history_count=3)))
    with pytest.raises(NoIndex, match="index = true"):
        topic.count()
    topic.publish(a_layout(topic.layout.topic, generation=2, options=INDEXED))
    topic.add(*KEYS)
    assert topic.count().count == len(KEYS)


def test_an_unknown_topic_has_no_count():
    topic = Topic(a_layout(options=INDEXED))
    with pytest.raises(UnknownTopic):
        read_key_count(topic.store, "nowhere", TERMS)


def test_a_count_goes_by_the_newer_layout_once_the_lanes_are_superseded():
    topic = Topic(a_layout(options=INDEXED))
    topic.add(*KEYS)
    topic.count()
    old = topic.layout
    topic.publish(a_layout(old.topic, 18, generation=2, options=INDEXED))
    topic.add(*KEYS[:5])
    for lane in lanes_of_topic(old):
        topic.mark(lane.watermark_key, a_watermark(superseded=True))
    found = topic.count()
    assert found.count == 5
    assert found.watermarks.layout.generation == 2


def test_freshness_is_that_of_all_lanes():
    topic = Topic(a_layout(options=INDEXED))
    topic.add(*KEYS)
    lane = lanes_of_topic(topic.layout)[4]
    topic.mark(lane.watermark_key, a_watermark(7, complete_as_of_ms=NOW_MS - 900))
    found = topic.count(max_age_ms=900)
    assert found.watermarks.next_offsets == {number: 7 if number == 4 else 100 for number in range(9)}
    assert found.watermarks.age_ms(NOW_MS) == 900
    with pytest.raises(StateTooOld):
        topic.count(max_age_ms=899)


def test_a_lane_that_is_being_built_is_counted_only_if_partial_allows_it():
    topic = Topic(a_layout(options=INDEXED))
    topic.add(*KEYS)
    topic.mark(lanes_of_topic(topic.layout)[4].watermark_key, a_watermark(complete_as_of_ms=0))
    with pytest.raises(LaneBuilding):
        topic.count()
    found = topic.count(partial=True)
    assert found.count == len(KEYS)
    assert found.watermarks.is_building
