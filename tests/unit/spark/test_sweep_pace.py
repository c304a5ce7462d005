"""How fast what is no longer used is removed."""

import pytest
from tests.support.fakes import FakeTime

from keylane_spark.generations.sweeper import SweepPace


def pause_s(took_s: float, *, gone: int = 0, most_per_s: int | None = None) -> float:
    time = FakeTime()
    pace = SweepPace(time.clock, most_per_s)
    time.pause(took_s)
    return pace.pause_s(1000, gone)


def test_redis_is_left_alone_for_four_fifths_of_the_time():
    assert pause_s(0.002) == pytest.approx(0.008)


def test_a_slow_redis_is_asked_less_often():
    assert pause_s(1.5) == pytest.approx(6)


def test_a_rate_bounds_what_goes():
    assert pause_s(0.002, gone=1000, most_per_s=10_000) == pytest.approx(0.1)


def test_keys_that_stay_count_as_a_tenth():
    assert pause_s(0.002, most_per_s=10_000) == pytest.approx(0.01)


def test_a_rate_does_not_hurry_a_slow_redis():
    assert pause_s(1.5, gone=10, most_per_s=10_000) == pytest.approx(6)


def test_each_step_is_timed_by_itself():
    time = FakeTime()
    pace = SweepPace(time.clock, None)
    time.pause(10)
    pace.begin()
    time.pause(0.5)
    assert pace.pause_s(0, 0) == pytest.approx(2)
