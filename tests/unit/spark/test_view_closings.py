"""Closings: where they cut a range of offsets, and which event times make the same records late."""

from __future__ import annotations

import pytest

from keylane.state.codec import CodecError
from keylane.state.windows import Closing, Column, Definition
from keylane_spark.views.closings import KEPT, Stretch, are_passed, cut, decided, merged

CLOSINGS = [Closing((2, 1), 10), Closing((4, 1), 20), Closing((4, 1), 30), Closing((8, 5), 40)]
COUNT = (Column("n", "count"),)


def test_a_range_is_cut_where_other_records_become_late():
    assert cut((0, 0), (9, 3), CLOSINGS) == [
        Stretch((0, 0), (2, 1), 0),
        Stretch((2, 1), (4, 1), 10),
        Stretch((4, 1), (8, 3), 30),
        Stretch((8, 3), (9, 3), 40),
    ]


def test_what_is_read_for_the_first_time_is_one_stretch_under_the_last_closing():
    assert cut((8, 5), (9, 9), CLOSINGS) == [Stretch((8, 5), (9, 9), 40)]
    assert cut((8, 5), (8, 5), CLOSINGS) == [Stretch((8, 5), (8, 5), 40)]


def test_a_closing_that_one_partition_has_not_passed_makes_only_the_others_records_late():
    assert cut((9, 0), (10, 9), CLOSINGS[3:]) == [Stretch((9, 0), (9, 5), 0), Stretch((9, 5), (10, 9), 40)]
    assert decided((8, 4), CLOSINGS) == 30
    assert not are_passed((8, 4), CLOSINGS)
    assert are_passed((8, 5), CLOSINGS)


def test_what_lanes_have_reported_counts_where_they_have_no_closing():
    assert cut((0,), (5,), [], decided_ms=7) == [Stretch((0,), (5,), 7)]
    assert cut((0,), (5,), [Closing((0,), 3)], decided_ms=7) == [Stretch((0,), (5,), 7)]


def test_partitions_that_were_added_later_count_from_their_beginning():
    assert cut((4, 1, 0), (4, 1, 6), CLOSINGS[:3]) == [Stretch((4, 1, 0), (4, 1, 6), 30)]


def test_the_closings_of_all_lanes_are_one_list_of_the_newest():
    assert merged([CLOSINGS[:2], [], CLOSINGS[1:]]) == CLOSINGS
    many = [Closing((number,), number) for number in range(1, KEPT + 3)]
    assert merged([many[:5], many]) == many[2:]


@pytest.mark.parametrize(
    ("view", "watermark_ms", "ends_by"),
    [
        (Definition("t", COUNT, size_ms=10), 9, 0),
        (Definition("t", COUNT, size_ms=10), 10, 10),
        (Definition("t", COUNT, size_ms=10), 19, 10),
        (Definition("t", COUNT, size_ms=10, every_ms=4), 13, 10),
        (Definition("t", COUNT, size_ms=10, every_ms=4), 14, 14),
        (Definition("t", COUNT, size_ms=600, is_session=True), 1239, 1230),
        (Definition("t", COUNT, size_ms=30, is_session=True), 1239, 1239),
        (Definition("t", COUNT, size_ms=10), 0, None),
        (Definition("t", COUNT), 50, None),
    ],
)
def test_a_watermark_closes_windows_up_to_the_last_end_that_it_has_reached(view, watermark_ms, ends_by):
    assert view.closes_by(watermark_ms) == ends_by


def test_a_closing_is_json_and_other_bytes_are_refused():
    assert CLOSINGS[0].to_json() == b'{"offsets":[2,1],"watermark_ms":10}'
    assert Closing.from_json(CLOSINGS[0].to_json()) == CLOSINGS[0]
    for data in (b"no json", b"[]", b'{"offsets":[1]}'):
        with pytest.raises(CodecError):
            Closing.from_json(data)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 100])
def test_a_stretch_is_divided_into_parts_that_follow_one_another_and_have_all_its_records(count):
    whole = Stretch((0, 5, 7), (3, 5, 20), 9)
    parts = whole.parts(count)
    assert min(count, whole.size) <= len(parts) <= whole.size
    assert [whole.begin, *(part.end for part in parts)] == [*(part.begin for part in parts), whole.end]
    assert all(part.size >= 1 and part.watermark_ms == 9 for part in parts)
