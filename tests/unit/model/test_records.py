"""Positions and ages."""

from __future__ import annotations

import pytest

from keylane.model.records import Answer, Layout, Position, Record, Watermark


def test_position_is_written_as_it_is_read():
    assert str(Position(3, 1042)) == "3:1042"
    assert Position.parse("3:1042") == Position(3, 1042)
    assert Position.parse("0:0") == Position(0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "3", "3:", ":3", "a:1", "1:a", "-1:2", "1:-2", "1:2:3", " 1:2", "1: 2", "\u0661:\u0662",
        "1:" + "9" * 19,
    ],
)  # fmt: skip
def test_invalid_position_is_refused_with_an_example(text: str):
    with pytest.raises(ValueError, match="3:1042"):
        Position.parse(text)


def test_record_knows_its_position():
    assert Record(b"k", b"v", 4, 7, 0).position == Position(4, 7)


def test_age_is_counted_from_completeness_and_never_negative():
    answer = Answer(Layout("t", 1), 0, None, Watermark(5, 1, 900, 1_000))
    assert answer.age_ms(1_250) == 250
    assert answer.age_ms(999) == 0
