"""As of when a lane is known complete."""

from __future__ import annotations

from keylane_spark.stream.freshness import ObservedEnds, topic_complete_as_of_ms

PLACE = ("orders", 3)


def test_nothing_seen_proves_nothing():
    assert ObservedEnds().complete_as_of_ms(PLACE, 100) == 0


def test_a_state_that_reached_the_end_seen_is_complete_as_of_then():
    freshness = ObservedEnds()
    freshness.observe(1000, {PLACE: 50})
    assert freshness.complete_as_of_ms(PLACE, 49) == 0
    assert freshness.complete_as_of_ms(PLACE, 50) == 1000


def test_the_latest_end_that_was_reached_counts():
    freshness = ObservedEnds()
    for at_ms, end in [(1000, 50), (2000, 60), (3000, 70)]:
        freshness.observe(at_ms, {PLACE: end})
    assert freshness.complete_as_of_ms(PLACE, 65) == 2000
    assert freshness.complete_as_of_ms(PLACE, 70) == 3000


def test_an_idle_partition_is_complete_as_of_the_last_look():
    freshness = ObservedEnds()
    for at_ms in range(1000, 2_000_000, 1000):
        freshness.observe(at_ms, {PLACE: 50})
    assert freshness.complete_as_of_ms(PLACE, 50) == 1_999_000


def test_a_state_that_stands_still_keeps_only_what_it_may_need():
    freshness = ObservedEnds()
    for at_ms in range(1000, 1_000_000, 1000):
        freshness.observe(at_ms, {PLACE: 50})
    assert len(freshness._sights[PLACE]) <= 2
    assert freshness.complete_as_of_ms(PLACE, 49) == 0


def test_lag_is_what_lies_between_positions_and_the_ends_last_seen():
    freshness = ObservedEnds()
    freshness.observe(1000, {PLACE: 50, ("orders", 4): 7})
    assert freshness.lag({PLACE: 40, ("orders", 4): 9}) == 10


def test_what_a_batch_under_way_will_prove_is_no_proof_before_it_is_written():
    freshness = ObservedEnds()
    for at_ms, end in [(1000, 50), (2000, 60)]:
        freshness.observe(at_ms, {PLACE: end})
    assert freshness.complete_as_of_ms(PLACE, 60) == 2000
    assert freshness.complete_as_of_ms(PLACE, 50) == 1000


def test_a_state_that_went_on_keeps_what_it_has_proven_and_forgets_the_rest():
    freshness = ObservedEnds()
    for at_ms in range(1000, 5000):
        freshness.observe(at_ms, {PLACE: at_ms})
        freshness.reached({PLACE: at_ms})
    assert len(freshness._sights[PLACE]) == 1
    assert freshness.complete_as_of_ms(PLACE, 4999) == 4999


def test_a_state_that_is_far_behind_remembers_a_bounded_number_of_moments():
    freshness = ObservedEnds()
    for at_ms in range(1, 100_001):
        freshness.observe(at_ms, {PLACE: at_ms})
    assert len(freshness._sights[PLACE]) <= 1000
    assert 0 < freshness.complete_as_of_ms(PLACE, 50_000) <= 50_000
    assert freshness.complete_as_of_ms(PLACE, 100_000) == 100_000


def test_a_topic_with_strays_is_complete_as_of_when_its_last_partition_is():
    freshness = ObservedEnds()
    other, elsewhere = ("orders", 4), ("users", 0)
    freshness.observe(1000, {PLACE: 50, other: 70, elsewhere: 5})
    freshness.observe(2000, {PLACE: 60, other: 80, elsewhere: 6})
    positions = {PLACE: 60, other: 75, elsewhere: 6}
    assert topic_complete_as_of_ms(freshness, positions, {"orders"}) == {"orders": 1000}
    assert topic_complete_as_of_ms(freshness, positions | {other: 69}, {"orders"}) == {"orders": 0}


def test_the_lag_of_one_topic_leaves_the_others_out():
    freshness = ObservedEnds()
    freshness.observe(1000, {PLACE: 50, ("users", 0): 7})
    assert freshness.lag({PLACE: 40, ("users", 0): 0}, "users") == 7


def test_an_end_that_has_fallen_proves_nothing_and_is_reported():
    """A topic that was created again, or a broker that does not know yet that it leads no more."""
    freshness = ObservedEnds()
    assert freshness.observe(1000, {PLACE: 50}, {PLACE: 50}) == []
    assert freshness.observe(2000, {PLACE: 49}, {PLACE: 49}) == [PLACE]
    assert freshness.complete_as_of_ms(PLACE, 50) == 1000
    assert freshness.complete_as_of({PLACE: 50}) == {PLACE: (1000, 50)}
    assert freshness.observe(3000, {PLACE: 50}, {PLACE: 51}) == [PLACE]
    assert freshness.complete_as_of_ms(PLACE, 51) == 1000
    assert freshness.observe(4000, {PLACE: 51}, {PLACE: 51}) == []
    assert freshness.complete_as_of_ms(PLACE, 51) == 4000
