from __future__ import annotations

import random

import pytest
from tests.soak.slopes import EXPLAINED, GROWS, SHORT, STEADY, Limits, judge

HOUR_S = 3600
LIMITS = Limits(0.02, 1.0)


def over_an_hour(value, *, seconds=HOUR_S, noise=0.0, seed=1):
    """Points every 5 s of a function of the hours that have passed."""
    chance = random.Random(seed)
    return [
        (100.0 + at, value(at / HOUR_S) + chance.gauss(0, noise)) for at in range(0, seconds + 1, 5)
    ]  # fmt: skip


def test_what_stays_is_steady_and_its_slope_is_none():
    trend = judge(over_an_hour(lambda _: 200.0, noise=1.0), LIMITS)
    assert trend.verdict == STEADY
    assert trend.slope_per_h == pytest.approx(0, abs=1)
    assert trend.noise == pytest.approx(1.0, rel=0.15)


def test_a_steady_gain_beyond_the_limit_grows_by_its_slope_an_hour():
    trend = judge(over_an_hour(lambda hours: 200 + 12 * hours, noise=1.0), LIMITS)
    assert trend.verdict == GROWS
    assert trend.slope_per_h == pytest.approx(12, abs=1)
    assert (trend.first, trend.last) == pytest.approx((204, 212), abs=1)
    assert trend.gain == pytest.approx(8, abs=1)


@pytest.mark.parametrize(
    ("limits", "noise"),
    [(Limits(0.02, 1.0), 0.1), (Limits(0.0, 3.0), 0.1), (Limits(0.0, 0.0), 2.0)],
    ids=["part of its size", "floor", "noise"],
)
def test_a_gain_within_the_limits_or_the_noise_is_steady(limits, noise):
    assert judge(over_an_hour(lambda hours: 200 + 3 * hours, noise=noise), limits).verdict == STEADY
    assert judge(over_an_hour(lambda hours: 200 + 30 * hours, noise=noise), limits).verdict == GROWS


def test_what_fills_during_the_warm_up_is_steady():
    assert judge(over_an_hour(lambda hours: 100 + min(300 * hours, 80)), LIMITS).verdict == STEADY


def test_growth_that_has_ended_in_the_second_half_is_steady():
    assert judge(over_an_hour(lambda hours: 100 + min(60 * hours, 40)), LIMITS).verdict == STEADY


def test_a_spike_or_a_saw_moves_no_slope():
    points = over_an_hour(lambda hours: 100.0 + 500 * (0.7 < hours < 0.73))
    assert judge(points, LIMITS).verdict == STEADY
    assert judge(over_an_hour(lambda hours: 100.0 + 50 * (hours * 20 % 1)), LIMITS).verdict == STEADY


def test_a_step_that_is_kept_is_no_slope_but_steps_that_follow_each_other_are():
    assert judge(over_an_hour(lambda hours: 100 + 10 * (hours > 0.6)), LIMITS).verdict == STEADY
    assert judge(over_an_hour(lambda hours: 100 + 3 * int(hours * 12)), LIMITS).verdict == GROWS


def test_growth_that_follows_its_explanation_is_explained_and_more_is_not():
    keys = over_an_hour(lambda hours: 40 * hours)
    memory = over_an_hour(lambda hours: 70 + 44 * hours, noise=0.2)
    leak = over_an_hour(lambda hours: 70 + 60 * hours, noise=0.2)
    assert judge(memory, LIMITS, keys).verdict == EXPLAINED
    assert judge(memory, LIMITS, keys[::7]).verdict == EXPLAINED
    assert judge(leak, LIMITS, keys).verdict == GROWS
    assert judge(over_an_hour(lambda _: 70.0), LIMITS, keys).verdict == STEADY


def test_a_short_time_has_slopes_and_no_verdict():
    trend = judge(over_an_hour(lambda hours: 100 + 600 * hours, seconds=300), LIMITS)
    assert trend.verdict == SHORT
    assert trend.slope_per_h == pytest.approx(600)


def test_a_figure_without_points_after_the_warm_up_is_refused():
    with pytest.raises(ValueError, match="fewer than two points"):
        judge([(0.0, 1.0)], LIMITS)
