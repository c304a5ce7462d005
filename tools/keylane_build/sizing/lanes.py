"""Tables of lanes: how full the fullest shard is, and the stripes that are proposed."""

import functools
from collections.abc import Iterable, Iterator

from keylane_build.generated import render_table
from keylane_cli.survey.lane_balance import (
    Owners,
    count_lanes,
    divide,
    propose_stripes,
    rebalance,
    scatter,
)

PARTITIONS, SHARDS = 9, 3
STRIPES = (1, 2, 4, 6, 8, 12, 16, 32, 128)
GROWN = (4, 6, 12)
DRAWS = 40
"""So many times the slots that move are drawn by chance."""
USUAL = 19 / 20
"""What holds in so many of the draws is said to hold."""


@functools.cache
def _scattered(shards: int) -> list[Owners]:
    return [scatter(divide(SHARDS), shards, seed) for seed in range(DRAWS)]


def _fullest(divisions: Iterable[Owners], shards: int, stripes: int, share: float = 1.0) -> tuple[int, bool]:
    """Return the most lanes of a shard in that share of the divisions, and whether fewer leave none empty."""
    counts = [count_lanes(each, shards, PARTITIONS, stripes) for each in divisions]
    lanes = sorted(max(each) for each in counts)
    allowed = len(counts) - round(share * len(counts))
    return lanes[-1 - allowed], sum(not min(each) for each in counts) > allowed


@functools.cache
def in_ranges(shards: int, stripes: int) -> tuple[int, bool]:
    """As `_fullest`, of ranges of equal size, and of three shards that valkey-cli has rebalanced."""
    return _fullest([divide(shards), rebalance(divide(SHARDS), shards)], shards, stripes)


@functools.cache
def in_any_slots(shards: int, stripes: int) -> tuple[int, bool]:
    """As `_fullest`, usually, of three shards and further ones that took slots from anywhere."""
    return _fullest(_scattered(shards), shards, stripes, USUAL)


def render_lanes() -> Iterator[str]:
    """Yield a table of stripes and shards: lanes of the fullest shard by the mean."""
    title = [
        f"lanes of {PARTITIONS} partitions",
        *(f"{shards} shards, in ranges" for shards in (SHARDS, *GROWN)),
        *(f"{SHARDS} to {shards}, any slots" for shards in GROWN),
    ]

    def cell(found: tuple[int, bool], shards: int, stripes: int) -> str:
        lanes, is_empty = found
        return f"{lanes * shards / PARTITIONS / stripes:.2f}" + (", some empty" if is_empty else "")

    rows = (
        [
            f"{PARTITIONS} x {stripes} = {PARTITIONS * stripes}",
            *(cell(in_ranges(shards, stripes), shards, stripes) for shards in (SHARDS, *GROWN)),
            *(cell(in_any_slots(shards, stripes), shards, stripes) for shards in GROWN),
        ]
        for stripes in STRIPES
    )
    yield from render_table(title, rows)


def render_proposals() -> Iterator[str]:
    """Yield a table of the stripes that are proposed, by partitions and shards."""
    partitions = (1, 3, 6, 9, 12, 24, 48, 100)
    rows = [
        [str(shards), *(str(propose_stripes(each, divide(shards)).stripes) for each in partitions)]
        for shards in (1, SHARDS, *GROWN)
    ]
    yield from render_table(["shards ↓ partitions →", *map(str, partitions)], rows)
