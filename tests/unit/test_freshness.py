"""As of when a lane is known complete."""

from __future__ import annotations

from keylane_spark.freshness import Freshness

PLACE = ("orders", 3)


def test_nothing_seen_proves_nothing():
    assert Freshness().complete_as_of_ms(PLACE, 100) == 0


def test_a_state_that_reached_the_end_seen_is_complete_as_of_then():
    freshness = Freshness()
    freshness.observe(1000, {PLACE: 50})
    assert freshness.complete_as_of_ms(PLACE, 49) == 0
    assert freshness.complete_as_of_ms(PLACE, 50) == 1000


def test_the_latest_end_that_was_reached_counts():
    freshness = Freshness()
    for at_ms, end in [(1000, 50), (2000, 60), (3000, 70)]:
        freshness.observe(at_ms, {PLACE: end})
    assert freshness.complete_as_of_ms(PLACE, 65) == 2000
    assert freshness.complete_as_of_ms(PLACE, 70) == 3000


def test_an_idle_partition_is_complete_as_of_the_last_look():
    freshness = Freshness()
    for at_ms in range(1000, 2_000_000, 1000):
        freshness.observe(at_ms, {PLACE: 50})
    assert freshness.complete_as_of_ms(PLACE, 50) == 1_999_000


def test_a_state_that_stands_still_keeps_only_what_it_may_need():
    freshness = Freshness()
    for at_ms in range(1000, 1_000_000, 1000):
        freshness.observe(at_ms, {PLACE: 50})
    assert len(freshness._open[PLACE]) <= 2
    assert freshness.complete_as_of_ms(PLACE, 49) == 0


def test_lag_is_what_lies_between_positions_and_the_ends_last_seen():
    freshness = Freshness()
    freshness.observe(1000, {PLACE: 50, ("orders", 4): 7})
    assert freshness.lag({PLACE: 40, ("orders", 4): 9}) == 10
