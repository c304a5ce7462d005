"""The log says once which partitions have no leader that answers, and once that they have one again."""

from __future__ import annotations

from tests.support.fakes import FakeTime

from keylane_spark.stream.away_leaders import AwayLeaders, numbered


def noted(*steps: tuple[float, dict[tuple[str, int], str]]) -> list[str]:
    """What is said of leaders that are away, each step so many seconds after the one before."""
    time, said = FakeTime(), list[str]()
    leaders = AwayLeaders(time.clock, said.append)
    for seconds, away in steps:
        time.move(seconds)
        leaders.note(away)
    return said


def test_leaders_that_go_away_and_come_back_are_a_line_each():
    away = {("orders", 3): "broker 2 is gone", ("orders", 1): "broker 2 is gone", ("users", 0): "no leader"}
    assert noted((0, {}), (0, away), (1, away), (1, away), (5, {}), (1, {})) == [
        (
            "no leader answers for partitions 1, 3 of topic 'orders': "
            "their lanes wait, and all others go on: broker 2 is gone"
        ),
        (
            "no leader answers for partitions 0 of topic 'users': their lanes wait, and all others go on: "
            "no leader"
        ),
        "leaders answer again for partitions 1, 3 of topic 'orders'",
        "leaders answer again for partitions 0 of topic 'users'",
    ]


def test_an_election_that_is_soon_over_is_no_line():
    away = {("orders", 3): "not the leader"}
    assert noted((0, away), (0.5, away), (0.1, {}), (5, away)) == []


def test_leaders_that_come_back_one_by_one_are_named_when_they_do():
    both = {("orders", 0): "gone", ("orders", 1): "gone"}
    said = noted((0, both), (1, both), (1, {("orders", 1): "gone"}), (1, {}))
    assert said[1:] == [
        "leaders answer again for partitions 0 of topic 'orders'",
        "leaders answer again for partitions 1 of topic 'orders'",
    ]


def test_of_many_partitions_the_first_are_named():
    assert numbered([*range(25)]).endswith("18, 19 and 5 more")
    assert numbered([4]) == "4"
