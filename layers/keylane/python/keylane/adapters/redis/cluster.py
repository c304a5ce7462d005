"""A thin client of Redis Cluster: who serves a slot, one connection to each node, nothing else.

It stands on redis-py's bare connection (TLS and AUTH are in it) and the hiredis parser, because a read is one
`MGET` and redis-py's own clients take longer around it than the server does: 97 us against 62 us.
There is no retry here, no pool, no background thread: the callers know what may be repeated.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.connection import Connection, SSLConnection
from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    NoPermissionError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.adapters.redis.resp import (
    NOT_YET,
    encode_command,
    new_reader,
    seconds_left,
    translate_redis_errors,
)
from keylane.errors import StateUnavailable, TooLarge
from keylane.metrics.meter import NO_METER, Meter
from keylane.ports import Deadline

if TYPE_CHECKING:
    from keylane.adapters.redis.resp import Wire

SLOTS = 16384
RECEIVE_BYTES = 65_536
REPLIES_LIMIT_BYTES = 32 * 1024 * 1024
"""More is never held of one node's replies: no Lambda could answer with it."""


class Node(NamedTuple):
    """Where a server of the cluster listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """How to reach the cluster. `nodes` are those to begin with: any that answers tells of the others."""

    nodes: tuple[Node, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: str | None = None
    connect_timeout_s: float = 1.0


class Cluster:
    """The cluster's map and one connection to each node in use.

    Not to be shared between threads: each thread or task makes its own. No call blocks past its deadline
    (resolving a host's name aside, which Python can't bound). Errors of the client library come out as they
    are: callers put `translate_redis_errors()` around their whole use of it.
    """

    def __init__(self, settings: RedisSettings, meter: Meter = NO_METER) -> None:
        self.meter = meter
        self._settings = settings
        self._slots: list[tuple[Node, ...]] = [()] * SLOTS
        self._nodes: tuple[Node, ...] = ()
        self._connections: dict[Node, Wire] = {}
        self._reader = new_reader()
        self._turn = 0
        # Who forgets to close, in a reference cycle too, leaves no socket open: this runs before the garbage
        # collector ends the objects of a cycle, which it does in no order that closes a socket in time.
        weakref.finalize(self, _disconnect_all, self._connections).atexit = False

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that the last refresh told of; empty before the first."""
        return self._nodes

    def primary(self, slot: int) -> Node:
        """The node that takes the slot's writes. Raises StateUnavailable when none is known to."""
        nodes = self._slots[slot]
        if not nodes:
            raise StateUnavailable(f"no Redis node is known to serve slot {slot}")
        return nodes[0]

    def copies(self, slot: int) -> tuple[Node, ...]:
        """All nodes that hold the slot, its primary first; empty when the map doesn't say."""
        return self._slots[slot]

    def replicas(self, slot: int) -> tuple[Node, ...]:
        """The other nodes that hold the slot; empty when there are none or the map isn't known."""
        return self._slots[slot][1:]

    def learn(self, slot: int, primary: Node) -> None:
        """Take note of a MOVED: until the next refresh this node is the slot's primary."""
        others = tuple(node for node in self._slots[slot] if node != primary)
        self._slots[slot] = (primary, *others)

    def refresh(self, deadline: Deadline, ask_first: Node | None = None) -> None:
        """Read the cluster's map anew from the first node that answers; each gets a part of the time.

        Raises StateUnavailable when no node answers, and leaves the old map as it is.
        """
        self.meter.count("MapRefreshes")
        nodes = list(dict.fromkeys((*self._nodes, *self._settings.nodes)))
        # Another one first each time: a node that was cut off tells an old map for as long as it is asked.
        self._turn = (self._turn + 1) % len(nodes)
        nodes = nodes[self._turn :] + nodes[: self._turn]
        candidates = nodes if ask_first is None else [ask_first, *(n for n in nodes if n != ask_first)]
        cause: Exception | None = None
        for left, node in zip(range(len(candidates), 0, -1), candidates, strict=True):
            part_ms = min(deadline.remaining_s / left, self._settings.connect_timeout_s) * 1000
            try:
                (reply,) = self.roundtrip(
                    node, encode_command(b"CLUSTER", b"SLOTS"), 1, Deadline.after_ms(part_ms, deadline.clock)
                )
            except (RedisError, OSError) as error:
                cause = error
                continue
            if isinstance(reply, list) and reply:
                self._take_map(reply, node)
                return
            cause = reply if isinstance(reply, Exception) else None
        if isinstance(cause, (AuthenticationError, NoPermissionError)):
            with translate_redis_errors():
                raise cause
        raise StateUnavailable("no node of the Redis Cluster tells its map") from cause

    def _take_map(self, reply: list[Any], asked: Node) -> None:
        slots: list[tuple[Node, ...]] = [()] * SLOTS
        for start, end, *members in reply:
            nodes = tuple(announced(member[0], member[1], asked) for member in members)
            slots[start : end + 1] = [nodes] * (end + 1 - start)
        self._slots = slots
        self._nodes = tuple(dict.fromkeys(node for nodes in dict.fromkeys(slots) for node in nodes))
        for node in self._connections.keys() - set(self._nodes):
            self.drop(node)

    def connection(self, node: Node, deadline: Deadline) -> Wire:
        """The connection to `node`, made (with AUTH) when there is none. It stays the cluster's own.

        Whoever leaves a reply unread on it must `drop` the node: a late reply would be taken for the next.
        """
        connection = self._connections.get(node)
        if connection is None:
            left_s = seconds_left(deadline)
            connection = self._make(node, min(left_s, self._settings.connect_timeout_s), left_s)
            connection.connect()
            self._connections[node] = connection
        return connection

    def _make(self, node: Node, connect_timeout_s: float, timeout_s: float) -> Wire:
        # RESP2 without client info: no HELLO, no CLIENT SETINFO, so a plain connection costs no round trip.
        arguments: dict[str, Any] = {
            "host": node.host,
            "port": node.port,
            "username": self._settings.username,
            "password": self._settings.password,
            "protocol": 2,
            "driver_info": None,
            "socket_connect_timeout": connect_timeout_s,
            "socket_timeout": timeout_s,
        }
        if self._settings.tls:
            arguments["ssl_ca_certs"] = self._settings.tls_ca_file
        make: Any = SSLConnection if self._settings.tls else Connection
        wire: Wire = make(**arguments)
        return wire

    def is_connected(self, node: Node) -> bool:
        """Whether a connection is kept: it may be one that the server has closed meanwhile."""
        return node in self._connections

    def roundtrip(self, node: Node, packed: bytes, reply_count: int, deadline: Deadline) -> list[Any]:
        """Send commands and read all their replies; a server's error reply comes as a value in the list.

        Whatever goes wrong on the way, the connection is closed and forgotten before the error goes on.
        """
        self.send(node, packed, deadline)
        return self.receive(node, reply_count, deadline)

    def send(self, node: Node, packed: bytes, deadline: Deadline) -> None:
        """Send commands whose replies `receive` reads: nothing else may use the node before it has.

        Errors close and forget the connection, as `roundtrip`'s.
        """
        sock = self.connection(node, deadline)._sock  # noqa: SLF001 (redis-py bounds each recv, not all of them)
        try:
            sock.settimeout(seconds_left(deadline))
            sock.sendall(packed)
        except BaseException as error:
            self._failed(node, error)
            raise

    def receive(self, node: Node, reply_count: int, deadline: Deadline) -> list[Any]:
        """Read the replies to what was sent, as `roundtrip` gives them.

        Raises TooLarge for more than REPLIES_LIMIT_BYTES.
        """
        sock = self._connections[node]._sock  # noqa: SLF001 (as above)
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
                while len(replies) < reply_count and (reply := self._reader.gets()) is not NOT_YET:
                    replies.append(reply)
                if len(replies) == reply_count:
                    break
            if self._reader.has_data():
                raise InvalidResponse("more came than was asked for")  # noqa: TRY301
        except BaseException as error:
            self._failed(node, error)
            raise
        return replies

    def _failed(self, node: Node, error: BaseException) -> None:
        """Forget the connection; a socket's own error is raised as the client library's."""
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
        """Close all connections. The cluster can be used again after it: it connects anew."""
        _disconnect_all(self._connections)


def _disconnect_all(connections: dict[Node, Wire]) -> None:
    while connections:
        connections.popitem()[1].disconnect()


def announced(host: bytes | str | None, port: int, asked: Node) -> Node:
    """The node that a reply names; where it names no host ("", "?" or null) it means the one asked."""
    name = host.decode() if isinstance(host, bytes) else host
    return Node(name if name and name != "?" else asked.host, int(port))
