"""A lane: where the records of one (topic, partition, stripe) lie, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from keylane import codec, routing

if TYPE_CHECKING:
    from keylane.model import Layout, Options

LONGEST_MS = 10**15
"""Longer times are as this one, 31,000 years: Redis refuses a date beyond 63 bits."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Where the records of one (topic, partition, stripe) go, and what is kept of them."""

    topic: str
    partition: int
    stripe: int
    slot: int
    watermark_key: bytes
    key_prefix: bytes
    options: Options

    @classmethod
    def of(cls, layout: Layout, partition: int, stripe: int) -> Lane:
        """Compute the lane by the layout, which must be a valid one.

        A partition beyond the layout's (the topic has grown) has a watermark alone, for all of its records
        are at home in others: it lies in the slot of the partition modulo the layout's count.
        """
        home = partition % layout.partition_count
        slot = routing.slot_for(home, stripe, layout.partition_count, layout.stripes)
        tag = routing.hash_tag(slot)
        return cls(
            layout.topic,
            partition,
            stripe,
            slot,
            codec.watermark_key(tag, layout.topic, layout.generation, partition, stripe),
            codec.value_key_prefix(tag, layout.topic, layout.generation),
            layout.options,
        )

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}.{self.stripe}"


@dataclass(frozen=True, slots=True)
class LaneStart:
    """Where an opened lane stands.

    `incomplete`: the log has lost records that the lane never saw. `has_strays`, `complete_as_of_ms`: as in
    `model.Watermark`.
    """

    next_offset: int
    incomplete: bool
    has_strays: bool
    complete_as_of_ms: int


@cache
def rules(options: Options, prefix_bytes: int) -> tuple[bytes, ...]:
    """A topic's options as the library takes them (`rules_of` in merge.lua): numbers, 0 for none.

    `prefix_bytes`: how much of a Redis key stands before the record's own.
    """
    kept = (options.ttl_ms or 0, options.history_count or 0, options.history_age_ms or 0)
    numbers = (options.marker_ms, options.compared, prefix_bytes, *kept, options.insert_once, options.index)
    return tuple(b"%d" % min(number, LONGEST_MS) for number in numbers)
