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

from redis.exceptions import AuthenticationError, InvalidResponse, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.adapters.redis.connections import Connector, Node, RedisSettings, seconds_left
from keylane.adapters.redis.resp import INCOMPLETE, new_reader
from keylane.adapters.redis.slot_map import REPLIES_LIMIT_BYTES, SlotMap, announced
from keylane.errors import TooLarge
from keylane.metrics.meter import NO_METER, Meter

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection

    from keylane.adapters.redis.connections import Wire
    from keylane.ports import Deadline

__all__ = [
    "REPLIES_LIMIT_BYTES",
    "Cluster",
    "Node",
    "RedisSettings",
    "announced",
    "seconds_left",
    "socket_of",
]

RECEIVE_BYTES = 65_536


class Cluster(SlotMap):
    """The slot map, and one connection of its own to each node in use.

    Not thread-safe: each thread or task makes its own.
    """

    def __init__(self, settings: RedisSettings, meter: Meter = NO_METER) -> None:
        super().__init__(settings, meter)
        self._connections: dict[Node, Wire] = {}
        self._opened: Counter[Node] = Counter()
        self._reader = new_reader()
        self._connector = Connector(settings)
        # Closes the sockets of a cluster that nobody closed, even one in a reference cycle: the garbage
        # collector finalizes the objects of a cycle in no order that would close them in time.
        weakref.finalize(self, _disconnect_all, self._connections).atexit = False

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
        """See `SlotMap.is_connected`."""
        return node in self._connections

    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> None:  # noqa: ARG002
        """See `SlotMap.send`; the number of replies is for those who share a connection."""
        sock = self._connection(node, deadline)._sock  # noqa: SLF001 (see the module's docstring)
        try:
            sock.settimeout(seconds_left(deadline))
            sock.sendall(packed)
        except BaseException as error:
            self._failed(node, error)
            raise

    def receive(self, node: Node, reply_count: int, deadline: Deadline) -> list[Any]:
        """See `SlotMap.receive`."""
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

    def abandon(self, node: Node) -> None:
        """See `SlotMap.abandon`: the connection is closed."""
        self.drop(node)

    def keep_only(self, nodes: Collection[Node]) -> None:
        """See `SlotMap.keep_only`."""
        for node in self._connections.keys() - set(nodes):
            self.drop(node)

    def close(self) -> None:
        """See `SlotMap.close`."""
        _disconnect_all(self._connections)


def _disconnect_all(connections: dict[Node, Wire]) -> None:
    while connections:
        connections.popitem()[1].disconnect()


def socket_of(connection: Wire) -> socket.socket:
    """Return the connection's socket, for those who read and write by an event loop.

    The connection must be kept: it closes its socket when it is deleted.
    """
    return connection._sock  # noqa: SLF001 (see the module's docstring)
