"""Windows of views: what closes them, how parts and rows become windows, and what makes records late."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.servers.own import CLOCK

from keylane.errors import CorruptState
from keylane.model.records import Layout
from keylane.state.codec import CodecError
from keylane.state.windows import Closing, Column, Definition, Progress, decode_window, split, window_key
from keylane_spark.lanes.view_lanes import ViewLaneState
from keylane_spark.views.closings import KEPT, Stretch, are_passed, cut, decided, merged
from keylane_spark.views.merging import merge_partials
from keylane_spark.views.partials import PartialWindow
from keylane_spark.views.row_states import RowStates, no_states
from keylane_spark.views.view_writer import ViewWriter

COUNT = (Column("n", "count"),)
TUMBLING = Definition("t", COUNT, size_ms=10)
SESSION = Definition("t", COUNT, size_ms=10, is_session=True)


class LaneTarget:
    """A lane in memory: window key -> end and states."""

    def __init__(self, *windows: tuple[bytes, int, int, int]) -> None:
        self.kept = {window_key(key, start): (end, [count]) for key, start, end, count in windows}

    def windows(self, names):
        return {name: self.kept[name] for name in names if name in self.kept}

    def around(self, spans):
        found = set()
        for low, high in spans:
            found |= {name for name in self.kept if low <= name < high}
            found |= set(sorted(name for name in self.kept if name < low)[-1:])
        return list(found)


def part(key: bytes, start: int, end: int | None, count: int) -> PartialWindow:
    return PartialWindow(0, key, start, end, count, start, [count])


A = (b"a", 0, 10)
MERGED = {
    "parts are added to what is there": (
        *(TUMBLING, [(*A, 5)], [(*A, 2), (*A, 3), (b"b", 0, 10, 1)], 0),
        ([(*A, 10), (b"b", 0, 10, 1)], [], 0),
    ),
    "a window is open": (TUMBLING, [(*A, 5)], [(*A, 2)], 9, ([(*A, 7)], [], 0)),
    "and final when the watermark reaches its end": (TUMBLING, [(*A, 5)], [(*A, 2)], 10, ([], [], 2)),
    "a session joins all that it touches": (
        *(SESSION, [(b"a", 0, 12, 2), (b"a", 20, 30, 1), (b"a", 50, 60, 1), (b"b", 5, 15, 1)]),
        *([(b"a", 11, 22, 2)], 0, ([(b"a", 0, 30, 5)], [(b"a", 20)], 0)),
    ),
    "sessions that only meet stay two": (
        *(SESSION, [(*A, 1)], [(b"a", 10, 20, 1)], 0),
        ([(b"a", 10, 20, 1)], [], 0),
    ),
    "one that begins earlier takes the place of the one it joins": (
        *(SESSION, [(b"a", 5, 15, 1)], [(*A, 1)], 0),
        ([(b"a", 0, 15, 2)], [(b"a", 5)], 0),
    ),
    "parts of several partitions become one session": (
        *(SESSION, [], [(*A, 1), (b"a", 16, 26, 1), (b"a", 8, 18, 1)], 0),
        ([(b"a", 0, 26, 3)], [], 0),
    ),
    "a final session is not touched by a later one": (
        *(SESSION, [(*A, 4)], [(b"a", 5, 15, 1)], 10),
        ([(b"a", 5, 15, 1)], [], 0),
    ),
    "nor by one that begins with it": (SESSION, [(*A, 4)], [(b"a", 0, 11, 1)], 10, ([], [], 1)),
    "nor by one that is over": (SESSION, [(*A, 4)], [(*A, 1)], 10, ([], [], 1)),
    "without windows nothing is final": (
        *(Definition("t", COUNT), [], [(b"a", 0, None, 3)], 1000),
        ([(b"a", 0, None, 3)], [], 0),
    ),
}


@pytest.mark.parametrize(("view", "kept", "parts", "watermark_ms", "expected"), MERGED.values(), ids=MERGED)
def test_parts_change_windows(view, kept, parts, watermark_ms, expected):
    """The windows that change, those that go, and how many records are late."""
    changes, late = merge_partials(view, [part(*each) for each in parts], LaneTarget(*kept), watermark_ms)
    windows = sorted(
        (*split(name), end, states[0])
        for name, (end, states) in ((name, decode_window(value)) for name, value in changes.windows.items())
    )
    assert (windows, sorted(split(name) for name in changes.gone), late) == expected


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


@pytest.mark.parametrize(
    ("times", "caught_up", "watermark_ms"),
    [
        ([100, 50, 70], {0, 1, 2}, 95),
        ([100, 50, 70], set(), 45),
        ([100, 50, 70], {1}, 65),
        ([100, None, 70], {0, 1, 2}, 95),
        ([100, None, 70], {0, 2}, 0),
        ([None, None, None], {0, 1, 2}, 0),
        ([3, 3, 3], {0, 1, 2}, 0),
    ],
    ids=[
        "all are read: the newest",
        "none is: the furthest back",
        "one that is read holds nothing back",
        "one without events neither",
        "one that may have older ones does",
        "no event yet",
        "never below 0",
    ],
)
def test_the_watermark_goes_by_the_partitions_that_have_more_to_be_read(times, caught_up, watermark_ms):
    view = Definition("t", (Column("n", "count"),), size_ms=10, lateness_ms=5)
    state = ViewLaneState(0, 0, Progress((0, 0, 0), tuple(times)))
    writer = ViewWriter(view, Layout("~v", 1), SimpleNamespace(lanes=[]), {"lane": state}, CLOCK)
    assert writer._watermark_ms(caught_up) == watermark_ms


COLUMNS = (
    Column("n", "count"),
    Column("noted", "count", "note"),
    Column("total", "sum", "price"),
    Column("mean", "avg", "price"),
)
STATES = RowStates(COLUMNS)


def rows(*found: tuple[bytes, bool, str | None]) -> pa.Table:
    """Rows by group, whether they are noted, and price."""
    prices = [None if price is None else Decimal(price) for _, _, price in found]
    numbers = pa.array(prices, pa.decimal128(38, 9))
    return pa.table(
        {
            "partition": pa.array([2] * len(found), pa.int64()),
            "offset": pa.array(range(len(found)), pa.int64()),
            "ms": pa.array([-1] * len(found), pa.int64()),
            "group": pa.array([group for group, _, _ in found], pa.binary()),
            "c1": pa.array([noted for _, noted, _ in found], pa.bool_()),
            "c2": numbers,
            "c3": numbers,
        }
    )


SOME = rows(
    (b"a", True, "1.5"), (b"\0longer", False, None), (b"a", False, "-99999999999999999999999.999999999")
)


def test_a_row_is_read_as_it_was_stored():
    assert STATES.decode(STATES.encode(SOME)).to_pylist() == SOME.to_pylist()
    assert STATES.decode(STATES.encode(SOME.slice(1))).to_pylist() == SOME.slice(1).to_pylist()
    assert STATES.decode(STATES.encode(SOME.slice(1, 1))).to_pylist() == SOME.slice(1, 1).to_pylist()
    marker = rows((b"", False, None))
    assert STATES.decode(STATES.encode(marker)).to_pylist() == marker.to_pylist()
    assert STATES.decode(STATES.encode(rows())).num_rows == 0


def test_a_stored_row_has_the_documented_bytes():
    head = b"\x02" + b"\0\0\0\x02" + bytes(8) + b"\xff" * 8
    price = b"\x01" + (1_500_000_000).to_bytes(16, "little")
    assert STATES.encode(SOME)[0] == head + b"\x01" + price + price + b"a"


@pytest.mark.parametrize("stored", [b"", b"\x01", b"\x01" + bytes(60)])
def test_what_is_no_stored_row_is_corrupt(stored: bytes):
    with pytest.raises(CorruptState):
        STATES.decode([stored])


def after(gone: pa.Table, come: pa.Table, before: dict[bytes, Any]) -> dict[bytes, Any]:
    """The windows' counts and states after the change."""
    changed = STATES.net(gone, come)
    none = no_states(COLUMNS)
    return before | {each.group: each.applied(COLUMNS, *before.get(each.group, none)) for each in changed}


