"""A lane: where the records of one (topic, partition, stripe) lie, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from keylane.state import lanes, redis_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from keylane.model.records import Layout, Options

LONGEST_MS = 10**15
"""Longer times are as this one, 31,000 years: Redis refuses a date beyond 63 bits."""


@dataclass(frozen=True, slots=True)
class LaneTarget:
    """Where the records of one (topic, partition, stripe) go, and what is kept of them."""

    topic: str
    partition: int
    stripe: int
    slot: int
    watermark_key: bytes
    key_prefix: bytes
    options: Options

    @classmethod
    def of(cls, layout: Layout, partition: int, stripe: int) -> LaneTarget:
        """The lane by the layout, which must be a valid one; of partitions beyond it see `lanes.lane_at`."""
        home = lanes.lane_at(layout, partition, stripe)
        return cls(
            layout.topic,
            partition,
            stripe,
            home.slot,
            home.watermark_key,
            redis_keys.value_key_prefix(home.tag, layout.topic, layout.generation),
            layout.options,
        )

    @property
    def name(self) -> str:
        """As Redis keys have it, among the topic's."""
        return f"{self.partition}.{self.stripe}"

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"


@dataclass(frozen=True, slots=True)
class LaneStart:
    """Where an opened lane stands.

    `incomplete`: the log has lost records that the lane never saw. `has_strays`, `complete_as_of_ms`: as in
    `model.Watermark`. `taken`: below which offset of another partition the lane has all strays of that one;
    `given`, in a partition's first lane: below which offset of it another lane ("partition.stripe") was
    given all strays.
    """

    next_offset: int
    incomplete: bool
    has_strays: bool
    complete_as_of_ms: int
    taken: Mapping[int, int] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, reply: Any) -> LaneStart:
        """Make it of the library's reply."""
        next_offset, incomplete, has_strays, complete_ms, taken, given = reply
        return cls(
            int(next_offset),
            bool(incomplete),
            bool(has_strays),
            int(complete_ms),
            {int(partition): int(to) for partition, to in zip(taken[::2], taken[1::2], strict=True)},
            {name.decode(): int(to) for name, to in zip(given[::2], given[1::2], strict=True)},
        )


def lost_strays(starts: Mapping[LaneTarget, LaneStart]) -> Iterator[tuple[LaneTarget, int, int]]:
    """Lanes that lack strays they were given: lane, source partition, offset from which on to read it again.

    A lane loses acknowledged strays with a failover of its own shard; the partition that they came from lies
    in another, and its watermark knows of nothing.
    """
    by_name = {(lane.topic, lane.name): lane for lane in starts}
    for source, start in starts.items():
        for name, to in start.given.items():
            lane = by_name[source.topic, name]
            has = starts[lane].taken.get(source.partition, 0)
            if has < to:
                yield lane, source.partition, has


@cache
def rules(options: Options, prefix_bytes: int) -> tuple[bytes, ...]:
    """A topic's options as the library takes them (`rules_of` in merge.lua): numbers, 0 for none.

    `prefix_bytes`: how much of a Redis key stands before the record's own.
    """
    kept = (options.ttl_ms or 0, options.history_count or 0, options.history_age_ms or 0)
    numbers = (options.marker_ms, options.compared, prefix_bytes, *kept, options.insert_once, options.index)
    return tuple(b"%d" % min(number, LONGEST_MS) for number in numbers)
