"""The client of a Redis Cluster for all requests of the process: one connection to each node.

It is `SlotMap` with shared connections, so that slots, redirects and errors are as in a function. Connections
are made in a thread, because redis-py makes them (TLS, AUTH, rotated passwords), which is rare.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.adapters.redis.connections import Connector, seconds_left
from keylane.adapters.redis.slot_map import SlotMap
from keylane.errors import StateUnavailable
from keylane.metrics.meter import NO_METER, Meter
from keylane.ports import Clock, Deadline
from keylane_serve.greenlets import SharedCall, call_in_thread, current_request
from keylane_serve.redis.shared_connection import SharedConnection

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import Executor

    from keylane.adapters.redis.connections import Node, RedisSettings, Wire
    from keylane_serve.redis.shared_connection import Exchange

_CLOSED = "the connection was closed"


class SharedCluster(SlotMap):
    """The slot map and one connection to each node, for all requests. `executor`: for connecting."""

    def __init__(self, settings: RedisSettings, executor: Executor, meter: Meter = NO_METER) -> None:
        super().__init__(settings, meter)
        self._executor = executor
        self._connector = Connector(settings)
        self._connections: dict[Node, SharedConnection] = {}
        self._connecting: dict[Node, SharedCall[SharedConnection]] = {}
        self._refresh = SharedCall[None]()
        self._connect_timeout_ms = settings.connect_timeout_s * 1000

    def is_connected(self, node: Node) -> bool:
        """See `SlotMap.is_connected`."""
        return node in self._connections

    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> None:
        """See `SlotMap.send`. It leaves with what other requests send in this tick."""
        current_request().exchanges[node] = self._begin(node, packed, deadline, reply_count)

    def receive(self, node: Node, reply_count: int, deadline: Deadline) -> list[Any]:  # noqa: ARG002 (sent)
        """See `SlotMap.receive`. A request whose deadline passes leaves its replies to nobody."""
        exchange: Exchange = current_request().exchanges.pop(node)
        exchange.expires_s = deadline.at_s
        return self._end(node, exchange, deadline)

    def _begin(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int) -> Exchange:
        connection = self._connections.get(node) or self._connect(node, deadline)
        seconds_left(deadline)
        return connection.send(packed, reply_count, deadline.at_s)

    def _end(self, node: Node, exchange: Exchange, deadline: Deadline) -> list[Any]:
        replies = exchange.wait()
        if isinstance(replies[0], AuthenticationError):  # NOAUTH: this connection was made without a password
            self._retire(node)
            call_in_thread(self._executor, self._connector.renew, deadline)
        return replies

    def roundtrip(self, node: Node, packed: bytes, reply_count: int, deadline: Deadline) -> list[Any]:
        """See `SlotMap.roundtrip`."""
        return self._end(node, self._begin(node, packed, deadline, reply_count), deadline)

    def abandon(self, node: Node) -> None:
        """See `SlotMap.abandon`: the connection stays, and drops the replies."""
        current_request().exchanges.pop(node, None)

    def keep_only(self, nodes: Collection[Node]) -> None:
        """See `SlotMap.keep_only`. Who waits for replies of another node still gets them."""
        for node in self._connections.keys() - set(nodes):
            self._retire(node)

    def refresh(self, deadline: Deadline, ask_first: Node | None = None) -> None:
        """See `SlotMap.refresh`. Requests that need a new slot map at the same time share one."""
        try:
            refresh = super().refresh
            self._refresh.join(lambda: refresh(deadline, ask_first), _left(deadline))
        except TimeoutError as error:
            raise StateUnavailable("no node of the Redis Cluster returned the slot map") from error

    def close(self) -> None:
        """See `SlotMap.close`."""
        for connection in list(self._connections.values()):
            connection.close(RedisConnectionError(_CLOSED))

    def _retire(self, node: Node) -> None:
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.retire()

    def _connect(self, node: Node, deadline: Deadline) -> SharedConnection:
        """Return the connection to the node; requests that want it at the same time share the attempt."""
        attempt = self._connecting.setdefault(node, SharedCall())
        try:
            return attempt.join(lambda: self._open(node), seconds_left(deadline))
        except TimeoutError as error:
            raise RedisTimeoutError("the deadline has passed") from error

    def _open(self, node: Node) -> SharedConnection:
        # Its own deadline: the request that happens to begin it may have little time left.
        deadline = Deadline.after_ms(self._connect_timeout_ms, Clock())
        wire: Wire = call_in_thread(self._executor, self._connector.connect, node, deadline)
        opened = SharedConnection(asyncio.get_running_loop(), wire, self._forget)
        self._connections[node] = opened
        return opened

    def _forget(self, connection: SharedConnection) -> None:
        for node, each in list(self._connections.items()):
            if each is connection:
                del self._connections[node]


def _left(deadline: Deadline) -> float:
    return max(deadline.remaining_s, 0.001)
