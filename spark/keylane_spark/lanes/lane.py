"""What the lane protocol's writer works with: a lane, a range of its offsets, calls, a lane's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from keylane.adapters.redis.resp import encode_words
from keylane.model.records import Layout, Options
from keylane.state import lanes, redis_keys
from keylane_spark.rows.chunks import Chunk, Delivery
from keylane_spark.rows.ordered_writes import InOrder

PAYS_FROM_RECORDS = 200
"""From so many records on a chunk may go as a transaction: its lane then waits for two round trips, and all
others of the node with it. Calls of fewer records cost Redis less than that costs the writer."""
LONGEST_MS = 10**15
"""Longer times are cut to this, 31,000 years: Redis refuses a date beyond 63 bits."""


@dataclass(frozen=True, slots=True)
class LaneTarget:
    """The slot and keys of the lane of one (topic, partition, stripe), and the options of its records."""

    topic: str
    partition: int
    stripe: int
    slot: int
    watermark_key: bytes
    key_prefix: bytes
    options: Options

    @classmethod
    def of(cls, layout: Layout, partition: int, stripe: int) -> LaneTarget:
        """The lane in a valid layout; for partitions beyond the layout's see `state.lanes.lane_at`."""
        lane = lanes.lane_at(layout, partition, stripe)
        return cls(
            layout.topic,
            partition,
            stripe,
            lane.slot,
            lane.watermark_key,
            redis_keys.value_key_prefix(lane.tag, layout.topic, layout.generation),
            layout.options,
        )

    @classmethod
    def of_partition(cls, layout: Layout, partition: int) -> list[LaneTarget]:
        """The lanes of all stripes of a partition."""
        return [cls.of(layout, partition, stripe) for stripe in range(layout.stripes)]

    @property
    def name(self) -> str:
        """Its name within the topic, as in Redis keys: "partition.stripe"."""
        return f"{self.partition}.{self.stripe}"

    @property
    def in_order(self) -> InOrder | None:
        """How it takes records as they come, while it has no strays; None: it does not."""
        if not self.options.in_log_order:
            return None
        options, base, name = self.options, self.key_prefix.removesuffix(b"v:"), self.name.encode()

        def keys(kind: bytes, number: bytes = b"") -> tuple[bytes, ...]:
            return tuple(redis_keys.parts_of(b"%b%b:%b%b" % (base, kind, name, number), options.index))

        return InOrder(
            keys(b"i") if options.index else (),
            min(options.marker_ms, LONGEST_MS),
            tuple(keys(b"f", b".%d" % each) for each in range(len(options.fields) + len(options.indexes))),
            options.history_count or 0,
            base + b"h:",
            keys(b"p") if options.index and options.history_count else (),
        )

    def delivery(self, count: int) -> Delivery:
        """How the lane gets a chunk of so many records of its own; strays always go as calls."""
        return Delivery(self.key_prefix, self.in_order if count >= PAYS_FROM_RECORDS else None)

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"


def lanes_of(layout: Layout) -> Iterator[LaneTarget]:
    """The lanes of a layout in which readers look for keys."""
    for partition in range(layout.partition_count):
        yield from LaneTarget.of_partition(layout, partition)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [begin, end) of a partition, and the freshness of a lane that holds them.

    `complete_as_of_ms`: the time as of which the lane is then complete (ms since 1970); 0: unknown.
    `log_end`: the last observed end offset of the partition; 0: not observed.
    """

    begin: int
    end: int
    complete_as_of_ms: int = 0
    log_end: int = 0


@dataclass(slots=True)
class LaneCall:
    """A call for a lane, and the offsets that it covers. Its reply is stored in `replies`, if that is needed.

    `words`: the command, but for the records of `chunk`. `when_full`: the function that a full node may take
    instead, if there is one. `is_ordered`: a transaction may apply the chunk instead.
    """

    lane: LaneTarget
    covered: OffsetRange
    words: tuple[bytes, ...]
    chunk: Chunk | None = None
    is_ordered: bool = False
    replies: dict[LaneTarget, Any] | None = None
    when_full: bytes = b""

    @property
    def packed(self) -> bytes:
        """The encoded command with the chunk's records."""
        return self._encoded(self.words)

    def packed_when_full(self) -> bytes:
        """The same for a full node; empty without such a function."""
        if not self.when_full:
            return b""
        return self._encoded((self.words[0], self.when_full, *self.words[2:]))

    def _encoded(self, words: tuple[bytes, ...]) -> bytes:
        head = encode_words(words)
        if self.chunk is None:
            return head
        # The RESP header counts the records too.
        own, _, rest = head.partition(b"\r\n")
        return b"".join((b"*%d\r\n" % (int(own[1:]) + 2 * self.chunk.count), rest, self.chunk.arguments))

    def settle(self, reply: Any) -> None:
        """Store the reply, if it is needed."""
        if self.replies is not None:
            self.replies[self.lane] = reply


@dataclass(frozen=True, slots=True)
class LaneStart:
    """The state of a lane when it was opened.

    `incomplete`: the log lost records before the lane read them. `has_strays`, `complete_as_of_ms`: as in
    `model.records.Watermark`. `taken`: for each other partition the offset below which the lane has all of
    its strays. `given`, in a partition's first lane: for each lane ("partition.stripe") the offset below
    which it was given all strays of this partition. `may_lack_strays`: it has never been complete, or has
    failed over, and has not been marked complete since. `missed_deletions`: compaction may have removed
    tombstones before the lane read them.
    """

    next_offset: int
    incomplete: bool
    has_strays: bool
    complete_as_of_ms: int
    taken: Mapping[int, int] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    may_lack_strays: bool = False
    missed_deletions: bool = False

    @classmethod
    def of_reply(cls, reply: Any) -> LaneStart:
        """Parse the reply of the library's `open`."""
        next_offset, incomplete, has_strays, complete_ms, taken, given, may_lack_strays, missed = reply
        return cls(
            int(next_offset),
            bool(incomplete),
            bool(has_strays),
            int(complete_ms),
            {int(partition): int(to) for partition, to in zip(taken[::2], taken[1::2], strict=True)},
            {name.decode(): int(to) for name, to in zip(given[::2], given[1::2], strict=True)},
            bool(may_lack_strays),
            bool(missed),
        )


class LostStrays(NamedTuple):
    """What a lane lacks of a partition's records: those of [begin, end), as far as they are the lane's."""

    lane: LaneTarget
    source_partition: int
    begin: int
    end: int


def lost_strays(starts: Mapping[LaneTarget, LaneStart]) -> Iterator[LostStrays]:
    """Lanes that lack strays they were given.

    A failover of a lane's shard may lose acknowledged strays. The partition that they came from lies in
    another shard, and its watermark does not show the loss. Lanes that are not opened are not looked at.
    """
    by_name = {(lane.topic, lane.name): lane for lane in starts}
    for source, start in starts.items():
        for name, to in start.given.items():
            lane = by_name.get((source.topic, name))
            if lane is None:
                continue
            has = starts[lane].taken.get(source.partition, 0)
            if has < to:
                yield LostStrays(lane, source.partition, has, to)