def test_a_row_that_moves_leaves_one_window_and_comes_to_another():
    one = after(rows(), rows((b"new", True, "2.25"), (b"new", False, None)), {})
    assert one == {b"new": ([2, 2, 1, 1, 1], [2, 1, "2.25", ["2.25", 1]])}
    moved = after(rows((b"new", True, "2.25")), rows((b"paid", True, "3")), one)
    assert moved == {
        b"new": ([1, 1, 0, 0, 0], [1, 0, None, [None, 0]]),
        b"paid": ([1, 1, 1, 1, 1], [1, 1, "3", ["3", 1]]),
    }


def test_a_change_that_comes_again_changes_nothing():
    before = after(rows(), rows((b"a", True, "0.1"), (b"a", True, "0.2")), {})
    assert after(rows((b"a", True, "0.1")), rows((b"a", True, "0.1")), before) == before


def test_sums_of_the_largest_numbers_are_exact():
    large = f"{10**23 - 1}.999999999"
    found = after(rows(), rows(*[(b"a", False, large)] * 1000), {})
    assert found[b"a"][1][2] == "99999999999999999999999999.999999"
    assert after(rows(*[(b"a", False, large)] * 1000), rows(), found)[b"a"] == (
        [0] * 5,
        [0, 0, None, [None, 0]],
    )
