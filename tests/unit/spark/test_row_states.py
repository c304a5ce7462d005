"""What rows of a table add to windows: as it is stored, and what changes of rows change."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from keylane.errors import CorruptState
from keylane.state.windows import Column
from keylane_spark.views.row_states import RowStates, no_states

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
