"""The Redis of the model: a real cluster whose lanes lose calls, or everything, as in failovers."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.support import lanes as t

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.resp import encode_command
from keylane.ports import Clock, Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from keylane.adapters.redis.cluster import Node, RedisSettings
    from keylane_spark.adapters.lane import LaneTarget

MARKER_MS = 86_400_000
ELSEWHERE = b"f" * 40
"""The history of another node: what a lane notes of its node does not match it any more."""
EXPIRY = b"expiry"
FAILOVER = b"failover"
_LATER = encode_command(b"EVAL", b"return redis.error_reply('TRYAGAIN later')", b"0")


Keys = dict[bytes, tuple["Node", bytes, bool]]
"""All keys: node, serialized value, whether it expires."""


class Crash(BaseException):
    """The writer's process ends in the middle of a batch."""


class LoggingCluster(Cluster):
    """The writers' connections. It notes each lane's calls, and can end or disturb a batch at any of them.

    All writers of the model share it, because only one of them runs at a time.
    """

    def __init__(self, settings: RedisSettings) -> None:
        super().__init__(settings)
        self.calls: dict[bytes, tuple[bytes, ...]] = {}
        self.crash_after: int | None = None
        self.delay_at: int | None = None
        self.traffic = 0
        """Counts what was sent and received: while it stays, so do the keys."""
        self._pending: Counter[Node] = Counter()

    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> Node:
        key = lane_of_call(packed)
        if key is not None:
            if self.crash_after is not None:
                self.crash_after -= 1
                if self.crash_after < 0:
                    raise Crash
            if self.delay_at is not None:
                self.delay_at -= 1
                if self.delay_at < 0:
                    self.delay_at = None
                    packed = _LATER
            if packed is not _LATER:
                self.calls[key] = (*self.calls.get(key, ()), packed)
        self.traffic += 1
        sent = super().send(node, packed, deadline, reply_count)
        self._pending[node] += 1
        return sent

    def receive(self, node: Node, reply_count: int, deadline: Deadline) -> list[Any]:
        self.traffic += 1
        replies = super().receive(node, reply_count, deadline)
        self._pending[node] -= 1
        return replies

    def receive_next(self, node: Node, deadline: Deadline) -> Any:
        self.traffic += 1
        reply = super().receive_next(node, deadline)
        self._pending[node] -= 1
        return reply

    def drop(self, node: Node) -> None:
        """Wait for what is in flight first: whether it arrives must not depend on chance."""
        waiting = self._pending.pop(node, 0)
        self.traffic += 1
        with contextlib.suppress(Exception):  # a connection that failed has no more replies
            for _ in range(waiting if self.is_connected(node) else 0):
                super().receive_next(node, Deadline.after_ms(5000, Clock()))
        super().drop(node)

    def close(self) -> None:
        """Keep the connections: the next writer uses them."""

    def finish(self) -> None:
        """After a crash: what was sent arrives, and no connection has replies left."""
        self.crash_after = self.delay_at = None
        for node in list(self._pending):
            self.drop(node)


def lane_of_call(packed: bytes) -> bytes | None:
    """The watermark's key of a call of the library on a lane, None for other commands."""
    words = packed.split(b"\r\n", 9)
    return words[8] if len(words) > 9 and words[2] == b"FCALL" and b":w:" in words[8] else None


