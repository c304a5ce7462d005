"""Many keys, and one key of several topics, through a fake state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import (
    a_lane,
    a_layout,
    a_watermark,
    lane_of,
    layout_entry,
    value_entry,
    value_key,
    watermark_entry,
)
from tests.support.stored import Reader

from keylane import routing
from keylane.errors import (
    BadRequest,
    CorruptState,
    StateUnavailable,
)

if TYPE_CHECKING:
    from keylane.model.records import Answer, Layout

KEYS = [b"key-%d" % number for number in range(30)]


def values_of(answers: list[Answer]) -> list[bytes | None]:
    return [answer.record.value if answer.record else None for answer in answers]


def a_topic_with(layout: Layout, keys: list[bytes]) -> dict[bytes, bytes]:
    entries = layout_entry(layout)
    for key in keys:
        entries |= watermark_entry(layout, key) | value_entry(layout, key, b"v" + key)
    return entries


@pytest.mark.parametrize("stripes", [1, 4])
def test_records_come_in_the_order_asked_for_by_one_command_a_lane(stripes: int):
    layout = a_layout(stripes=stripes)
    reader = Reader(a_topic_with(layout, KEYS))
    asked = [*reversed(KEYS), KEYS[3], KEYS[3]]
    assert reader.many(layout.topic, asked)[0] == [(key, b"v" + key) for key in asked]
    ((commands),) = reader.state.runs
    assert len(commands) == len({lane_of(layout, key) for key in KEYS})
    assert {name for name, *_ in commands} == {b"MGET"}


def test_absent_and_deleted_keys_are_marked_so():
    layout = a_layout()
    reader = Reader(a_topic_with(layout, KEYS[:2]), value_entry(layout, KEYS[1], None))
    reader.put(watermark_entry(layout, b"absent"))
    assert reader.many(layout.topic, [b"absent", *KEYS[:2]])[0] == [
        (b"absent", None),
        (KEYS[0], b"v" + KEYS[0]),
        (KEYS[1], None),
    ]


def test_a_partition_reports_the_least_offset_of_its_stripes():
    layout = a_layout(partition_count=1, stripes=2)
    first = next(key for key in KEYS if routing.stripe_for(key, 2) == 0)
    second = next(key for key in KEYS if routing.stripe_for(key, 2) == 1)
    reader = Reader(a_topic_with(layout, [first, second]))
    reader.put(watermark_entry(layout, second, a_watermark(50)))
    _, watermarks = reader.many(layout.topic, [first, second])
    assert watermarks.next_offsets == {0: 50}


def test_atomic_reads_are_of_one_lane():
    layout = a_layout()
    partition = lane_of(layout, KEYS[0])[0]
    together = [key for key in KEYS if lane_of(layout, key)[0] == partition]
    other = next(key for key in KEYS if lane_of(layout, key)[0] != partition)
    reader = Reader(a_topic_with(layout, KEYS))
    assert len(reader.many(layout.topic, together, atomic=True)[0]) == len(together)
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
    assert reader.many(layout.topic, keys, atomic=True)[0] == [(key, b"v" + key) for key in keys]
    assert [len(commands) for commands in reader.state.runs] == [1]
    with pytest.raises(BadRequest, match="different lanes"):
        reader.many(layout.topic, KEYS, atomic=True)


def test_strange_bytes_are_refused():
    layout = a_layout()
    reader = Reader(a_topic_with(layout, KEYS))
    reader.put({value_key(layout, KEYS[0]): b"x"})
    with pytest.raises(CorruptState):
        reader.many(layout.topic, KEYS)


def test_join_reads_all_topics_by_one_command():
    orders, people, none = a_layout(), a_layout(), a_layout()
    reader = Reader(a_lane(orders, b"k", b"order"), a_lane(people, b"k", b"person"))
    reader.put(layout_entry(none), watermark_entry(none, b"k"))
    assert values_of(reader.join(people.topic, none.topic, orders.topic)) == [b"person", None, b"order"]
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
    assert caught.value.parameter == "topics"
    assert one.topic in str(caught.value)
    assert two.topic in str(caught.value)


def test_topics_whose_lanes_an_older_version_placed_are_joined_one_after_the_other_alone():
    one, old, none = a_layout(), a_layout(centered=False), a_layout(centered=False)
    reader = Reader(a_lane(one, b"k", b"1"), a_lane(old, b"k", b"2"), a_lane(none, b"other", b"3"))
    reader.put(watermark_entry(none, b"k"))
    with pytest.raises(BadRequest, match="atomic=false") as caught:
        reader.join(one.topic, old.topic)
    assert caught.value.parameter == "topics"
    assert values_of(reader.join(none.topic, one.topic, old.topic, atomic=False)) == [None, b"1", b"2"]
    assert values_of(reader.join(none.topic, old.topic)) == [None, b"2"]


def test_join_sees_that_a_topic_has_grown():
    one, two = a_layout(), a_layout()
    reader = Reader(a_lane(one, b"k", b"1"), a_lane(two, b"k", b"2"))
    reader.join(one.topic, two.topic)
    again = a_layout(one.topic, generation=2)
    reader.put(a_lane(again, b"k", b"new"), watermark_entry(one, b"k", a_watermark(superseded=True)))
    assert values_of(reader.join(one.topic, two.topic)) == [b"new", b"2"]
    grown = a_layout(one.topic, 18, generation=3)
    reader.put(a_lane(grown, b"k", b"newer"), watermark_entry(again, b"k", a_watermark(superseded=True)))
    with pytest.raises(BadRequest, match="partition_count"):
        reader.join(one.topic, two.topic)
    grown_too = a_layout(two.topic, 18, generation=2)
    reader.put(a_lane(grown_too, b"k", b"2 too"))
    assert values_of(reader.join(one.topic, two.topic)) == [b"newer", b"2 too"]
