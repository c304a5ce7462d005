"""The client of a Redis Cluster for all requests of the process: two connections to each node.

One is for small reads, the other for those of many records (replies). It holds the conversations that a
function holds, so slots, redirects and errors are the same. Connections are made in a thread, because making
one blocks (TLS, AUTH, rotated passwords), and is rare.
"""

import asyncio
from concurrent.futures import Executor
from typing import Any, NamedTuple

from keylane.adapters.redis.cluster import ClusterClient
from keylane.adapters.redis.connections import Connector, Node, RedisSettings, Wire, seconds_left
from keylane.adapters.redis.error_replies import AuthenticationError, RedisConnectionError, RedisTimeoutError
from keylane.errors import StateUnavailable
from keylane.metrics.meter import NO_METER, Meter
from keylane.ports import Clock, Deadline
from keylane_server.greenlets import bounds_of_request, call_in_thread
from keylane_server.redis.shared_connection import Exchange, SharedConnection
from keylane_server.replies import RequestReplies
from keylane_server.shared_calls import SharedCall


class Sent(NamedTuple):
    """What was sent to a node. `bulk`: of a read of many records."""

    node: Node
    exchange: Exchange
    bulk: RequestReplies | None


class SharedCluster(ClusterClient):
    """The slot map and one connection to each node, for all requests. `executor`: for connecting."""

    connections: dict[Node, SharedConnection]

    def __init__(self, settings: RedisSettings, executor: Executor, meter: Meter = NO_METER) -> None:
        super().__init__(settings, meter)
        self._executor = executor
        self._connector = Connector(settings)
        self._of_many: dict[Node, SharedConnection] = {}
        self._connecting: dict[tuple[Node, bool], SharedCall[SharedConnection]] = {}
        self._refreshing = SharedCall[None]()
        self._connect_timeout_ms = settings.connect_timeout_s * 1000

    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> Sent:
        """See `ClusterClient.send`. It leaves with what other requests send in this tick."""
        connection = self.connections.get(node) or self._connect(node, deadline)
        bulk: RequestReplies | None = bounds_of_request().replies
        if bulk is None:
            seconds_left(deadline)
            return Sent(node, connection.send(packed, reply_count, deadline.at_s), None)
        # The time of an attempt at a node does not pass before it is asked.
        deadline = Deadline(deadline.at_s + bulk.begin(), deadline.clock)
        try:
            connection = self._of_many.get(node) or self._connect(node, deadline, of_many=True)
            seconds_left(deadline)
            return Sent(node, connection.send(packed, reply_count, deadline.at_s), bulk)
        except BaseException:
            bulk.end()
            raise

    def receive(self, sent: Sent, reply_count: int, deadline: Deadline) -> list[Any]:  # noqa: ARG002
        """See `ClusterClient.receive`. A request whose deadline passes leaves its replies to nobody."""
        node, exchange, bulk = sent
        exchange.expires_s = deadline.at_s
        try:
            replies = exchange.wait()
        except BaseException:
            self.abandon(sent)
            raise
        if bulk is not None:
            bulk.end(_size_of(replies))
        if isinstance(replies[0], AuthenticationError):  # NOAUTH: this connection was made without a password
            self.drop(node)
            call_in_thread(self._executor, self._connector.renew, deadline)
        return replies

    def abandon(self, sent: Sent) -> None:
        """See `ClusterClient.abandon`: the replies are dropped as they come.

        Others read meanwhile: a node that hangs would keep them from all other nodes.
        """
        sent.exchange.end(RedisTimeoutError("nobody waits for the replies"))
        if sent.bulk is not None:
            sent.bulk.end()

    def drop(self, node: Node) -> None:
        """See `ClusterClient.drop`. Who waits for replies of the node still gets them."""
        for connection in (self.connections.pop(node, None), self._of_many.pop(node, None)):
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
        for connection in (*self.connections.values(), *self._of_many.values()):
            connection.close(RedisConnectionError("the connection was closed"))

    def _connect(self, node: Node, deadline: Deadline, *, of_many: bool = False) -> SharedConnection:
        """Return a connection to the node; requests that want it at the same time share the attempt."""
        attempt = self._connecting.setdefault((node, of_many), SharedCall())
        try:
            return attempt.join(lambda: self._open(node, of_many=of_many), seconds_left(deadline))
        except TimeoutError as error:
            raise RedisTimeoutError("the deadline has passed") from error

    def _open(self, node: Node, *, of_many: bool) -> SharedConnection:
        # Its own deadline: the request that happens to begin it may have little time left.
        deadline = Deadline.after_ms(self._connect_timeout_ms, Clock())
        wire: Wire = call_in_thread(self._executor, self._connector.connect, node, deadline)
        opened = SharedConnection(asyncio.get_running_loop(), wire, self._forget)
        (self._of_many if of_many else self.connections)[node] = opened
        return opened

    def _forget(self, connection: SharedConnection) -> None:
        for opened in (self.connections, self._of_many):
            for node, each in list(opened.items()):
                if each is connection:
                    del opened[node]


def _size_of(replies: list[Any]) -> int:
    """Return about how many bytes replies take."""
    size_bytes, below = 0, [replies]
    while below:
        for each in below.pop():
            if isinstance(each, list):
                below.append(each)
            else:
                size_bytes += 64 + (len(each) if isinstance(each, bytes) else 0)
    return size_bytes
