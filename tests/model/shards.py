"""The shards of the model: what a real Redis holds, saved and put back, and lost as in failovers.

Each slot that has lanes counts as a shard of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.model.connections import commands_in, tag_of

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.resp import encode_command
from keylane.state.redis_keys import COPY_TAGS, RECORD_TAG, topics_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.model.connections import SharedCluster

    from keylane.adapters.redis.cluster import Node, RedisSettings
    from keylane.ports import Call, Deadline

MARKER_MS = 86_400_000
ELSEWHERE = b"f" * 40
"""The history of another node: what a lane notes of its node does not match it any more."""
EXPIRY = b"expiry"
FAILOVER = b"failover"
HOUR = b"hour"
"""Beside the calls of a lane: a time that no failover takes back."""
_REMEMBERED = 20_000
TOPICS_KEYS = frozenset(map(topics_key, (RECORD_TAG, *COPY_TAGS)))
"""Sorted sets of the names of topics."""

Keys = dict[bytes, tuple["Node", bytes, bool]]
"""All keys: node, serialized value, whether it expires."""
Contents = dict[bytes, tuple[Any, bool]]
"""Keys with their values, and whether they expire."""


class Inspector:
    """Reads and changes keys as no writer does: saves them, puts them back, expires markers, loses calls.

    `writers`: all others that change keys. What was read stays known until they, or it, send something.
    """

    def __init__(self, settings: RedisSettings, writers: SharedCluster) -> None:
        self._cluster = Cluster(settings)
        self._writers = writers
        self._known: tuple[int, Keys] | None = None
        self._values: dict[tuple[bytes, bytes], Any] = {}
        self._cluster.refresh(writers.deadline())
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

    def contents(self) -> Contents:
        """All keys with their values."""
        found = self.save()
        if len(self._values) > _REMEMBERED:
            self._values.clear()
        unknown = [(key, *each) for key, each in found.items() if (key, each[1]) not in self._values]
        asked: dict[Node, list[tuple[bytes, bytes]]] = {}
        for key, node, dump, _ in unknown:
            asked.setdefault(node, []).append((key, dump))
        commands = {node: [_reading(key) for key, _ in own] for node, own in asked.items()}
        for node, replies in self._ask_all(commands).items():
            self._values |= dict(zip(asked[node], replies, strict=True))
        return {key: (self._values[key, dump], expires) for key, (_, dump, expires) in found.items()}

    def expire(self, tags: Iterable[bytes]) -> bool:
        """Delete what has a time to live in these slots; returns whether there was something.

        What lanes note of the times of their keys is over, too.
        """
        due: dict[Node, list[tuple[bytes, ...]]] = {}
        wanted = set(tags)
        for key, (value, expires) in self.contents().items():
            if tag_of(key) in wanted and (expires or is_of(key, b"x")):
                command = (b"DEL", key) if expires else (b"ZADD", key, *_at_once(value))
                due.setdefault(self.save()[key][0], []).append(command)
        self._known = None
        self._ask_all(due)
        return bool(due)

    def run(self, calls: Sequence[Call], deadline: Deadline) -> list[Any]:  # noqa: ARG002
        """As `State.run`, from primaries; scripts always go with their texts."""
        calls = [call.with_text if call.script else call for call in calls]
        nodes = [self._cluster.primary(call.slot) for call in calls]
        asked = {
            node: [call.words for call, own in zip(calls, nodes, strict=True) if own == node]
            for node in dict.fromkeys(nodes)
        }
        replies = {node: iter(each) for node, each in self._ask_all(asked).items()}
        return [next(replies[node]) for node in nodes]

    def lose(self, tag: bytes, kept: tuple[bytes, ...]) -> None:
        """Leave the lanes of a slot as these calls made them, on a node with another history."""
        node = self._cluster.primary(routing.key_slot(b"{%b}" % tag))
        self._ask(node, [(b"DEL", key) for key in self._keys_of(node, tag)])
        for call in kept:
            if call == EXPIRY:
                self._known = None
                self.expire([tag])
            elif call == FAILOVER:
                notes = [key for key in self._keys_of(node, tag) if b":l:" in key]
                self._ask(node, [(b"SET", key, ELSEWHERE) for key in notes])
            elif call != HOUR:
                commands = sum(1 for _ in commands_in(call))
                self._cluster.roundtrip(node, call, commands, self._writers.deadline())
        self._known = None

    def _keys_of(self, node: Node, tag: bytes) -> list[bytes]:
        (keys,) = self._ask(node, [(b"KEYS", b"{%b}:*" % tag)])
        return keys  # type: ignore[no-any-return]

    def _ask(self, node: Node, commands: list[tuple[bytes, ...]]) -> list[Any]:
        return self._ask_all({node: commands})[node]

    def _ask_all(self, commands: dict[Node, list[tuple[bytes, ...]]]) -> dict[Node, list[Any]]:
        """All nodes at once."""
        asked = {node: each for node, each in commands.items() if each}
        deadline = self._writers.deadline()
        for node, each in asked.items():
            self._cluster.send(node, b"".join(encode_command(*words) for words in each), deadline)
        replies = {node: self._cluster.receive(node, len(each), deadline) for node, each in asked.items()}
        for error in (reply for each in replies.values() for reply in each if isinstance(reply, Exception)):
            raise error
        return {node: replies.get(node, []) for node in commands}

    def close(self) -> None:
        self._cluster.close()


def kind_of(key: bytes) -> tuple[int, bytes, bytes] | None:
    """Of a lane's key its generation, its kind, and what follows; None of other keys."""
    words = key.split(b":", 4)
    if key.startswith(b"{keylane") or len(words) < 4:
        return None
    return int(words[2]), words[3], words[4] if len(words) > 4 else b""


def is_of(key: bytes, kinds: bytes) -> bool:
    """Whether a key is a lane's, of one of these kinds."""
    found = kind_of(key)
    return found is not None and found[1] in kinds


def _reading(key: bytes) -> tuple[bytes, ...]:
    """The command that reads a key of this kind."""
    found = kind_of(key)
    kind = found[1] if found else b""
    if kind in (b"s", b"o", b"b"):
        return b"HGETALL", key
    if kind == b"x":
        return b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"
    is_set = kind in (b"i", b"f") or key in TOPICS_KEYS
    return (b"ZRANGE", key, b"0", b"-1") if is_set else (b"GET", key)


def _at_once(times: Sequence[bytes]) -> Iterator[bytes]:
    """Arguments of ZADD that make what expires at these times overdue."""
    for name in times[::2]:
        yield from (b"1", name)
