"""Many keys, and one key of several topics, through a fake state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import (
    NOW_MS,
    TERMS,
    a_lane,
    a_layout,
    a_watermark,
    lane_of,
    layout_entry,
    value_entry,
    value_key,
    watermark_entry,
)
from tests.support.fakes import FakeState, FakeTime

from keylane import routing
from keylane.errors import (
    BadRequest,
    CorruptState,
    LaneBuilding,
    NullKey,
    StateTooOld,
    StateUnavailable,
    UnknownTopic,
)
from keylane.query.join import read_joined
from keylane.query.layouts import Layouts
from keylane.query.multi_get import read_many
from keylane.query.store import Store

if TYPE_CHECKING:
    from keylane.model.records import Layout

KEYS = [b"key-%d" % number for number in range(30)]


class Reader:
    """One warm function."""

    def __init__(self, *entries: dict[bytes, bytes]) -> None:
        self.state = FakeState()
        self.put(*entries)
        self.time = FakeTime(NOW_MS)
        self.store = Store(self.state, Layouts(self.state, self.time.clock, 30), self.time.clock)

    def put(self, *entries: dict[bytes, bytes]) -> None:
        for each in entries:
            self.state.entries |= each

    def many(
        self, topic: str, keys: list[bytes], *, atomic: bool = False, **terms: Any
    ) -> list[tuple[bytes, bytes | None]]:
        found, self.watermarks = read_many(self.store, topic, keys, TERMS._replace(**terms), atomic=atomic)
        records = {key: answer.record for lane in found for key, answer in lane.rows()}
        return [(key, each.value if (each := records[key]) else None) for key in keys]

    def join(self, *topics: str, key: bytes = b"k", **terms: Any) -> list[bytes | None]:
        found = read_joined(self.store, topics, key, TERMS._replace(**terms))
        return [answer.record.value if answer.record else None for answer in found]


def a_topic_with(layout: Layout, keys: list[bytes], **mark: Any) -> dict[bytes, bytes]:
    entries = layout_entry(layout)
    for key in keys:
        entries |= watermark_entry(layout, key, a_watermark(**mark)) | value_entry(layout, key, b"v" + key)
    return entries


@pytest.mark.parametrize("stripes", [1, 4])
def test_records_come_in_the_order_asked_for_by_one_command_a_lane(stripes: int):
    layout = a_layout(stripes=stripes)
    reader = Reader(a_topic_with(layout, KEYS))
    asked = [*reversed(KEYS), KEYS[3], KEYS[3]]
    assert reader.many(layout.topic, asked) == [(key, b"v" + key) for key in asked]
    ((commands),) = reader.state.runs
    assert len(commands) == len({lane_of(layout, key) for key in KEYS})
    assert {name for name, *_ in commands} == {b"MGET"}


def test_absent_and_deleted_keys_are_marked_so():
    layout = a_layout()
    reader = Reader(a_topic_with(layout, KEYS[:2]), value_entry(layout, KEYS[1], None))
    reader.put(watermark_entry(layout, b"absent"))
    assert reader.many(layout.topic, [b"absent", *KEYS[:2]]) == [
        (b"absent", None),
        (KEYS[0], b"v" + KEYS[0]),
        (KEYS[1], None),
    ]


def test_freshness_is_that_of_the_oldest_lane():
    layout = a_layout()
    reader = Reader(a_topic_with(layout, KEYS))
    reader.put(watermark_entry(layout, KEYS[0], a_watermark(7, complete_as_of_ms=NOW_MS - 900)))
    reader.many(layout.topic, KEYS)
    assert reader.watermarks.age_ms(NOW_MS) == 900
    assert reader.watermarks.next_offsets[lane_of(layout, KEYS[0])[0]] == 7
    assert reader.many(layout.topic, KEYS, max_age_ms=900)
    with pytest.raises(StateTooOld) as caught:
        reader.many(layout.topic, KEYS, max_age_ms=899)
    assert caught.value.age_ms == 900


def test_a_partition_reports_the_least_offset_of_its_stripes():
    layout = a_layout(partition_count=1, stripes=2)
    first = next(key for key in KEYS if routing.stripe_for(key, 2) == 0)
    second = next(key for key in KEYS if routing.stripe_for(key, 2) == 1)
    reader = Reader(a_topic_with(layout, [first, second]))
    reader.put(watermark_entry(layout, second, a_watermark(50)))
    reader.many(layout.topic, [first, second])
    assert reader.watermarks.next_offsets == {0: 50}


def test_atomic_reads_are_of_one_lane():
    layout = a_layout()
    partition = lane_of(layout, KEYS[0])[0]
    together = [key for key in KEYS if lane_of(layout, key)[0] == partition]
    other = next(key for key in KEYS if lane_of(layout, key)[0] != partition)
    reader = Reader(a_topic_with(layout, KEYS))
    assert len(reader.many(layout.topic, together, atomic=True)) == len(together)
    with pytest.raises(BadRequest) as caught:
        reader.many(layout.topic, [*together, other], atomic=True)
    assert caught.value.parameter == "atomic"
    assert together[0].decode() in str(caught.value)
    assert other.decode() in str(caught.value)
    reader.state.moving.add(routing.slot_for(partition, 0, 9, 1))
    with pytest.raises(StateUnavailable):
        reader.many(layout.topic, together, atomic=True)


@pytest.mark.parametrize("stripes", [1, 4])
def test_keys_of_one_partition_key_are_read_at_one_moment(stripes: int):
    layout = a_layout(stripes=stripes, partition_by="prefix:|")
    keys = [b"ann|%d" % number for number in range(40)]
    reader = Reader(a_topic_with(layout, [*keys, *KEYS]))
    assert reader.many(layout.topic, keys, atomic=True) == [(key, b"v" + key) for key in keys]
    assert [len(commands) for commands in reader.state.runs] == [1]
    with pytest.raises(BadRequest, match="different lanes"):
        reader.many(layout.topic, KEYS, atomic=True)


def test_stale_layout_is_read_again_once():
    layout = a_layout()
    reader = Reader(a_topic_with(layout, KEYS))
    reader.many(layout.topic, KEYS)
    grown = a_layout(layout.topic, 18, generation=2)
    reader.put(a_topic_with(grown, KEYS), value_entry(grown, KEYS[0], b"new"))
    reader.put(watermark_entry(layout, KEYS[0], a_watermark(superseded=True)))
    assert reader.many(layout.topic, KEYS)[0] == (KEYS[0], b"new")
    assert reader.watermarks.layout == grown


def test_superseded_lane_is_valid_while_the_layout_still_names_it():
    layout = a_layout()
    reader = Reader(a_topic_with(layout, KEYS, superseded=True))
    assert reader.many(layout.topic, KEYS[:1]) == [(KEYS[0], b"v" + KEYS[0])]


def test_lane_that_is_being_built_is_503_unless_partial():
    layout = a_layout()
    reader = Reader(a_topic_with(layout, KEYS, complete_as_of_ms=0))
    with pytest.raises(LaneBuilding):
        reader.many(layout.topic, KEYS)
    assert len(reader.many(layout.topic, KEYS, partial=True)) == len(KEYS)
    assert reader.watermarks.is_building
    with pytest.raises(StateTooOld):
        reader.many(layout.topic, KEYS, partial=True, max_age_ms=10**9)


def test_lane_without_a_watermark_is_building_even_where_the_layout_is_gone():
    layout = a_layout()
    reader = Reader(layout_entry(layout))
    with pytest.raises(LaneBuilding):
        reader.many(layout.topic, KEYS, partial=True)
    reader.state.entries.clear()
    with pytest.raises(LaneBuilding):
        reader.many(layout.topic, KEYS)
    with pytest.raises(UnknownTopic):
        reader.many("other", KEYS)


def test_empty_keys_and_strange_bytes_are_refused():
    layout = a_layout()
    reader = Reader(a_topic_with(layout, KEYS))
    with pytest.raises(NullKey):
        reader.many(layout.topic, [b""])
    reader.put({value_key(layout, KEYS[0]): b"x"})
    with pytest.raises(CorruptState):
        reader.many(layout.topic, KEYS)


def test_join_reads_all_topics_by_one_command():
    orders, people, none = a_layout(), a_layout(), a_layout()
    reader = Reader(a_lane(orders, b"k", b"order"), a_lane(people, b"k", b"person"))
    reader.put(layout_entry(none), watermark_entry(none, b"k"))
    assert reader.join(people.topic, none.topic, orders.topic) == [b"person", None, b"order"]
    assert [len(commands) for commands in reader.state.runs] == [1]


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("partition_count", {"partition_count": 8}),
        ("stripes", {"stripes": 2}),
        ("partitioner", {"partitioner": "crc32"}),
        ("partition_by", {"partition_by": "prefix:|"}),
    ],
)
def test_join_of_topics_with_different_layouts_says_which_and_in_what(field: str, other: dict[str, Any]):
    one, two = a_layout(), a_layout(**other)
    reader = Reader(a_lane(one, b"k", b"1"), a_lane(two, b"k", b"2"))
    with pytest.raises(BadRequest, match=field) as caught:
        reader.join(one.topic, two.topic)
    assert one.topic in str(caught.value)
    assert two.topic in str(caught.value)


def test_join_sees_that_a_topic_has_grown():
    one, two = a_layout(), a_layout()
    reader = Reader(a_lane(one, b"k", b"1"), a_lane(two, b"k", b"2"))
    reader.join(one.topic, two.topic)
    again = a_layout(one.topic, generation=2)
    reader.put(a_lane(again, b"k", b"new"), watermark_entry(one, b"k", a_watermark(superseded=True)))
    assert reader.join(one.topic, two.topic) == [b"new", b"2"]
    grown = a_layout(one.topic, 18, generation=3)
    reader.put(a_lane(grown, b"k", b"newer"), watermark_entry(again, b"k", a_watermark(superseded=True)))
    with pytest.raises(BadRequest, match="partition_count"):
        reader.join(one.topic, two.topic)
    grown_too = a_layout(two.topic, 18, generation=2)
    reader.put(a_lane(grown_too, b"k", b"2 too"))
    assert reader.join(one.topic, two.topic) == [b"newer", b"2 too"]


def test_join_is_as_fresh_as_its_oldest_lane():
    one, two = a_layout(), a_layout()
    reader = Reader(a_lane(one, b"k", b"1"), a_lane(two, b"k", b"2"))
    reader.put(watermark_entry(two, b"k", a_watermark(complete_as_of_ms=NOW_MS - 700)))
    assert reader.join(one.topic, two.topic, max_age_ms=700)
    with pytest.raises(StateTooOld):
        reader.join(one.topic, two.topic, max_age_ms=699)
    reader.put(watermark_entry(two, b"k", a_watermark(complete_as_of_ms=0)))
    with pytest.raises(LaneBuilding):
        reader.join(one.topic, two.topic)
    assert reader.join(one.topic, two.topic, partial=True) == [b"1", b"2"]
