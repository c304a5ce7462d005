"""What came of a load: figures of its reads, and what must not have happened."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from harness import percentile

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.errors import KeylaneError
from keylane.ports import Clock, Deadline
from keylane.query.latest import Wait, read_latest
from keylane.query.layouts import Layouts
from keylane.query.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from keylane.model.records import Position
    from keylane_local.stack.stack import Stack

WAIT_MS = 60_000


def key_of(number: int) -> bytes:
    return b"key-%06d" % number


class Seen(NamedTuple):
    """One read: when it was due, when it ended (monotonic), what it got. `number` is its record's."""

    due_s: float
    end_s: float
    key: int
    status: int
    age_ms: int
    number: int


def figures(reads: Sequence[Seen]) -> dict[str, float]:
    """How many, how many failed, and the latency of the others in ms."""
    taken = [(seen.end_s - seen.due_s) * 1000 for seen in reads if seen.status == 200]
    found = {"reads": float(len(reads)), "failed": float(len(reads) - len(taken))}
    if taken:
        found |= {f"p{percent}": percentile(taken, percent) for percent in (50, 99)} | {"max": max(taken)}
    return found


def statuses(reads: Iterable[Seen]) -> dict[str, int]:
    """How many failed with which status; -1 is no answer at all."""
    counts: dict[str, int] = defaultdict(int)
    for seen in reads:
        if seen.status != 200:
            counts[str(seen.status)] += 1
    return dict(counts)


def longest_gap_s(reads: Iterable[Seen]) -> float:
    """The longest time between two good answers."""
    ends = sorted(seen.end_s for seen in reads if seen.status == 200)
    return max((later - earlier for earlier, later in pairwise(ends)), default=0.0)


def went_back(reads: Iterable[Seen]) -> int:
    """Reads that saw an older record of their key than one that had ended before they were due."""
    by_key: dict[int, list[Seen]] = defaultdict(list)
    for seen in reads:
        if seen.status == 200:
            by_key[seen.key].append(seen)
    count = 0
    for all_seen in by_key.values():
        ended = sorted(all_seen, key=lambda seen: seen.end_s)
        newest, done = -1, 0
        for seen in sorted(all_seen, key=lambda seen: seen.due_s):
            while ended[done].end_s < seen.due_s:
                newest = max(newest, ended[done].number)
                done += 1
            count += seen.number < newest
    return count


def lost(stack: Stack, topic: str, acknowledged: Mapping[int, tuple[int, Position]]) -> int:
    """Keys of which the state has not the record that Kafka acknowledged last.

    Each is waited for, a minute for all together.
    """
    clock = Clock()
    until = Deadline.after_ms(WAIT_MS, clock)
    state = RedisState(Cluster(redis_settings(stack.environment())))
    store = Store(state, Layouts(state, clock, 1), clock)
    count = 0
    for key, (number, position) in acknowledged.items():
        try:
            wait = Wait(position, until.remaining_s * 1000)
            answer = read_latest(store, topic, key_of(key), wait=wait)
        except KeylaneError as error:
            print(f"{key_of(key).decode()} at {position}: {error}")
            count += 1
            continue
        if answer.record is None or json.loads(answer.record.value)["number"] != number:
            print(f"{key_of(key).decode()} at {position} has not record {number}: {answer}"[:300])
            count += 1
    state.close()
    return count
