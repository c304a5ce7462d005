"""Removing all keys of a topic's generation: the records first, the lanes' watermarks last."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from keylane.adapters.redis.resp import encode_command, translate_redis_errors
from keylane.ports import Deadline
from keylane.routing import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.adapters.redis.cluster import Cluster, Node
    from keylane.ports import Clock

AT_ONCE = 1000
"""Keys that one SCAN looks at: well under a millisecond of the server's time."""

_TIMEOUT_MS = 5000


def remove_generation(
    cluster: Cluster, clock: Clock, topic: str, generation: int
) -> Iterator[tuple[int, int]]:
    """Remove step by step; each step gives how many keys it has looked at and how many it has removed.

    A lane's watermark tells readers with an old layout that there is a new one: it goes when no record is
    left. Slots may move meanwhile: all nodes are looked through until none has a record. Raises
    StateUnavailable; whatever it was broken off at, a new call goes on.
    """
    pattern = b"{*}:%b:%d:*" % (topic.encode(), generation)
    # The pattern's star takes in braces too: a record key of another topic may look like ours from afar.
    ours = re.compile(rb"\{[0-9a-z]{1,4}\}:%b:%d:(?P<kind>.)" % (re.escape(topic.encode()), generation))
    while True:
        found = 0
        watermarks: list[tuple[Node, bytes]] = []
        with translate_redis_errors():
            cluster.refresh(_deadline(clock))
            primaries = sorted({cluster.primary(slot) for slot in range(SLOTS)})
        for node in primaries:
            cursor = b"0"
            while True:
                cursor, keys = _scan(cluster, clock, node, cursor, pattern)
                kinds = {key: match["kind"] for key in keys if (match := ours.match(key))}
                watermarks += [(node, key) for key, kind in kinds.items() if kind == b"w"]
                records = [key for key, kind in kinds.items() if kind != b"w"]
                _unlink(cluster, clock, node, records)
                found += len(records)
                yield AT_ONCE, len(records)
                if cursor == b"0":
                    break
        if not found:
            break
    for node in primaries:
        mine = [key for on, key in watermarks if on == node]
        _unlink(cluster, clock, node, mine)
        yield len(mine), len(mine)


def _scan(
    cluster: Cluster, clock: Clock, node: Node, cursor: bytes, pattern: bytes
) -> tuple[bytes, list[bytes]]:
    command = encode_command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"%d" % AT_ONCE)
    with translate_redis_errors():
        (reply,) = cluster.roundtrip(node, command, 1, _deadline(clock))
        if isinstance(reply, Exception):
            raise reply
    return reply[0], reply[1]


def _unlink(cluster: Cluster, clock: Clock, node: Node, keys: Sequence[bytes]) -> None:
    """One command for each key: they lie in different slots."""
    for first in range(0, len(keys), AT_ONCE):
        some = keys[first : first + AT_ONCE]
        packed = b"".join(encode_command(b"UNLINK", key) for key in some)
        with translate_redis_errors():
            for reply in cluster.roundtrip(node, packed, len(some), _deadline(clock)):
                if isinstance(reply, Exception):
                    raise reply


def _deadline(clock: Clock) -> Deadline:
    return Deadline.after_ms(_TIMEOUT_MS, clock)
