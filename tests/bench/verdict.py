"""The results of a load: statistics of its reads, and violations that must not happen."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from harness import percentiles

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.errors import KeylaneError
from keylane.ports import Clock, Deadline
from keylane.query.latest import Wait, read_latest
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from keylane.model.records import Position
    from keylane_local.stack.stack import Stack

WAIT_MS = 60_000


def key_of(number: int) -> bytes:
    return b"key-%06d" % number


class TimedRead(NamedTuple):
    """A read: when it was due and ended (monotonic time), and its result; `number` is its record's."""

    due_s: float
    end_s: float
    key: int
    status: int
    age_ms: int
    number: int


def figures(reads: Sequence[TimedRead]) -> dict[str, float]:
    """Return the number of reads and of failures, and the latency of the others in ms."""
    taken = [(seen.end_s - seen.due_s) * 1000 for seen in reads if seen.status == 200]
    found = {"reads": float(len(reads)), "failed": float(len(reads) - len(taken))}
    if taken:
        found |= percentiles(taken, 50, 99)
    return found


def statuses(reads: Iterable[TimedRead]) -> dict[str, int]:
    """Return the number of failures by status; -1 means no answer."""
    counts: dict[str, int] = defaultdict(int)
    for seen in reads:
        if seen.status != 200:
            counts[str(seen.status)] += 1
    return dict(counts)


def longest_gap_s(reads: Iterable[TimedRead]) -> float:
    """Return the longest time between two successful answers."""
    ends = sorted(seen.end_s for seen in reads if seen.status == 200)
    return max((later - earlier for earlier, later in pairwise(ends)), default=0.0)


def went_back(reads: Iterable[TimedRead]) -> int:
    """Count reads that returned an older record than a read of the same key that had ended earlier."""
    by_key: dict[int, list[TimedRead]] = defaultdict(list)
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
    """Count keys for which the state does not have the record that Kafka acknowledged last.

    Waits for the keys, at most a minute in total.
    """
    clock = Clock()
    until = Deadline.after_ms(WAIT_MS, clock)
    state = RedisState(Cluster(redis_settings(stack.environment())))
    store = Store(state, Layouts(state, clock, 1), clock)
    count = 0
    for key, (number, position) in acknowledged.items():
        try:
            wait = Wait(position, until.remaining_s * 1000)
            answer = read_latest(store, topic, key_of(key), ReadTerms(1000), wait=wait)
        except KeylaneError as error:
            print(f"{key_of(key).decode()} at {position}: {error}")
            count += 1
            continue
        if answer.record is None or json.loads(answer.record.value)["number"] != number:
            print(f"{key_of(key).decode()} at {position} has not record {number}: {answer}"[:300])
            count += 1
    state.close()
    return count
