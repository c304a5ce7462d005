"""Keys of a Redis Cluster as text: JSON lines that can be reviewed, and stored in another cluster.

Bytes are strings of the characters U+0000 to U+00FF, one for each byte.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support import lanes as t

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis.cluster import RedisCluster


class StoredKey(NamedTuple):
    """A key, its type as Redis names it, its content, and in how many ms it expires (-1: never)."""

    key: bytes
    kind: str
    content: Any
    expires_in_ms: int

    def to_json(self) -> str:
        return json.dumps(
            {"key": _text(self.key), self.kind: self.content, "expires_in_ms": self.expires_in_ms}
        )

    @classmethod
    def from_json(cls, line: str) -> StoredKey:
        fields = json.loads(line)
        key, expires_in_ms = fields.pop("key"), fields.pop("expires_in_ms")
        [(kind, content)] = fields.items()
        return cls(_bytes(key), kind, content, expires_in_ms)


def stored_keys(nodes: str, patterns: Iterable[str]) -> list[StoredKey]:
    """All keys of a cluster that match one of the patterns, in order."""
    with t.client(nodes) as client:
        found = {
            key
            for pattern in patterns
            for key in client.scan_iter(match=pattern, count=10_000, target_nodes="primaries")
        }
        return [_read(client, key) for key in sorted(found)]


def store(nodes: str, keys: Iterable[StoredKey]) -> None:
    """Write keys as they were, and wait until a replica of each has them."""
    with t.client(nodes) as client:
        for each in keys:
            _write(client, each)
            client.wait(1, 5_000, target_nodes=client.get_node_from_key(_text(each.key)))


def _read(client: RedisCluster, key: bytes) -> StoredKey:
    kind = client.type(key).decode()
    content: Any
    if kind == "string":
        content = _text(client.get(key))
    elif kind == "hash":
        content = {_text(name): _text(value) for name, value in sorted(client.hgetall(key).items())}
    elif kind == "zset":
        content = [[_text(member), score] for member, score in client.zrange(key, 0, -1, withscores=True)]
    elif kind == "list":
        content = [_text(each) for each in client.lrange(key, 0, -1)]
    else:
        raise LookupError(f"{key!r} is a {kind}: how is it kept?")
    return StoredKey(key, kind, content, client.pttl(key))


def _write(client: RedisCluster, entry: StoredKey) -> None:
    key, content = entry.key, entry.content
    if entry.kind == "string":
        client.set(key, _bytes(content))
    elif entry.kind == "hash":
        client.hset(key, mapping={_bytes(name): _bytes(value) for name, value in content.items()})
    elif entry.kind == "zset":
        client.zadd(key, {_bytes(member): score for member, score in content})
    elif entry.kind == "list":
        client.rpush(key, *map(_bytes, content))
    else:
        raise LookupError(f"{key!r} is a {entry.kind}: how is it stored?")
    if entry.expires_in_ms >= 0:
        client.pexpire(key, entry.expires_in_ms)


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