class Inspector:
    """Reads and changes keys as no writer does: saves them, puts them back, expires markers, loses calls.

    `writers`: all others that change keys. What was read stays known until they, or it, send something.
    """

    def __init__(self, settings: RedisSettings, writers: LoggingCluster) -> None:
        self._cluster = Cluster(settings)
        self._writers = writers
        self._known: tuple[int, Keys] | None = None
        self._cluster.refresh(self._deadline())
        self._primaries = self._cluster.primaries()

    def save(self) -> Keys:
        """All keys: node, serialized value, whether it expires."""
        if self._known is None or self._known[0] != self._writers.traffic:
            self._known = self._writers.traffic, self._read()
        return self._known[1]

    def _read(self) -> Keys:
        every = [(b"KEYS", b"*")]
        keys = {node: own for node, (own,) in self._ask_all(dict.fromkeys(self._primaries, every)).items()}
        words = (b"DUMP", b"PTTL")
        dumps = {node: [(word, key) for key in own for word in words] for node, own in keys.items()}
        found = {}
        for node, replies in self._ask_all(dumps).items():
            for key, dump, ttl_ms in zip(keys[node], replies[::2], replies[1::2], strict=True):
                found[key] = node, dump, ttl_ms > 0
        return found

    def restore(self, saved: Keys) -> None:
        """Make the keys those that were saved."""
        now = self.save()
        self._known = None
        changes: dict[Node, list[tuple[bytes, ...]]] = {}
        for key, each in now.items():
            if key not in saved:
                changes.setdefault(each[0], []).append((b"DEL", key))
        for key, (node, dump, expires) in saved.items():
            if now.get(key) != (node, dump, expires):
                ttl = b"%d" % (MARKER_MS if expires else 0)
                changes.setdefault(node, []).append((b"RESTORE", key, ttl, dump, b"REPLACE"))
        self._ask_all(changes)
        self._known = self._writers.traffic, saved

    def expire_markers(self, lanes: Iterable[LaneTarget]) -> bool:
        """Delete what has a time to live; returns whether there was something."""
        found, self._known = False, None
        for lane in lanes:
            node = self._cluster.primary(lane.slot)
            keys = self.keys_of(lane)
            ttls = self._ask(node, [(b"PTTL", key) for key in keys])
            due = [key for key, ttl_ms in zip(keys, ttls, strict=True) if ttl_ms > 0]
            self._ask(node, [(b"DEL", key) for key in due])
            found = found or bool(due)
        return found

    def lose(self, lane: LaneTarget, kept: tuple[bytes, ...]) -> None:
        """Leave the lane as these calls made it, on a node with another history."""
        self._known = None
        node = self._cluster.primary(lane.slot)
        self._ask(node, [(b"DEL", key) for key in self.keys_of(lane)])
        history = lane.watermark_key.replace(b":w:", b":l:")
        for call in kept:
            if call == EXPIRY:
                self.expire_markers([lane])
            elif call == FAILOVER:
                self._ask(node, [(b"SET", history, ELSEWHERE, b"XX")])
            else:
                self._cluster.roundtrip(node, call, 1, self._deadline())

    def keys_of(self, lane: LaneTarget) -> list[bytes]:
        tag = lane.watermark_key[: lane.watermark_key.index(b"}") + 1]
        (keys,) = self._ask(self._cluster.primary(lane.slot), [(b"KEYS", tag + b":*")])
        return keys

    def contents(self, lanes: Sequence[LaneTarget]) -> list[dict[bytes, Any]]:
        """The keys of each lane without their common prefix, with their values."""
        nodes = [self._cluster.primary(lane.slot) for lane in lanes]
        found = self.save()
        keys = [sorted(key for key in found if key.startswith(lane.key_prefix[:-2])) for lane in lanes]
        asked: dict[Node, list[tuple[bytes, ...]]] = {}
        for node, own, lane in zip(nodes, keys, lanes, strict=True):
            asked.setdefault(node, []).extend(_reading(key, len(lane.key_prefix) - 2) for key in own)
        replies = {node: iter(each) for node, each in self._ask_all(asked).items()}
        return [
            {key[len(lane.key_prefix) - 2 :]: (next(replies[node]), found[key][2]) for key in own}
            for node, own, lane in zip(nodes, keys, lanes, strict=True)
        ]

    def _ask(self, node: Node, commands: list[tuple[bytes, ...]]) -> list[Any]:
        if not commands:
            return []
        packed = [encode_command(*command) for command in commands]
        return self._cluster.execute(node, packed, self._deadline())

    def _ask_all(self, commands: dict[Node, list[tuple[bytes, ...]]]) -> dict[Node, list[Any]]:
        """All nodes at once."""
        asked = {node: each for node, each in commands.items() if each}
        for node, each in asked.items():
            self._cluster.send(node, b"".join(encode_command(*words) for words in each), self._deadline())
        replies = {
            node: self._cluster.receive(node, len(each), self._deadline()) for node, each in asked.items()
        }
        for error in (reply for each in replies.values() for reply in each if isinstance(reply, Exception)):
            raise error
        return {node: replies.get(node, []) for node in commands}

    def close(self) -> None:
        self._cluster.close()

    @staticmethod
    def _deadline() -> Deadline:
        return Deadline.after_ms(10_000, t.CLOCK)


def _reading(key: bytes, prefix: int) -> tuple[bytes, ...]:
    """The command that reads a lane's key of this kind."""
    kind = key[prefix : prefix + 2]
    if kind in (b"s:", b"o:"):
        return b"HGETALL", key
    return (b"ZRANGE", key, b"0", b"-1") if kind in (b"i:", b"x:") else (b"GET", key)
