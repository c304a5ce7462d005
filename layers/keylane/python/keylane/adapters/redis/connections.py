"""How a cluster connects to its nodes.

Connections that are open stay open when a password is rotated: Redis asks for credentials once.
"""

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from redis.connection import Connection, SSLConnection
from redis.exceptions import AuthenticationError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.adapters.rotated_login import LoginSettings, RotatedLogin
from keylane.ports import Deadline

_log = logging.getLogger("keylane")


class Node(NamedTuple):
    """The address of a server of the cluster."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RedisSettings(LoginSettings):
    """How to reach the cluster. `nodes` are the seeds: the first that answers returns the slot map.

    `renewed` reads the settings again; it is called where a node rejects the credentials.
    """

    nodes: tuple[Node, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: str | None = None
    connect_timeout_s: float = 1.0
    renewed: Callable[[], Self] | None = field(default=None, repr=False, compare=False)


class Wire:
    """An open connection of redis-py: its socket, and what reads one reply (or raises it) and closes it.

    This is the only place that touches `Connection._sock`, which is private. There is no public way to bound
    a complete exchange: `socket_timeout` bounds each `recv`, and is fixed when the connection is made. If a
    release renames the attribute, every connection raises AttributeError and tests/integration/redis fails.
    """

    __slots__ = ("disconnect", "read_response", "sock")

    def __init__(self, connection: Any) -> None:
        self.sock: socket.socket = connection._sock  # noqa: SLF001
        self.read_response: Callable[[], Any] = connection.read_response
        self.disconnect: Callable[[], None] = connection.disconnect


class Connector(RotatedLogin[RedisSettings]):
    """Opens connections of one cluster, with the credentials that its nodes accept."""

    def __init__(self, settings: RedisSettings) -> None:
        super().__init__("Redis", settings)

    def connect(self, node: Node, deadline: Deadline) -> Wire:
        """Return a new connection, with AUTH. Raises redis-py's errors."""
        attempts = self.attempts(deadline)
        try:
            return _open(node, next(attempts), deadline)
        except AuthenticationError:
            for settings in attempts:
                try:
                    return _open(node, settings, deadline)
                except AuthenticationError as error:
                    _log.warning("Redis rejects other credentials too: %s", error)
            raise


def _open(node: Node, settings: RedisSettings, deadline: Deadline) -> Wire:
    left_s = seconds_left(deadline)
    # RESP2 without client info: without HELLO and CLIENT SETINFO a plain connection costs no round trip.
    arguments: dict[str, Any] = {
        "host": node.host,
        "port": node.port,
        "username": settings.username,
        "password": settings.password,
        "protocol": 2,
        "driver_info": None,
        "socket_connect_timeout": min(left_s, settings.connect_timeout_s),
        "socket_timeout": left_s,
    }
    if settings.tls:
        arguments["ssl_ca_certs"] = settings.tls_ca_file
    make: Any = SSLConnection if settings.tls else Connection
    connection = make(**arguments)
    connection.connect()
    return Wire(connection)


def seconds_left(deadline: Deadline) -> float:
    """A socket's timeout. Raises redis-py's TimeoutError at 0, which would make the socket non-blocking."""
    left_s = deadline.at_s - deadline.clock.monotonic_s()
    if left_s <= 0:
        raise RedisTimeoutError("the deadline has passed")
    return left_s
