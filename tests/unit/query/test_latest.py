"""Reading a key through a fake state: routing, freshness, stale layouts, waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.builders import (
    NOW_MS,
    a_lane,
    a_layout,
    a_watermark,
    lane_of,
    layout_entry,
    value_entry,
    value_key,
    watermark_entry,
)
from tests.support.stored import TTL_S, Reader

from keylane import routing
from keylane.errors import (
    BadRequest,
    CorruptState,
    LaneBuilding,
    PositionNotReached,
    StateTooOld,
    TooLarge,
    UnknownTopic,
)
from keylane.model.records import Position, Record
from keylane.state import codec, redis_keys
from keylane.state.lanes import given_key, lane_at, lane_of_key, strays_key

if TYPE_CHECKING:
    from keylane.model.records import Answer, Layout

KEY = b"N14228"


@pytest.fixture
def layout() -> Layout:
    return a_layout()


def test_latest_record_comes_with_its_lanes_freshness(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"value", offset=42, timestamp_ms=7))
    answer = reader.latest(layout.topic, KEY)
    partition = routing.partition_for(KEY, 9)
    assert answer.record == Record(KEY, b"value", partition, 42, 7)
    assert answer.partition == partition
    assert answer.watermark == a_watermark()
    assert answer.age_ms(NOW_MS) == 200


def test_warm_read_is_one_round_trip(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"value"))
    reader.latest(layout.topic, KEY)
    reader.state.reads.clear()
    reader.latest(layout.topic, KEY)
    assert len(reader.state.reads) == 1


def test_read_of_an_own_write_is_one_round_trip_when_the_state_is_there(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"value"))
    reader.latest(layout.topic, KEY)
    reader.state.reads.clear()
    reader.latest(layout.topic, KEY, min_position=Position(routing.partition_for(KEY, 9), 99))
    assert len(reader.state.reads) == 1


def test_absent_key_is_an_answer_with_freshness(layout: Layout):
    reader = Reader(layout_entry(layout), watermark_entry(layout, KEY))
    answer = reader.latest(layout.topic, KEY)
    assert answer.record is None
    assert answer.watermark.next_offset == 100


def test_tombstones_marker_reads_as_absent(layout: Layout):
    assert Reader(a_lane(layout, KEY, None)).latest(layout.topic, KEY).record is None


def test_stray_names_the_partition_it_came_from(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"v", source_partition=8))
    answer = reader.latest(layout.topic, KEY)
    assert answer.record
    assert answer.record.position == Position(8, 42)
    assert answer.partition == routing.partition_for(KEY, 9)


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32", "fnv1a"])
@pytest.mark.parametrize("stripes", [1, 7])
def test_keys_are_found_whatever_the_layout(partitioner: str, stripes: int):
    layout = a_layout(partition_count=5, stripes=stripes, partitioner=partitioner, generation=3)
    for number in range(30):
        key = b"\xff\x00%d" % number
        answer = Reader(a_lane(layout, key, b"v%d" % number)).latest(layout.topic, key)
        assert answer.record
        assert answer.record.value == b"v%d" % number


def test_unknown_topic_is_refused_and_not_cached(layout: Layout):
    reader = Reader()
    with pytest.raises(UnknownTopic, match=layout.topic):
        reader.latest(layout.topic, KEY)
    reader.state.entries |= a_lane(layout, KEY, b"v")
    assert reader.latest(layout.topic, KEY).record


def test_layout_is_read_once_in_its_time_to_live(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"v"))
    for _ in range(3):
        reader.latest(layout.topic, KEY)
    assert reader.state.reads.count([redis_keys.layout_key(layout.topic)]) == 1
    reader.time.move(TTL_S)
    reader.latest(layout.topic, KEY)
    assert reader.state.reads.count([redis_keys.layout_key(layout.topic)]) == 2


def test_removed_generation_sends_the_reader_to_the_new_layout(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"old"))
    reader.latest(layout.topic, KEY)
    reader.state.entries = a_lane(replace(layout, generation=2), KEY, b"new")
    answer = reader.latest(layout.topic, KEY)
    assert answer.record
    assert answer.record.value == b"new"


def test_superseded_lane_whose_generation_is_still_named_is_answered_as_it_is(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"v"), watermark_entry(layout, KEY, a_watermark(superseded=True)))
    for _ in range(2):
        answer = reader.latest(layout.topic, KEY)
        assert answer.record
        assert answer.record.value == b"v"
    assert len(reader.state.reads) == 5  # the lane twice, the layout at first and each time to be sure


def test_lane_that_is_being_built_reports_its_progress(layout: Layout):
    building = a_watermark(complete_as_of_ms=0, log_end=400)
    reader = Reader(a_lane(layout, KEY, b"v"), watermark_entry(layout, KEY, building))
    with pytest.raises(LaneBuilding, match=r"offset 100 of 400 \(25 %\)") as caught:
        reader.latest(layout.topic, KEY)
    assert caught.value.percent == 25


def test_key_over_64_kib_is_refused(layout: Layout):
    with pytest.raises(TooLarge, match="65537"):
        Reader().latest(layout.topic, b"k" * 65_537)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02" + b"\x00" * 30, b"plain text that someone put here"])
def test_corrupt_value_names_its_key(layout: Layout, data: bytes):
    reader = Reader(a_lane(layout, KEY, b"v"), {value_key(layout, KEY): data})
    with pytest.raises(CorruptState) as caught:
        reader.latest(layout.topic, KEY)
    assert caught.value.where == value_key(layout, KEY).decode()


def test_corrupt_key_is_named_in_printable_characters_and_cut(layout: Layout):
    key = b"\x00\xff\n" * 1000
    reader = Reader(a_lane(layout, key, b"v"), {value_key(layout, key): b""})
    with pytest.raises(CorruptState) as caught:
        reader.latest(layout.topic, key)
    assert caught.value.where.isprintable()
    assert "\\x00\\xff\\n" in caught.value.where
    assert len(caught.value.where) < 250


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        codec.encode_layout(a_layout(partitioner="sha1")),
        codec.encode_layout(a_layout(partition_by="suffix:|")),
        codec.encode_layout(a_layout(partition_count=16_384, stripes=2)),
    ],
    ids=["no JSON", "unknown partitioner", "unknown part of the key", "more lanes than slots"],
)
def test_corrupt_layout_names_its_key(layout: Layout, data: bytes):
    reader = Reader({redis_keys.layout_key(layout.topic): data})
    with pytest.raises(CorruptState, match=layout.topic):
        reader.latest(layout.topic, KEY)


def test_read_waits_until_its_offset_is_in_the_state(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"old"))

    def arrive() -> None:
        if len(reader.time.pauses) == 5:
            reader.state.entries |= value_entry(layout, KEY, b"new", offset=100)
            reader.state.entries |= watermark_entry(layout, KEY, a_watermark(101))

    reader.time.on_pause = arrive
    answer = reader.latest(layout.topic, KEY, min_position=100, position_ms=5_000)
    assert answer.record
    assert answer.record.value == b"new"
    assert reader.time.pauses == [0.002, 0.004, 0.008, 0.010, 0.010]


def test_a_read_that_waits_waits_for_a_lane_that_is_being_built_too(layout: Layout):
    building = watermark_entry(layout, KEY, a_watermark(50, complete_as_of_ms=0))
    whole = watermark_entry(layout, KEY, a_watermark(101))
    reader = Reader(a_lane(layout, KEY, b"new", offset=100), building)

    def arrive() -> None:
        if len(reader.time.pauses) == 3:
            reader.state.entries |= whole

    reader.time.on_pause = arrive
    answer = reader.latest(layout.topic, KEY, min_position=100, position_ms=5_000)
    assert answer.record
    assert answer.record.value == b"new"
    reader.state.entries |= building
    with pytest.raises(LaneBuilding):
        reader.latest(layout.topic, KEY, min_position=100, position_ms=50)


def test_waiting_ends_at_its_bound_and_reports_how_far_the_state_is(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"old"))
    began_s = reader.time.seconds
    with pytest.raises(PositionNotReached) as caught:
        reader.latest(layout.topic, KEY, min_position=100, position_ms=300)
    assert caught.value.next_offset == 100
    assert reader.time.seconds - began_s == pytest.approx(0.3)


def test_no_wait_asks_once(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"old"))
    with pytest.raises(PositionNotReached):
        reader.latest(layout.topic, KEY, min_position=100, position_ms=0)
    assert reader.time.pauses == []


def test_position_in_another_partition_waits_on_that_partitions_lane(layout: Layout):
    other = (routing.partition_for(KEY, 9) + 1) % 9
    reader = Reader(a_lane(layout, KEY, b"old"), watermark_entry(layout, KEY, a_watermark(7), other))

    def arrive() -> None:
        if len(reader.time.pauses) == 3:
            # As the writer does: the stray first, then its own partition's watermark.
            reader.state.entries |= value_entry(layout, KEY, b"stray", offset=7, source_partition=other)
            reader.state.entries |= watermark_entry(layout, KEY, a_watermark(8), other)

    reader.time.on_pause = arrive
    answer = reader.latest(layout.topic, KEY, min_position=Position(other, 7), position_ms=1_000)
    assert answer.record
    assert answer.record.value == b"stray"
    assert answer.partition == routing.partition_for(KEY, 9)


def test_position_in_another_partition_that_has_not_begun_is_not_reached(layout: Layout):
    other = (routing.partition_for(KEY, 9) + 1) % 9
    reader = Reader(a_lane(layout, KEY, b"old"))
    with pytest.raises(PositionNotReached, match="below 0"):
        reader.latest(layout.topic, KEY, min_position=Position(other, 0), position_ms=50)


def test_position_in_a_partition_by_which_the_topic_has_grown_waits_on_its_watermark(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"old"))
    stripe_home, _, tag = lane_of(layout, KEY, 13 % 9)
    mark_key = redis_keys.watermark_key(tag, layout.topic, layout.generation, 13, 0)
    assert stripe_home == 4

    def arrive() -> None:
        if len(reader.time.pauses) == 3:
            reader.state.entries |= value_entry(layout, KEY, b"stray", offset=7, source_partition=13)
            reader.state.entries[mark_key] = codec.encode_watermark(a_watermark(8))
            reader.state.entries |= watermark_entry(layout, KEY, a_watermark(complete_as_of_ms=NOW_MS + 1))

    reader.time.on_pause = arrive
    answer = reader.latest(layout.topic, KEY, min_position=Position(13, 7), position_ms=1_000)
    assert answer.record
    assert answer.record.value == b"stray"


@pytest.mark.parametrize("partition", [9, 13, 17])
def test_position_in_a_partition_that_the_topic_does_not_have_is_refused_at_the_job_s_next_look(
    layout: Layout, partition: int
):
    reader = Reader(a_lane(layout, KEY, b"v"))

    def look() -> None:
        if len(reader.time.pauses) == 3:
            reader.state.entries |= watermark_entry(layout, KEY, a_watermark(complete_as_of_ms=NOW_MS))

    reader.time.on_pause = look
    with pytest.raises(BadRequest, match=f"no partition {partition}: its last one is 8") as caught:
        reader.latest(layout.topic, KEY, min_position=Position(partition, 1), position_ms=5_000)
    assert caught.value.parameter == "Keylane-Min-Position"
    assert len(reader.time.pauses) == 3


def test_position_in_a_partition_that_only_a_primary_knows_yet_is_not_refused(layout: Layout):
    current = a_watermark(complete_as_of_ms=NOW_MS)
    reader = Reader(a_lane(layout, KEY, b"v"), watermark_entry(layout, KEY, current))
    tag = lane_of(layout, KEY, 13 % 9)[2]
    mark_key = redis_keys.watermark_key(tag, layout.topic, layout.generation, 13, 0)
    reader.state.entries[mark_key] = codec.encode_watermark(a_watermark(8))
    reader.state.lagging = {mark_key: None}
    answer = reader.latest(layout.topic, KEY, min_position=Position(13, 7), position_ms=1_000)
    assert answer.record
    assert not reader.time.pauses


def test_partition_that_no_topic_has_is_refused(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"v"))
    with pytest.raises(BadRequest, match="partition 16384 ") as caught:
        reader.latest(layout.topic, KEY, min_position=Position(16_384, 0), position_ms=1_000)
    assert caught.value.parameter == "Keylane-Min-Position"


def test_position_in_a_partition_far_beyond_the_topics_is_refused_at_once(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"v"))
    with pytest.raises(BadRequest, match="no partition 18: its last one is 8") as caught:
        reader.latest(layout.topic, KEY, min_position=Position(18, 1), position_ms=5_000)
    assert caught.value.parameter == "Keylane-Min-Position"
    assert not reader.time.pauses
    # The topic may have grown a moment ago, while no job says so.
    with pytest.raises(PositionNotReached):
        reader.latest(layout.topic, KEY, min_position=Position(17, 1), position_ms=50)


def test_position_in_a_partition_of_a_newer_layout_is_not_refused_by_the_kept_one(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"v"))
    reader.latest(layout.topic, KEY)
    grown = replace(layout, partition_count=30)
    reader.state.entries |= layout_entry(grown)
    with pytest.raises((PositionNotReached, LaneBuilding)):
        reader.latest(layout.topic, KEY, min_position=Position(29, 1), position_ms=50)


def test_state_that_is_older_than_asked_for_is_refused_or_waited_for(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"v"))
    with pytest.raises(StateTooOld):
        reader.latest(layout.topic, KEY, max_age_ms=199)
    assert reader.time.pauses == []

    def written() -> None:
        now_ms = reader.time.now_ms
        reader.state.entries |= watermark_entry(layout, KEY, a_watermark(complete_as_of_ms=now_ms - 10))

    reader.time.on_pause = written
    assert reader.latest(layout.topic, KEY, max_age_ms=100, change_ms=1_000).record
    assert len(reader.time.pauses) == 1


def test_known_record_is_waited_on_until_it_changes(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"old"))

    def is_known(answer: Answer) -> bool:
        return answer.record is not None and answer.record.offset == 42

    def changed() -> None:
        if len(reader.time.pauses) == 6:
            reader.state.entries |= value_entry(layout, KEY, b"new", offset=43)

    reader.time.on_pause = changed
    answer = reader.latest(layout.topic, KEY, is_known=is_known, change_ms=5_000)
    assert answer.record
    assert answer.record.value == b"new"
    assert reader.time.pauses == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.05, 0.05])


def test_known_record_that_does_not_change_is_answered_at_the_bound(layout: Layout):
    reader = Reader(a_lane(layout, KEY, b"old"))
    assert reader.latest(layout.topic, KEY, is_known=lambda _: True, change_ms=1_000).record
    assert sum(reader.time.pauses) == pytest.approx(1)
    reader.time.pauses.clear()
    assert reader.latest(layout.topic, KEY, is_known=lambda _: True).record
    assert reader.time.pauses == []


def test_a_stray_that_a_replica_lacks_is_read_from_the_primary(layout: Layout):
    other = (routing.partition_for(KEY, 9) + 1) % 9
    reader = Reader(a_lane(layout, KEY, b"stray"), watermark_entry(layout, KEY, a_watermark(8), other))
    reader.state.lagging = value_entry(layout, KEY, b"old")
    answer = reader.latest(layout.topic, KEY, min_position=Position(other, 7), position_ms=0)
    assert answer.record
    assert answer.record.value == b"stray"


def test_a_stray_that_a_failover_took_back_is_waited_for_until_it_is_there_again(layout: Layout):
    other = (routing.partition_for(KEY, 9) + 1) % 9
    lane, first = lane_of_key(layout, KEY), lane_at(layout, other, 0)
    reader = Reader(a_lane(layout, KEY, b"old"), watermark_entry(layout, KEY, a_watermark(9), other))
    reader.state.hashes[given_key(layout, first)] = {str(lane).encode(): b"8"}
    taken = reader.state.hashes[strays_key(layout, lane)] = {b"%d" % other: b"6"}
    with pytest.raises(PositionNotReached, match="below 6"):
        reader.latest(layout.topic, KEY, min_position=Position(other, 7), position_ms=50)
    reader.time.pauses.clear()

    def arrive() -> None:
        if len(reader.time.pauses) == 3:
            reader.state.entries |= value_entry(layout, KEY, b"stray", offset=7, source_partition=other)
            taken[b"%d" % other] = b"8"

    reader.time.on_pause = arrive
    answer = reader.latest(layout.topic, KEY, min_position=Position(other, 7), position_ms=1_000)
    assert answer.record
    assert answer.record.value == b"stray"
