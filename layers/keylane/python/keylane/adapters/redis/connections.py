"""How a cluster connects to its nodes, and what it does where a node rejects its credentials.

1. The settings are read again, with the secret store's present values: a password may have been rotated.
2. The node gets those, or the former ones: not all nodes of a cluster change their users at once.

Connections that are open stay open: Redis asks for credentials once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from redis.connection import Connection, SSLConnection
from redis.exceptions import AuthenticationError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.errors import KeylaneError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from keylane.ports import Deadline

RENEWAL_PAUSE_S = 2.0
"""How long a cluster waits before it fetches its credentials again; their store may answer from a cache."""

_log = logging.getLogger("keylane")


class Node(NamedTuple):
    """The address of a server of the cluster."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """How to reach the cluster. `nodes` are the seeds: the first that answers returns the slot map.

    `renewed` reads the settings again; it is called where a node rejects the credentials.
    """

    nodes: tuple[Node, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: str | None = None
    connect_timeout_s: float = 1.0
    renewed: Callable[[], RedisSettings] | None = field(default=None, repr=False, compare=False)

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        """User name and password."""
        return self.username, self.password


class Wire(Protocol):
    """The part of redis-py's `Connection` that is used here; the class itself has no type hints."""

    _sock: socket.socket

    def connect(self) -> None:
        """Connect, with TLS and AUTH."""

    def disconnect(self) -> None:
        """Close the socket."""

    def read_response(self) -> Any:
        """Read one reply; an error reply is raised."""


class Connector:
    """Opens connections of one cluster, with the credentials that its nodes accept."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._former: RedisSettings | None = None
        self._renewable_at_s = 0.0

    def connect(self, node: Node, deadline: Deadline) -> Wire:
        """Return a new connection, with AUTH. Raises redis-py's errors."""
        rejected = self._settings
        try:
            return _open(node, rejected, deadline)
        except AuthenticationError:
            self.renew(deadline)
            for settings in (self._settings, self._former):
                if settings is None or settings.credentials == rejected.credentials:
                    continue
                try:
                    return _open(node, settings, deadline)
                except AuthenticationError as error:
                    _log.warning("Redis rejects other credentials too: %s", error)
            raise

    def renew(self, deadline: Deadline) -> None:
        """Read the credentials again, at most once every RENEWAL_PAUSE_S."""
        now_s = deadline.clock.monotonic_s()
        if self._settings.renewed is None or now_s < self._renewable_at_s:
            return
        self._renewable_at_s = now_s + RENEWAL_PAUSE_S
        try:
            found = self._settings.renewed()
        except KeylaneError as error:
            _log.warning("Redis rejects the credentials, and they can't be read again: %s", error)
            return
        if found.credentials != self._settings.credentials:
            self._former = self._settings
            self._settings = replace(self._settings, username=found.username, password=found.password)
            _log.warning("Redis rejected the credentials: those of the secret store are used now")


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
    connection: Wire = make(**arguments)
    connection.connect()
    return connection


def seconds_left(deadline: Deadline) -> float:
    """A socket's timeout. Raises redis-py's TimeoutError at 0, which would make the socket non-blocking."""
    left_s = deadline.remaining_s
    if left_s <= 0:
        raise RedisTimeoutError("the deadline has passed")
    return left_s
