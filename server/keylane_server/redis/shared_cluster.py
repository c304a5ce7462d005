"""The client of a Redis Cluster for all requests of the process: one connection to each node.

It holds the conversations that a function holds, so slots, redirects and errors are the same. Connections are
made in a thread, because making one blocks (TLS, AUTH, rotated passwords), and is rare.
"""

import asyncio
from concurrent.futures import Executor
from typing import Any

from keylane.adapters.redis.cluster import ClusterClient
from keylane.adapters.redis.connections import Connector, Node, RedisSettings, Wire, seconds_left
from keylane.adapters.redis.error_replies import AuthenticationError, RedisConnectionError, RedisTimeoutError
from keylane.errors import StateUnavailable
from keylane.metrics.meter import NO_METER, Meter
from keylane.ports import Clock, Deadline
from keylane_server.greenlets import SharedCall, call_in_thread
from keylane_server.redis.shared_connection import Exchange, SharedConnection


class SharedCluster(ClusterClient):
    """The slot map and one connection to each node, for all requests. `executor`: for connecting."""

    connections: dict[Node, SharedConnection]

    def __init__(self, settings: RedisSettings, executor: Executor, meter: Meter = NO_METER) -> None:
        super().__init__(settings, meter)
        self._executor = executor
        self._connector = Connector(settings)
        self._connecting: dict[Node, SharedCall[SharedConnection]] = {}
        self._refreshing = SharedCall[None]()
        self._connect_timeout_ms = settings.connect_timeout_s * 1000

    def send(
        self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1
    ) -> tuple[Node, Exchange]:
        """See `ClusterClient.send`. It leaves with what other requests send in this tick."""
        connection = self.connections.get(node) or self._connect(node, deadline)
        seconds_left(deadline)
        return node, connection.send(packed, reply_count, deadline.at_s)

    def receive(self, sent: tuple[Node, Exchange], reply_count: int, deadline: Deadline) -> list[Any]:  # noqa: ARG002
        """See `ClusterClient.receive`. A request whose deadline passes leaves its replies to nobody."""
        node, exchange = sent
        exchange.expires_s = deadline.at_s
        replies = exchange.wait()
        if isinstance(replies[0], AuthenticationError):  # NOAUTH: this connection was made without a password
            self.drop(node)
            call_in_thread(self._executor, self._connector.renew, deadline)
        return replies

    def drop(self, node: Node) -> None:
        """See `ClusterClient.drop`. Who waits for replies of the node still gets them."""
        connection = self.connections.pop(node, None)
        if connection is not None:
            connection.retire()

    def refresh(self, deadline: Deadline, ask_first: Node | None = None) -> None:
        """See `ClusterClient.refresh`. Requests that need a new slot map at the same time share one."""
        try:
            refresh = super().refresh
            self._refreshing.join(lambda: refresh(deadline, ask_first), max(deadline.remaining_s, 0.001))
        except TimeoutError as error:
            raise StateUnavailable("no node of the Redis Cluster returned the slot map") from error

    def close(self) -> None:
        """See `ClusterClient.close`."""
        for connection in list(self.connections.values()):
            connection.close(RedisConnectionError("the connection was closed"))

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
        self.connections[node] = opened
        return opened

    def _forget(self, connection: SharedConnection) -> None:
        for node, each in list(self.connections.items()):
            if each is connection:
                del self.connections[node]
