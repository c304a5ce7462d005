"""How many lanes each shard of a Redis Cluster has, and how many stripes keep that even. Pure functions.

A lane is one slot (`keylane.routing.slot_for`), and clusters divide slots, not lanes. Each function returns
the owners of all slots, the number of a shard for each:

`divide`: ranges of equal size, which a new cluster has, at ElastiCache as by `valkey-cli --cluster create`.
`rebalance`: what `valkey-cli --cluster rebalance` makes of a cluster to which empty shards were added.
`scatter`: the shards that are added get slots from anywhere. ElastiCache documents that every shard ends with
as many slots, and not which ones move: docs/decisions/deployment.md.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from keylane.routing import SLOTS, slot_for

FULLEST = 1.3
"""At most so many times the mean may the fullest shard have."""
GROWTH = 4
"""By so much the number of shards may grow before the layout must change: it can be doubled twice."""
MAX_NODES = 500
"""Of a cluster of ElastiCache: as many shards, where they have no replicas."""
WORTH_BYTES = 2**30
"""A topic that takes less memory need not be spread evenly."""
_LANES_PER_SHARD = 40
"""The most that are proposed: a batch sends a call for each lane, and a range reads all lanes."""

Owners = list[int]


class Proposal(NamedTuple):
    """A number of stripes. `fullest`: lanes of the fullest shard by the mean, in the worst case looked at."""

    stripes: int
    fullest: float
    shards: int
    most_shards: int


def divide(shards: int) -> Owners:
    """Return the owners of slots that are divided into ranges of equal size."""
    bounds = [round(shard * SLOTS / shards) for shard in range(shards + 1)]
    return [shard for shard in range(shards) for _ in range(bounds[shard], bounds[shard + 1])]


def rebalance(owners: Sequence[int], shards: int) -> Owners:
    """Return the owners after a rebalancing over `shards`, of which the last ones had no slots.

    As valkey-cli: the shard that has most too many gives its first slots to the one that lacks most.
    """
    moved = list(owners)
    spare = _count_spare(owners, shards)
    left = _slots_by_shard(owners, shards)
    order = sorted(range(shards), key=lambda shard: spare[shard])
    while len(order) > 1:
        to, source = order[0], order[-1]
        count = min(-spare[to], spare[source])
        if count > 0:
            for slot in left[source][:count]:
                moved[slot] = to
            del left[source][:count]
        spare[to], spare[source] = spare[to] + count, spare[source] - count
        order = [shard for shard in order if spare[shard] or shard not in {to, source}]
    return moved


def scatter(owners: Sequence[int], shards: int, seed: int) -> Owners:
    """Return the owners after shards were added that got slots from anywhere, by chance."""
    moved = list(owners)
    spare = _count_spare(owners, shards)
    chance = random.Random(seed)  # noqa: S311 (a simulation)
    given = [
        slot
        for shard, slots in enumerate(_slots_by_shard(owners, shards))
        for slot in sorted(slots, key=lambda _: chance.random())[: max(spare[shard], 0)]
    ]
    given.sort(key=lambda _: chance.random())
    for shard in range(shards):
        for _ in range(-spare[shard]):
            moved[given.pop()] = shard
    return moved


def _count_spare(owners: Sequence[int], shards: int) -> list[int]:
    """Return of each shard how many slots it has too many; a negative number is what it lacks."""
    owned = Counter(owners)
    least, more = divmod(SLOTS, shards)
    # Those that have most keep one more where the slots cannot be divided.
    by_size = sorted(range(shards), key=lambda shard: -owned[shard])
    wanted = {shard: least + (place < more) for place, shard in enumerate(by_size)}
    return [owned[shard] - wanted[shard] for shard in range(shards)]


def _slots_by_shard(owners: Sequence[int], shards: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(shards)]
    for slot, owner in enumerate(owners):
        found[owner].append(slot)
    return found


def count_lanes(owners: Sequence[int], shards: int, partitions: int, stripes: int) -> list[int]:
    """Return the number of lanes of each shard."""
    counts = Counter(map(owners.__getitem__, _lane_slots(partitions, stripes)))
    return [counts[shard] for shard in range(shards)]


@lru_cache(maxsize=1)
def _lane_slots(partitions: int, stripes: int) -> list[int]:
    lanes = product(range(partitions), range(stripes))
    return [slot_for(partition, stripe, partitions, stripes) for partition, stripe in lanes]


def fullness(counts: Sequence[int]) -> float:
    """Return how many times the mean the fullest shard has; infinity if a shard is empty."""
    return max(counts) * len(counts) / sum(counts) if min(counts) else float("inf")


def propose_stripes(partitions: int, owners: Sequence[int], max_shards: int = MAX_NODES) -> Proposal:
    """Return the fewest stripes that fill the shards evenly, today's and up to GROWTH times as many.

    Further shards are expected in ranges. If no number of stripes fills them evenly: the one with which the
    fullest shard is least full.
    """
    shards = max(owners) + 1
    most = max(shards, min(shards * GROWTH, max_shards))
    divisions = [(shards, owners), *_grown(owners, shards, most)]
    fewest = -(-most // partitions)
    largest = max(1, min(max(fewest, most * _LANES_PER_SHARD // partitions), SLOTS // partitions))
    best = Proposal(1, float("inf"), shards, most)
    for stripes in range(min(fewest, largest), largest + 1):
        found = 0.0
        for count, each in divisions:
            found = max(found, fullness(count_lanes(each, count, partitions, stripes)))
            if found >= best.fullest:
                break
        else:
            best = Proposal(stripes, found, shards, most)
        if best.fullest <= FULLEST:
            break
    return best


def _grown(owners: Sequence[int], shards: int, most: int) -> Iterator[tuple[int, Owners]]:
    """Yield numbers of more shards with the owners, the most first: they are hardest to fill evenly."""
    for grown in range(most, shards, -1):
        yield grown, divide(grown)
    for grown in {most, min(2 * shards, most), min(-(-4 * shards // 3), most)} - {shards}:
        yield grown, rebalance(owners, grown)
