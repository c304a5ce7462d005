"""Clients of Redis Cluster, which hold the conversations: what they have in common, and the blocking one.

`Cluster` has one connection to each node, and the hiredis parser: a read is one `MGET`, and redis-py's
cluster client takes longer around it than the server does, 97 us against 62 us. There are no retries, pools
or background threads here: conversations and other callers know what may be repeated.
"""

import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from keylane.adapters.redis.connections import (
    RECEIVE_BYTES,
    Connector,
    Node,
    RedisSettings,
    Wire,
    seconds_left,
)
from keylane.adapters.redis.conversation import Ask, Begin, Conversation, End, Refresh
from keylane.adapters.redis.error_replies import (
    AuthenticationError,
    InvalidResponse,
    RedisConnectionError,
    RedisError,
    RedisTimeoutError,
)
from keylane.adapters.redis.errors import unavailable
from keylane.adapters.redis.resp import INCOMPLETE, new_reader
from keylane.adapters.redis.slot_map import SlotMap, announced
from keylane.errors import StateUnavailable, TooLarge
from keylane.metrics.meter import NO_METER, Meter
from keylane.ports import Deadline

__all__ = ["Cluster", "ClusterClient", "Node", "RedisSettings", "announced"]

T = TypeVar("T")
REPLIES_LIMIT_BYTES = 32 * 1024 * 1024
"""The most bytes of one node's replies in memory: no Lambda could return more."""


class ClusterClient(SlotMap, ABC):
    """The slot map, and commands to the nodes in it; a subclass has the connections.

    No call blocks past its deadline, except to resolve a host name, which Python can't bound. `hold` and
    `refresh` raise StateUnavailable. The others raise the errors of `error_replies`: callers wrap them in
    `translate_redis_errors()`.
    """

    def hold(self, conversation: Conversation[T]) -> T:
        """Hold a conversation and return its result. Raises StateUnavailable, TooLarge."""
        begun: dict[Node, Any] = {}
        outcome: Any = None
        try:
            while True:
                step = conversation.send(outcome)
                outcome = None
                try:
                    if isinstance(step, Begin):
                        begun[step.node] = self.send(step.node, step.packed, step.deadline, step.reply_count)
                    elif isinstance(step, Ask):
                        outcome = self.roundtrip(*step)
                    elif isinstance(step, End):
                        outcome = self.receive(begun.pop(step.node), step.reply_count, step.deadline)
                    elif isinstance(step, Refresh):
                        self.refresh(*step)
                    else:
                        step.clock.pause_s(step.seconds)
                except (RedisError, OSError, StateUnavailable) as error:
                    outcome = error.with_traceback(None)  # which leads here: a cycle, with all replies
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except (RedisError, OSError) as error:
            raise unavailable(error) from error
        finally:
            for sent in begun.values():
                self.abandon(sent)

    def refresh(self, deadline: Deadline, ask_first: Node | None = None) -> None:
        """See `SlotMap.read_again`; connections to nodes that are gone are closed."""
        self.hold(self.read_again(deadline, ask_first))
        for node in self.connections.keys() - set(self.nodes):
            self.drop(node)

    def roundtrip(self, node: Node, packed: bytes, reply_count: int, deadline: Deadline) -> list[Any]:
        """Send commands and read all their replies; an error reply is returned as a value in the list.

        Any other error closes and forgets the connection before it is raised. Raises TooLarge for more than
        REPLIES_LIMIT_BYTES.
        """
        return self.receive(self.send(node, packed, deadline, reply_count), reply_count, deadline)

    def execute(self, node: Node, commands: Sequence[bytes], deadline: Deadline) -> list[Any]:
        """The replies to encoded commands; raises the first error reply."""
        replies = self.roundtrip(node, b"".join(commands), len(commands), deadline)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    @abstractmethod
    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> Any:
        """Send commands; return what `receive` takes. The replies must all be read, or abandoned.

        Errors as `roundtrip`.
        """

    @abstractmethod
    def receive(self, sent: Any, reply_count: int, deadline: Deadline) -> list[Any]:
        """Read all replies to what was sent. Errors as `roundtrip`."""

    def abandon(self, sent: Any) -> None:
        """Give up replies that were not read, where they could be taken for later ones."""

    @abstractmethod
    def drop(self, node: Node) -> None:
        """Close and forget the connection to the node, if there is one."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. The client may be used again: it then reconnects."""


class Cluster(ClusterClient):
    """Has a connection of its own to each node in use. Not thread-safe: each thread or task makes its own."""

    connections: dict[Node, Wire]

    def __init__(self, settings: RedisSettings, meter: Meter = NO_METER) -> None:
        super().__init__(settings, meter)
        self._opened: Counter[Node] = Counter()
        self._reader = new_reader()
        self._connector = Connector(settings)
        # Closes the sockets of a cluster that nobody closed, even one in a reference cycle: the garbage
        # collector finalizes the objects of a cycle in no order that would close them in time.
        weakref.finalize(self, _disconnect_all, self.connections).atexit = False

    def _connect(self, node: Node, deadline: Deadline) -> Wire:
        connection = self.connections[node] = self._connector.connect(node, deadline)
        self._opened[node] += 1
        return connection

    def connection_number(self, node: Node) -> int:
        """Which connection to the node this is, 0 for none: what a server keeps of one ends with it."""
        return self._opened[node] if node in self.connections else 0

    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> Node:  # noqa: ARG002
        """See `ClusterClient.send`."""
        sock = (self.connections.get(node) or self._connect(node, deadline)).sock
        try:
            sock.settimeout(seconds_left(deadline))
            sock.sendall(packed)
        except BaseException as error:
            self._failed(node, error)
            raise
        return node

    def receive(self, sent: Node, reply_count: int, deadline: Deadline) -> list[Any]:
        """See `ClusterClient.receive`."""
        node = sent
        sock = self.connections[node].sock
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

        The connection's own parser keeps the received part of the replies behind it.
        """
        connection = self.connections[node]
        try:
            connection.sock.settimeout(seconds_left(deadline))
            return connection.read_response()
        except BaseException as error:
            self._failed(node, error)
            raise

    def _failed(self, node: Node, error: BaseException) -> None:
        """Forget the connection; raise an error of the socket as a RedisError."""
        self._reader = new_reader()
        self.drop(node)
        if isinstance(error, TimeoutError):
            raise RedisTimeoutError("the server did not answer in time") from error
        if isinstance(error, OSError):
            raise RedisConnectionError("the connection broke") from error

    def abandon(self, sent: Node) -> None:
        """See `ClusterClient.abandon`: the connection is closed."""
        self.drop(sent)

    def drop(self, node: Node) -> None:
        """See `ClusterClient.drop`."""
        connection = self.connections.pop(node, None)
        if connection is not None:
            connection.disconnect()

    def close(self) -> None:
        """See `ClusterClient.close`."""
        _disconnect_all(self.connections)


def _disconnect_all(connections: dict[Node, Wire]) -> None:
    while connections:
        connections.popitem()[1].disconnect()
