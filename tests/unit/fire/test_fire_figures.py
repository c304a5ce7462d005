"""The judge and the name server of `make under-fire`."""

from __future__ import annotations

import math
import struct

import pytest
from tests.fire.figures import (
    ALWAYS,
    Event,
    Found,
    answered_with,
    fact_below,
    gap_below,
    judge,
    longest_gap_s,
    none_failed,
    outcomes_of,
    p99_below,
)
from tests.fire.stage import answer_of


def events(*statuses: int, phase: str = "during", taken_ms: float = 1.0) -> list[Event]:
    """Reads, one a second."""
    return [Event(phase, "read", float(number), taken_ms, status) for number, status in enumerate(statuses)]


def found(*statuses: int, **more: object) -> Found:
    return Found(events=events(*statuses), acknowledged=1, **more)  # type: ignore[arg-type]


def test_statuses_are_counted_by_what_they_mean():
    counted = outcomes_of([200, 201, 404, 503, 0, 418])
    assert counted == {"200": 2, "404": 1, "503": 1, "no answer": 1, "other": 1}


def test_a_gap_is_the_longest_time_without_a_good_answer():
    assert longest_gap_s(events(200, 503, 503, 200)) == pytest.approx(3.0)


def test_a_gap_lasts_until_the_last_answer_and_from_the_first_request():
    assert longest_gap_s(events(200, 503, 503)) == pytest.approx(2.0)
    assert longest_gap_s(events(503, 503, 200)) == pytest.approx(2.001)


def test_no_requests_at_all_are_an_endless_gap():
    assert math.isinf(longest_gap_s([]))


@pytest.mark.parametrize(
    ("expectation", "good", "bad"),
    [
        (none_failed("read", "during"), (200, 404), (200, 503)),
        (answered_with({200, 503}, "read", "during"), (200, 503), (200, 0)),
        (gap_below(1.5, "read", "during"), (200, 200, 200), (200, 503, 200)),
        (p99_below(50, "read", "during"), (200,), (503,)),
    ],
)
def test_an_expectation_holds_and_is_broken(expectation, good: tuple[int, ...], bad: tuple[int, ...]):
    assert expectation.holds(found(*good))
    assert not expectation.holds(found(*bad))


@pytest.mark.parametrize(
    "expectation",
    [
        none_failed("write", "during"),
        answered_with({200}, "read", "after"),
        p99_below(50, "write", "during"),
        gap_below(5, "write", "during"),
        fact_below(5, "unknown"),
    ],
)
def test_what_was_never_asked_for_is_not_as_expected(expectation):
    assert not expectation.holds(found(200))


def test_a_slow_answer_breaks_a_limit():
    slow = Found(events=[*events(*[200] * 98), *events(200, 200, taken_ms=80.0)])
    assert not p99_below(50, "read", "during").holds(slow)


@pytest.mark.parametrize(
    "wrong", [{"lost": ["k"]}, {"fault_count": 1}, {"acknowledged": 0}], ids=["lost", "stale", "none"]
)
def test_a_lost_write_a_stale_read_and_no_write_break_every_scenario(wrong: dict[str, object]):
    assert all(each.holds for each in judge(found(200), ()))
    spoilt = found(200)
    for name, value in wrong.items():
        setattr(spoilt, name, value)
    assert sum(not each.holds for each in judge(spoilt, ())) == 1


def test_every_scenario_is_judged_by_what_holds_always():
    verdicts = judge(found(200), [none_failed("read", "during")])
    assert len(verdicts) == len(ALWAYS) + 1


HEADER = struct.pack(">HHHHHH", 513, 0x0100, 1, 0, 0, 0)
NAME = b"\x07redis-0\x04fire\x04test\x00"
A, AAAA = 1, 28


def query(kind: int) -> bytes:
    return HEADER + NAME + struct.pack(">HH", kind, 1)


def test_an_address_is_the_loopbacks():
    answer = answer_of(query(A))
    assert answer[:12] == struct.pack(">HHHHHH", 513, 0x8580, 1, 1, 0, 0)
    assert answer[12 : 12 + len(NAME) + 4] == query(A)[12:]
    assert answer.endswith(b"\x7f\x00\x00\x01")


def test_another_type_has_no_answer_and_is_no_error():
    answer = answer_of(query(AAAA) + b"an additional record")
    assert answer == struct.pack(">HHHHHH", 513, 0x8580, 1, 0, 0, 0) + query(AAAA)[12:]
