"""Removes all keys of a topic's generation: first the records, then the watermarks of its lanes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from keylane.adapters.redis.errors import translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.adapters.redis.cluster import Cluster, Node
    from keylane.ports import Clock

KEYS_PER_CALL = 1000
"""Keys that one SCAN looks at: well under a millisecond of the server's time."""

_TIMEOUT_MS = 5000


def remove_generation(
    cluster: Cluster, clock: Clock, topic: str, generation: int
) -> Iterator[tuple[int, int]]:
    """Remove a generation in small steps; each yields how many keys were looked at and removed.

    1. All nodes are scanned, and records, histories and indexes are removed.
    2. That is repeated until a pass finds none: slots may migrate meanwhile.
    3. The watermarks are removed last: they direct readers with the old layout to the new generation.

    Raises StateUnavailable; a new call then continues.
    """
    pattern = b"{*}:%b:%d:*" % (topic.encode(), generation)
    # The pattern's star matches braces too, so it also finds record keys of other topics that look alike.
    own_key = re.compile(rb"\{[0-9a-z]{1,4}\}:%b:%d:(?P<kind>.)" % (re.escape(topic.encode()), generation))
    while True:
        found = 0
        watermarks: dict[Node, list[bytes]] = {}
        with translate_redis_errors():
            cluster.refresh(Deadline.after_ms(_TIMEOUT_MS, clock))
            primaries = cluster.primaries()
        for node in primaries:
            cursor = b"0"
            while True:
                cursor, keys = _scan(cluster, clock, node, cursor, pattern)
                kinds = {key: match["kind"] for key in keys if (match := own_key.match(key))}
                watermarks.setdefault(node, []).extend(key for key, kind in kinds.items() if kind == b"w")
                records = [key for key, kind in kinds.items() if kind != b"w"]
                _unlink(cluster, clock, node, records)
                found += len(records)
                yield KEYS_PER_CALL, len(records)
                if cursor == b"0":
                    break
        if not found:
            break
    for node, keys in watermarks.items():
        _unlink(cluster, clock, node, keys)
        yield len(keys), len(keys)


def _scan(
    cluster: Cluster, clock: Clock, node: Node, cursor: bytes, pattern: bytes
) -> tuple[bytes, list[bytes]]:
    command = encode_command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"%d" % KEYS_PER_CALL)
    with translate_redis_errors():
        ((cursor, keys),) = cluster.execute(node, [command], Deadline.after_ms(_TIMEOUT_MS, clock))
    return cursor, keys


def _unlink(cluster: Cluster, clock: Clock, node: Node, keys: Sequence[bytes]) -> None:
    """Remove keys by one command each: they lie in different slots."""
    for first in range(0, len(keys), KEYS_PER_CALL):
        commands = [encode_command(b"UNLINK", key) for key in keys[first : first + KEYS_PER_CALL]]
        with translate_redis_errors():
            cluster.execute(node, commands, Deadline.after_ms(_TIMEOUT_MS, clock))
