"""How many lanes each shard has, and the stripes that are proposed."""

from __future__ import annotations

from collections import Counter

import pytest

from keylane.routing import SLOTS
from keylane_cli.survey.lane_balance import (
    FULLEST,
    GROWTH,
    count_lanes,
    divide,
    fullness,
    propose_stripes,
    rebalance,
    scatter,
)


def ranges_of(owners, shard):
    """The slots of a shard as the first and last of each range."""
    slots = {slot for slot, owner in enumerate(owners) if owner == shard}
    begins = sorted(slot for slot in slots if slot - 1 not in slots)
    ends = sorted(slot for slot in slots if slot + 1 not in slots)
    return list(zip(begins, ends, strict=True))


@pytest.mark.parametrize("shards", [1, 3, 4, 7, 12, 500])
@pytest.mark.parametrize(
    "grow",
    [divide, lambda n: rebalance(divide(1), n), lambda n: scatter(divide(1), n, 7)],
)
def test_shards_have_equally_many_slots_to_one(grow, shards):
    counts = Counter(grow(shards))
    assert sum(counts.values()) == SLOTS
    assert sorted(counts) == list(range(shards))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_new_cluster_is_divided_as_valkey_cli_divides_it():
    assert [ranges_of(divide(3), shard) for shard in range(3)] == [
        [(0, 5460)],
        [(5461, 10922)],
        [(10923, 16383)],
    ]


def test_a_rebalancing_moves_the_slots_that_valkey_cli_moves():
    moved = rebalance(divide(3), 4)
    assert ranges_of(moved, 3) == [(0, 1364), (5461, 6826), (10923, 12287)]
    assert [ranges_of(moved, shard) for shard in range(3)] == [
        [(1365, 5460)],
        [(6827, 10922)],
        [(12288, 16383)],
    ]


def test_scattered_slots_move_to_new_shards_alone_and_by_the_seed():
    before, after = divide(3), scatter(divide(3), 4, 1)
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {3}
    assert len(ranges_of(after, 3)) > 1000
    assert after == scatter(divide(3), 4, 1) != scatter(divide(3), 4, 2)


def test_each_shard_that_is_added_gets_scattered_slots_of_all_others():
    before, after = divide(3), scatter(divide(3), 6, 1)
    for new in (3, 4, 5):
        assert {old for old, owner in zip(before, after, strict=True) if owner == new} == {0, 1, 2}


def test_lanes_are_counted_where_their_slots_are():
    assert count_lanes(divide(4), 4, 9, 1) == [2, 2, 3, 2]
    assert count_lanes(divide(3), 3, 9, 1) == [3, 3, 3]
    assert count_lanes(divide(3), 3, 3, 12) == count_lanes(divide(3), 3, 9, 4)


def test_an_empty_shard_is_as_full_as_can_not_be():
    assert fullness([3, 4, 2]) == pytest.approx(4 / 3)
    assert fullness([1, 1, 0]) == float("inf")


@pytest.mark.parametrize("shards", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("partitions", [1, 3, 9, 12, 50, 1000])
def test_proposed_stripes_fill_today_s_shards_and_four_times_as_many_evenly(partitions, shards):
    proposed = propose_stripes(partitions, divide(shards))
    assert proposed.most_shards == GROWTH * shards
    divisions = [(each, divide(each)) for each in range(shards, GROWTH * shards + 1)]
    divisions += [(each, rebalance(divide(shards), each)) for each in (2 * shards, 4 * shards)]

    def fullest(stripes):
        return max(fullness(count_lanes(each, count, partitions, stripes)) for count, each in divisions)

    assert fullest(proposed.stripes) <= proposed.fullest <= FULLEST
    assert proposed.stripes * partitions <= SLOTS


def test_fewer_stripes_than_proposed_would_not_do():
    assert propose_stripes(9, divide(3)).stripes == 4
    assert fullness(count_lanes(divide(12), 12, 9, 3)) > FULLEST
    assert propose_stripes(9, divide(3), max_shards=3).stripes == 1


def test_a_cluster_that_cannot_be_filled_evenly_gets_the_least_uneven():
    owners = scatter(divide(3), 400, 1)
    proposed = propose_stripes(10_000, owners)
    assert proposed.stripes == 1
    assert proposed.fullest > FULLEST
    assert proposed.shards == 400


def test_a_scattered_cluster_needs_more_stripes_than_one_in_ranges():
    owners = scatter(divide(3), 6, 1)
    proposed = propose_stripes(9, owners)
    assert proposed.stripes > propose_stripes(9, divide(6)).stripes
    assert fullness(count_lanes(owners, 6, 9, proposed.stripes)) <= FULLEST
