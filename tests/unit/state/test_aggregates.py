"""What a view's columns hold: merging is the same in any order, and no digit is lost."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.state.aggregates import KINDS, decimal_text, merge_states, render_columns
from keylane.state.codec import CodecError
from keylane.state.windows import Column

if TYPE_CHECKING:
    import random

COLUMNS = [Column(kind, kind, "x") for kind in KINDS]
NUMBERS = st.decimals(-(10**18), 10**18, places=9, allow_nan=False)


def states_of(number: Decimal, place: int) -> list:
    """One record's states; its value is its number, and so is what `latest` goes by."""
    text = decimal_text(number)
    by_kind = {"count": 1, "avg": [text, 1], "latest": [text, place, place, text]}
    return [by_kind.get(column.kind, text) for column in COLUMNS]


@given(st.lists(NUMBERS, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_states_merged_in_any_order_show_what_all_records_come_to(
    numbers: list[Decimal], chance: random.Random
):
    parts = [states_of(number, place) for place, number in enumerate(numbers)]
    while len(parts) > 1:
        chance.shuffle(parts)
        parts.append(merge_states(COLUMNS, parts.pop(), parts.pop()))
    values = json.loads(render_columns(COLUMNS, parts[0]), parse_float=Decimal, parse_int=Decimal)
    total = sum(int(number.scaleb(9)) for number in numbers)
    assert values["count"] == len(numbers)
    assert int(values["sum"] * 10**9) == total
    assert values["min"] == min(numbers)
    assert values["max"] == max(numbers)
    assert values["latest"] == max(numbers)
    assert abs(values["avg"] - Decimal(total) / len(numbers) / 10**9) <= Decimal("1e-9")


def test_of_two_that_are_as_new_the_later_place_is_the_latest():
    column = [Column("l", "latest", "x")]
    one, other = [["5", 0, 9, '"a"']], [["5.0", 1, 2, '"b"']]
    assert merge_states(column, one, other) == merge_states(column, other, one) == other


def test_what_was_never_met_is_null():
    columns = [Column(kind, kind, "x") for kind in ("sum", "min", "max", "avg", "latest")]
    nothing = [None, None, None, [None, 0], None]
    assert merge_states(columns, nothing, nothing) == nothing
    assert json.loads(render_columns(columns, nothing)) == dict.fromkeys(
        ["sum", "min", "max", "avg", "latest"]
    )
    something = ["1", "1", "1", ["1", 1], ["1", 0, 0, "1"]]
    assert merge_states(columns, nothing, something) == merge_states(columns, something, nothing) == something


@pytest.mark.parametrize(
    ("number", "text"),
    [("1.500000000", "1.5"), ("-0.000000000", "0"), ("1E+3", "1000"), ("0E-9", "0"), ("12", "12")],
)
def test_decimals_have_one_text(number, text):
    assert decimal_text(Decimal(number)) == text


@pytest.mark.parametrize("states", [[], [None] * 7, ["x"] * 6, [1, "x", "1", "1", ["1", 1], None]])
def test_states_of_other_columns_are_refused(states):
    with pytest.raises(CodecError):
        render_columns(COLUMNS, states)
