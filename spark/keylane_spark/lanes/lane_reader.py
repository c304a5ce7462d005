"""Reads what lanes hold, many keys at a time, from primaries: for a writer that compares generations."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from keylane.adapters.redis.cluster import Cluster, Node
from keylane.adapters.redis.error_replies import ResponseError
from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.model.records import Layout, Position
from keylane.ports import Clock, Deadline
from keylane.state import codec, lanes
from keylane.state.lanes import Lane
from keylane_spark.lanes.sweep import scan
from keylane_spark.rows.routing import lane_column

_TIMEOUT_MS = 5000
_ODD = b"?"
"""The head of what is not a string: the library overwrites it, so it is not taken for nothing."""


class Stored(NamedTuple):
    """What a lane has under a key.

    `head`: ORDERED_HEAD_BYTES of its envelope, empty for an absent key. `record`: what the head says; None
    for an absent key, and for what is not an envelope.
    """

    lane: Lane
    head: bytes
    record: codec.RecordHead | None

    @classmethod
    def of(cls, lane: Lane, head: bytes) -> Stored:
        """Decode the head."""
        try:
            return cls(lane, head, codec.decode_head(head, lane.partition))
        except codec.CodecError:
            return cls(lane, head, None)

    @property
    def is_marker(self) -> bool:
        """Whether it is the marker of a tombstone."""
        return self.record is not None and self.record.is_tombstone


class LaneReader:
    """Reads lanes by the slot map that `keys` has read. Not thread-safe, as `Cluster`.

    Every method raises StateUnavailable for a node that is away, and for slots that have moved since or are
    moving: what was read may then lack keys.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def keys(self, layout: Layout) -> Iterator[list[bytes]]:
        """The keys that a generation has, in many small steps.

        They include all keys that it has from the first step to the last, some perhaps twice.
        """
        prefix = b":%b:%d:v:" % (layout.topic.encode(), layout.generation)
        own = re.compile(rb"\{[0-9a-z]{1,4}\}" + re.escape(prefix))
        # The pattern's star matches braces too, so it also finds record keys of other topics that look alike.
        for _, names in scan(self._cluster, self._clock, b"{*}%b*" % prefix):
            yield [name[match.end() :] for name in names if (match := own.match(name))]
        # A slot that migrates answers ASK for a key that it does not have, one that has moved answers MOVED.
        probes = [(lane.slot, (b"EXISTS", b"{%b}:probe" % lane.tag)) for lane in lanes.lanes_of_topic(layout)]
        self._ask(probes)

    def stored(self, layout: Layout, keys: Collection[bytes]) -> list[Stored]:
        """What the generation has under each of these keys."""
        numbers = lane_column(pa.array(keys, pa.binary()), layout).tolist() if keys else []
        found = [lanes.lane_at(layout, *divmod(number, layout.stripes)) for number in numbers]
        heads = self._ask([_head(lane, key) for lane, key in zip(found, keys, strict=True)])
        return [Stored.of(lane, head) for lane, head in zip(found, heads, strict=True)]

    def absent(self, layout: Layout, positions: Mapping[bytes, Position]) -> set[bytes]:
        """Those of the keys that the generation lacks, though their lanes have read these positions."""
        asked = [(lanes.lane_of_key(layout, key), key, position) for key, position in positions.items()]
        commands: list[tuple[int, tuple[bytes, ...]]] = []
        for lane, key, position in asked:
            if position.partition == lane.partition:
                commands.append((lane.slot, (b"GET", lane.watermark_key)))
            else:
                commands.append(
                    (lane.slot, (b"HGET", lanes.strays_key(layout, lane), b"%d" % position.partition))
                )
            # The key comes second: when it is asked for, the lane has read at least as far.
            commands.append(_head(lane, key))
        replies = iter(self._ask(commands))
        found = set()
        for (lane, key, position), read, head in zip(asked, replies, replies, strict=True):
            if position.partition == lane.partition:
                read_to = lanes.decode_watermark(lane.watermark_key, read).next_offset if read else 0
            else:
                read_to = int(read or 0)
            if position.offset < read_to and not head:
                found.add(key)
        return found

    def _ask(self, commands: Sequence[tuple[int, tuple[bytes, ...]]]) -> list[Any]:
        """The replies to commands for these slots, those of a slot in the order of the commands."""
        by_node: defaultdict[Node, list[int]] = defaultdict(list)
        for number, (slot, _) in enumerate(commands):
            by_node[self._cluster.primary(slot)].append(number)
        replies: list[Any] = [None] * len(commands)
        with translate_redis_errors():
            for node, numbers in by_node.items():
                packed = b"".join(encode_command(*commands[number][1]) for number in numbers)
                deadline = Deadline.after_ms(_TIMEOUT_MS, self._clock)
                for number, reply in zip(
                    numbers, self._cluster.roundtrip(node, packed, len(numbers), deadline), strict=True
                ):
                    replies[number] = _checked(reply)
        return replies


def _head(lane: Lane, key: bytes) -> tuple[int, tuple[bytes, ...]]:
    last = b"%d" % (codec.ORDERED_HEAD_BYTES - 1)
    return lane.slot, (b"GETRANGE", lane.value_prefix + key, b"0", last)


def _checked(reply: Any) -> Any:
    if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
        return _ODD
    if isinstance(reply, Exception):
        raise reply
    return reply
