"""The slot map of a Redis Cluster, and what every client of its nodes has in common.

`cluster.Cluster` has connections of its own and blocks. The standing server's requests share theirs
(`keylane_serve.redis.shared_cluster`). There are no retries here: callers know what may be repeated.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from keylane.adapters.redis.connections import Node, RedisSettings
from keylane.adapters.redis.errors import CREDENTIALS, translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.errors import StateUnavailable
from keylane.metrics.meter import NO_METER, Meter
from keylane.ports import Deadline
from keylane.routing import SLOTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

REPLIES_LIMIT_BYTES = 32 * 1024 * 1024
"""The most bytes of one node's replies in memory: no Lambda could return more."""


class SlotMap(ABC):
    """The slot map, and commands to the nodes in it; a subclass has the connections.

    No call blocks past its deadline, except to resolve a host name, which Python can't bound. It raises the
    client library's errors: callers wrap all calls in `translate_redis_errors()`.
    """

    def __init__(self, settings: RedisSettings, meter: Meter = NO_METER) -> None:
        self.meter = meter
        self._settings = settings
        self._slots: list[tuple[Node, ...]] = [()] * SLOTS
        self._nodes: tuple[Node, ...] = ()
        self.shards: tuple[tuple[Node, ...], ...] = ()
        """The nodes of each shard, its primary first; empty before the first refresh."""
        self._refreshes = 0

    @abstractmethod
    def is_connected(self, node: Node) -> bool:
        """Whether a connection is open on this side; the server may have closed it."""

    @abstractmethod
    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> None:
        """Send commands, which have `reply_count` replies. The caller must read them all, or `abandon` them.

        Errors close and forget the connection, as in `roundtrip`.
        """

    @abstractmethod
    def receive(self, node: Node, reply_count: int, deadline: Deadline) -> list[Any]:
        """Read all replies that are still to come, as `roundtrip` does.

        Raises TooLarge for more than REPLIES_LIMIT_BYTES.
        """

    @abstractmethod
    def abandon(self, node: Node) -> None:
        """Give up the replies that the caller has not read: they must not mix with later ones."""

    @abstractmethod
    def keep_only(self, nodes: Collection[Node]) -> None:
        """Close and forget the connections to all other nodes."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. The cluster may be used again: it then reconnects."""

    def roundtrip(self, node: Node, packed: bytes, reply_count: int, deadline: Deadline) -> list[Any]:
        """Send commands and read all their replies; an error reply is returned as a value in the list.

        Any other error closes and forgets the connection before it is raised.
        """
        self.send(node, packed, deadline, reply_count)
        return self.receive(node, reply_count, deadline)

    def execute(self, node: Node, commands: Sequence[bytes], deadline: Deadline) -> list[Any]:
        """The replies to encoded commands; raises the first error reply."""
        replies = self.roundtrip(node, b"".join(commands), len(commands), deadline)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes of the slot map; empty before the first refresh."""
        return self._nodes

    def primary(self, slot: int) -> Node:
        """The node that takes the slot's writes. Raises StateUnavailable when none is known."""
        node = self.known_primary(slot)
        if node is None:
            raise StateUnavailable(f"no Redis node is known to serve slot {slot}")
        return node

    def known_primary(self, slot: int) -> Node | None:
        """The node that takes the slot's writes, None when the slot map does not list the slot."""
        nodes = self._slots[slot]
        return nodes[0] if nodes else None

    def primaries(self) -> list[Node]:
        """All nodes that take writes. Raises StateUnavailable when none is known for a slot."""
        # Neighbouring slots mostly share one tuple: a few comparisons instead of a call for each slot.
        shards = {nodes for nodes, _ in itertools.groupby(self._slots)}
        return sorted({self.primary(self._slots.index(nodes)) for nodes in shards})

    def nodes_of(self, slot: int) -> tuple[Node, ...]:
        """The slot's primary, then its replicas; empty when the slot map does not list the slot."""
        return self._slots[slot]

    def learn(self, slot: int, primary: Node) -> None:
        """Record a MOVED redirect: until the next refresh this node is the slot's primary."""
        others = tuple(node for node in self._slots[slot] if node != primary)
        self._slots[slot] = (primary, *others)

    def refresh(self, deadline: Deadline, ask_first: Node | None = None) -> None:
        """Re-read the slot map from the first node that answers; the nodes share the time that is left.

        Raises StateUnavailable when no node answers; the old slot map then stays.
        """
        self.meter.count("MapRefreshes")
        nodes = list(dict.fromkeys((*self._nodes, *self._settings.nodes)))
        # Start with another node each time: one that was cut off would return an outdated map every time.
        self._refreshes += 1
        first = self._refreshes % len(nodes)
        nodes = nodes[first:] + nodes[:first]
        candidates = nodes if ask_first is None else [ask_first, *(n for n in nodes if n != ask_first)]
        cause: Exception | None = None
        for left, node in zip(range(len(candidates), 0, -1), candidates, strict=True):
            attempt_ms = min(deadline.remaining_s / left, self._settings.connect_timeout_s) * 1000
            try:
                (reply,) = self.roundtrip(
                    node,
                    encode_command(b"CLUSTER", b"SLOTS"),
                    1,
                    Deadline.after_ms(attempt_ms, deadline.clock),
                )
            except (RedisError, OSError) as error:
                cause = error
                continue
            if isinstance(reply, list) and reply:
                self._set_slots(reply, node)
                return
            cause = reply if isinstance(reply, Exception) else None
        if isinstance(cause, CREDENTIALS):
            with translate_redis_errors():
                raise cause
        raise StateUnavailable("no node of the Redis Cluster returned the slot map") from cause

    def _set_slots(self, reply: list[Any], asked: Node) -> None:
        slots: list[tuple[Node, ...]] = [()] * SLOTS
        for start, end, *members in reply:
            nodes = tuple(announced(member[0], member[1], asked) for member in members)
            slots[start : end + 1] = [nodes] * (end + 1 - start)
        self._slots = slots
        self.shards = tuple(dict.fromkeys(slots))
        self._nodes = tuple(dict.fromkeys(node for nodes in self.shards for node in nodes))
        self.keep_only(self._nodes)


def announced(host: bytes | str | None, port: int, asked: Node) -> Node:
    """The node that a reply names; an absent host ("", "?" or null) means the host that was asked."""
    name = host.decode() if isinstance(host, bytes) else host
    return Node(name if name and name != "?" else asked.host, int(port))
