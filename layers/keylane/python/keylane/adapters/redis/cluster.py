"""A thin client of Redis Cluster: the slot map, and one connection to each node.

It uses redis-py's bare `Connection` (for TLS and AUTH) with the hiredis parser: a read is one `MGET`, and
redis-py's own cluster client takes longer around it than the server does, 97 us against 62 us.
There are no retries, pools or background threads here: callers know what may be repeated.

This is the only module that touches `Connection._sock`, redis-py's private socket. There is no public way to
bound a complete exchange: `socket_timeout` bounds each `recv`, and is fixed when the connection is made. If a
release renames the attribute, every exchange raises AttributeError and tests/integration/redis fails.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.adapters.redis.connections import Connector, Node, RedisSettings, seconds_left
from keylane.adapters.redis.errors import CREDENTIALS, translate_redis_errors
from keylane.adapters.redis.resp import INCOMPLETE, encode_command, new_reader
from keylane.errors import StateUnavailable, TooLarge
from keylane.metrics.meter import NO_METER, Meter
from keylane.ports import Deadline
from keylane.routing import SLOTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.redis.connections import Wire

__all__ = ["REPLIES_LIMIT_BYTES", "Cluster", "Node", "RedisSettings", "announced", "seconds_left"]

RECEIVE_BYTES = 65_536
REPLIES_LIMIT_BYTES = 32 * 1024 * 1024
"""The most bytes of one node's replies in memory: no Lambda could return more."""


class Cluster:
    """The slot map and one connection to each node in use.

    Not thread-safe: each thread or task makes its own. No call blocks past its deadline, except to resolve a
    host name, which Python can't bound. It raises the client library's errors: callers wrap all calls in
    `translate_redis_errors()`.
    """

    def __init__(self, settings: RedisSettings, meter: Meter = NO_METER) -> None:
        self.meter = meter
        self._settings = settings
        self._slots: list[tuple[Node, ...]] = [()] * SLOTS
        self._nodes: tuple[Node, ...] = ()
        self.shards: tuple[tuple[Node, ...], ...] = ()
        """The nodes of each shard, its primary first; empty before the first refresh."""
        self._connections: dict[Node, Wire] = {}
        self._opened: Counter[Node] = Counter()
        self._reader = new_reader()
        self._refreshes = 0
        self._connector = Connector(settings)
        # Closes the sockets of a cluster that nobody closed, even one in a reference cycle: the garbage
        # collector finalizes the objects of a cycle in no order that would close them in time.
        weakref.finalize(self, _disconnect_all, self._connections).atexit = False

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
        return sorted({self.primary(slot) for slot in range(SLOTS)})

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
        for node in self._connections.keys() - set(self._nodes):
            self.drop(node)

    def _connection(self, node: Node, deadline: Deadline) -> Wire:
        """The connection to `node`, made (with AUTH) when there is none."""
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = self._connector.connect(node, deadline)
            self._opened[node] += 1
        return connection

    def connection_number(self, node: Node) -> int:
        """Which connection to the node this is, 0 for none: what a server keeps of one ends with it."""
        return self._opened[node] if node in self._connections else 0

    def is_connected(self, node: Node) -> bool:
        """Whether a connection is open on this side; the server may have closed it."""
        return node in self._connections

    def execute(self, node: Node, commands: Sequence[bytes], deadline: Deadline) -> list[Any]:
        """The replies to encoded commands; raises the first error reply."""
        replies = self.roundtrip(node, b"".join(commands), len(commands), deadline)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def roundtrip(self, node: Node, packed: bytes, reply_count: int, deadline: Deadline) -> list[Any]:
        """Send commands and read all their replies; an error reply is returned as a value in the list.

        Any other error closes and forgets the connection before it is raised.
        """
        self.send(node, packed, deadline)
        return self.receive(node, reply_count, deadline)

    def send(self, node: Node, packed: bytes, deadline: Deadline) -> None:
        """Send commands. The caller must read every reply, or drop the node: they would mix with later ones.

        Errors close and forget the connection, as in `roundtrip`.
        """
        sock = self._connection(node, deadline)._sock  # noqa: SLF001 (see the module's docstring)
        try:
            sock.settimeout(seconds_left(deadline))
            sock.sendall(packed)
        except BaseException as error:
            self._failed(node, error)
            raise

    def receive(self, node: Node, reply_count: int, deadline: Deadline) -> list[Any]:
        """Read all replies that are still to come, as `roundtrip` does.

        Raises TooLarge for more than REPLIES_LIMIT_BYTES.
        """
        sock = self._connections[node]._sock  # noqa: SLF001
        replies: list[Any] = []
        size_bytes = 0
        try:
            while True:
                sock.settimeout(seconds_left(deadline))
                data = sock.recv(RECEIVE_BYTES)
                if not data:
                    raise RedisConnectionError("the server closed the connection")  # noqa: TRY301
                size_bytes += len(data)
                if size_bytes > REPLIES_LIMIT_BYTES:
                    raise TooLarge("answer", size_bytes, REPLIES_LIMIT_BYTES)  # noqa: TRY301
                self._reader.feed(data)
                while len(replies) < reply_count and (reply := self._reader.gets()) is not INCOMPLETE:
                    replies.append(reply)
                if len(replies) == reply_count:
                    break
            if self._reader.has_data():
                raise InvalidResponse("the server sent more replies than commands")  # noqa: TRY301
        except BaseException as error:
            self._failed(node, error)
            raise
        if isinstance(replies[0], AuthenticationError):  # NOAUTH: this connection was made without a password
            self.drop(node)
            self._connector.renew(deadline)
        return replies

    def receive_next(self, node: Node, deadline: Deadline) -> Any:
        """Read the next of several pending replies, for a caller that pipelines; errors as `roundtrip`.

        The connection's own parser parses it, and keeps the received part of the replies behind it.
        """
        connection = self._connections[node]
        try:
            connection._sock.settimeout(seconds_left(deadline))  # noqa: SLF001
            return connection.read_response()
        except ResponseError as error:
            return error
        except BaseException as error:
            self._failed(node, error)
            raise

    def _failed(self, node: Node, error: BaseException) -> None:
        """Forget the connection; raise an error of the socket as the client library's."""
        self._reader = new_reader()
        self.drop(node)
        if isinstance(error, TimeoutError):
            raise RedisTimeoutError("the server did not answer in time") from error
        if isinstance(error, OSError):
            raise RedisConnectionError("the connection broke") from error

    def drop(self, node: Node) -> None:
        """Close and forget the connection to `node`, if there is one."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.disconnect()

    def close(self) -> None:
        """Close all connections. The cluster may be used again: it then reconnects."""
        _disconnect_all(self._connections)


def _disconnect_all(connections: dict[Node, Wire]) -> None:
    while connections:
        connections.popitem()[1].disconnect()


def announced(host: bytes | str | None, port: int, asked: Node) -> Node:
    """The node that a reply names; an absent host ("", "?" or null) means the host that was asked."""
    name = host.decode() if isinstance(host, bytes) else host
    return Node(name if name and name != "?" else asked.host, int(port))
