"""Looks at every key of every node: replicas have what their primaries have, and nothing is left behind."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import redis
from tests.torture.configurations import SIDE_TOPICS

from keylane.errors import KeylaneError
from keylane.state import windows
from keylane.state.lanes import lane_at, lane_of_key, lanes_of_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from tests.torture.stack import TortureStack

    from keylane.model.records import Layout
    from keylane_local.servers.redis_node import RedisNode

SETTLED_WITHIN_S = 30
"""How long a replica may be behind, and a removed generation's last keys may stay."""
_OF_LANE = re.compile(
    rb"\{(?P<tag>[0-9a-z]{1,4})\}:(?P<name>[^:]+):(?P<generation>\d+):(?P<kind>.)(?::(?P<rest>.*))?",
    re.DOTALL,
)
_OF_TOPIC = re.compile(rb"\{keylane(?:-[hv])?\}:(?:views|topics|[a-z]+:(?P<name>[^:]+)(?::\d+)?)", re.DOTALL)
_LANE = re.compile(rb"(\d+)\.(\d+)(?:\.(\d+))?(?:\.(\d+))?")

Content = tuple[str, Any]
"""A key's type and all that it holds, without its time to live."""


def check_leftovers(layouts: Mapping[str, Layout], known: KnownKeys, stack: TortureStack) -> Iterator[str]:
    """Nothing is left of a generation, topic or lane that readers do not use. `layouts`: of views too."""

    def left() -> list[bytes]:
        found = []
        for shard in range(stack.cluster.shards):
            with _client(stack.shard(shard)[0]) as client:
                found += [key for key in client.scan_iter(count=1000) if not explains(key, layouts, known)]
        return found

    for key in _until_empty(left):
        yield f"no layout explains the key {key!r}"


class KnownKeys:
    """The keys that the log has of each topic. Of side topics it has none, and any key counts as known."""

    def __init__(self, names: Iterable[tuple[str, bytes]]) -> None:
        self._names = set(names)

    def has(self, topic: str, key: bytes) -> bool:
        return topic in SIDE_TOPICS or (topic, key) in self._names


def explains(redis_key: bytes, layouts: Mapping[str, Layout], known: KnownKeys) -> bool:
    """Whether a key belongs to a topic or view by the layout that readers use, and lies where it should."""
    if (of_topic := _OF_TOPIC.fullmatch(redis_key)) is not None:
        name = of_topic["name"]
        return _explains_list(redis_key, layouts) if name is None else name.decode() in layouts
    match = _OF_LANE.fullmatch(redis_key)
    layout = layouts.get(match["name"].decode()) if match else None
    if match is None or layout is None or int(match["generation"]) != layout.generation:
        return False
    try:
        if match["kind"] in b"vhr":
            return _explains_record(match, layout, known)
        if match["kind"] == b"e":
            return match["rest"] is None and any(lane.tag == match["tag"] for lane in lanes_of_topic(layout))
        lane = _LANE.fullmatch(match["rest"] or b"")
        is_named = lane is not None and _explains_part(match["kind"], lane[3], lane[4], layout)
        return is_named and lane_at(layout, int(lane[1]), int(lane[2])).tag == match["tag"]
    except (KeylaneError, ValueError):
        return False


def _explains_list(redis_key: bytes, layouts: Mapping[str, Layout]) -> bool:
    """Whether there is what a list has: that of views or of topics has no name of its own."""
    views = [each for each in layouts if windows.view_of_state(each)]
    return bool(views) if redis_key.endswith(b"views") else len(views) < len(layouts)


def _explains_part(kind: bytes, first: bytes | None, second: bytes | None, layout: Layout) -> bool:
    """Whether a lane has this part of an index; that of an index of fields comes after its number."""
    options, part, rest = layout.options, first, second
    if kind == b"f":
        count = len(options.fields) + len(options.indexes)
        if first is None or int(first) >= count:
            return False
        part, rest = second, None
    if kind in b"ipxqfb" and options.index > 1:
        return rest is None and part is not None and int(part) < options.index
    return part is None


def _explains_record(match: re.Match[bytes], layout: Layout, known: KnownKeys) -> bool:
    kind, name, tag = match["kind"], match["rest"], match["tag"]
    if kind == b"r":  # a table's row is in the lane of its group, a marker in any
        return layout.options.view is not None and any(lane.tag == tag for lane in lanes_of_topic(layout))
    if layout.options.view is None:
        return known.has(layout.topic, name) and lane_of_key(layout, name).tag == tag
    return lane_of_key(layout, windows.split(name)[0]).tag == tag


def check_replicas(stack: TortureStack, prefix: bytes = b"") -> Iterator[str]:
    """Each replica has what its primary has, byte by byte; of records only those whose key has the prefix."""
    for shard in range(stack.cluster.shards):
        primary, replica = stack.shard(shard)
        with _client(primary) as one, _client(replica) as other:
            other.readonly()
            names = {key for client in (one, other) for key in _scan(client, prefix)}
            # The heartbeat never rests: a key counts as different only if it is so again and again.
            for key in _until_empty(lambda: _differing(one, other, names)):  # noqa: B023 - runs at once
                has, had = _read(one, [key]), _read(other, [key])
                yield f"shard {shard}: the primary has {key!r} as {has[key]}, its replica as {had[key]}"


def _scan(client: redis.Redis, prefix: bytes) -> Iterator[bytes]:
    for key in client.scan_iter(count=1000):
        match = _OF_LANE.fullmatch(key)
        if match is None or match["kind"] not in b"vh" or match["rest"].startswith(prefix):
            yield key


def _differing(one: redis.Redis, other: redis.Redis, names: set[bytes]) -> list[bytes]:
    """The keys that differ; from now on only they are looked at."""
    ours, theirs = _read(one, names), _read(other, names)
    differing = [key for key in names if ours[key] != theirs[key]]
    names.intersection_update(differing)
    return differing


def _read(client: redis.Redis, names: Collection[bytes]) -> dict[bytes, Content]:
    types = client.pipeline(transaction=False)
    contents = client.pipeline(transaction=False)
    for name in names:
        types.type(name)
    kinds = [kind.decode() for kind in types.execute()]
    for name, kind in zip(names, kinds, strict=True):
        if kind == "zset":
            contents.zrange(name, 0, -1, withscores=True)
        elif kind == "hash":
            contents.hgetall(name)
        elif kind == "list":
            contents.lrange(name, 0, -1)
        else:
            contents.get(name)
    found = contents.execute(raise_on_error=False)
    return {name: (kind, held) for name, kind, held in zip(names, kinds, found, strict=True)}


def _until_empty(find: Callable[[], list[bytes]]) -> list[bytes]:
    """What is still found after a while; nothing as soon as nothing is found."""
    until = time.monotonic() + SETTLED_WITHIN_S
    while found := find():
        if time.monotonic() > until:
            return sorted(found)
        time.sleep(0.05)
    return []


def _client(node: RedisNode) -> redis.Redis:
    return redis.Redis(port=node.port, socket_timeout=5)
