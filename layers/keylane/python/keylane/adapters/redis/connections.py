"""How a cluster connects to its nodes.

Connections that are open stay open when a password is rotated: Redis asks for credentials once.

They are our own, and not redis-py's: what it loads for all its commands and its asynchronous clients takes
most of a cold start's time, and a connection is a socket with TLS and AUTH. hiredis writes and parses RESP.
"""

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from keylane.adapters.deadline_sockets import open_socket
from keylane.adapters.redis.error_replies import (
    AuthenticationError,
    RedisConnectionError,
    RedisTimeoutError,
)
from keylane.adapters.redis.resp import INCOMPLETE, encode_command, new_reader
from keylane.adapters.rotated_login import LoginSettings, RotatedLogin
from keylane.ports import Deadline

RECEIVE_BYTES = 65_536
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
    """An open connection: its socket, and what reads one reply, or closes it."""

    __slots__ = ("_reader", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._reader: Any = None

    def read_response(self) -> Any:
        """Read the next reply; those that have arrived behind it are kept. An error reply is returned.

        Raises OSError, RedisConnectionError, InvalidResponse.
        """
        reader = self._reader = self._reader or new_reader()
        while (reply := reader.gets()) is INCOMPLETE:
            data = self.sock.recv(RECEIVE_BYTES)
            if not data:
                raise RedisConnectionError("the server closed the connection")
            reader.feed(data)
        return reply

    def disconnect(self) -> None:
        """Close the socket. A copy of it in a process that was forked stays open."""
        self.sock.close()

    def __del__(self) -> None:
        """Close the socket of a cluster that nobody closed, without a warning."""
        self.sock.close()


class Connector(RotatedLogin[RedisSettings]):
    """Opens connections of one cluster, with the credentials that its nodes accept."""

    def __init__(self, settings: RedisSettings) -> None:
        super().__init__("Redis", settings)

    def connect(self, node: Node, deadline: Deadline) -> Wire:
        """Return a new connection, with AUTH. Raises RedisError."""
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
    connect_ms = min(seconds_left(deadline), settings.connect_timeout_s) * 1000
    try:
        # A name may have addresses of nodes that are gone: each has its share of the time.
        sock = open_socket(node.host, node.port, Deadline.after_ms(connect_ms, deadline.clock))
    except TimeoutError as error:
        raise RedisTimeoutError("the server did not accept a connection in time") from error
    except OSError as error:
        raise RedisConnectionError(f"no connection to {node.host}:{node.port}: {error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.settimeout(seconds_left(deadline))
        if settings.tls:
            sock = _with_tls(sock, node.host, settings.tls_ca_file)
        wire = Wire(sock)
        if settings.username or settings.password:
            _log_in(wire, settings)
    except BaseException as error:
        sock.close()
        if isinstance(error, TimeoutError):
            raise RedisTimeoutError("the server did not answer in time") from error
        if isinstance(error, OSError):
            raise RedisConnectionError(f"no connection to {node.host}:{node.port}: {error}") from error
        raise
    return wire


def _with_tls(sock: socket.socket, host: str, ca_file: str | None) -> socket.socket:
    """Return the socket with TLS. The host's certificate is checked, by the file's authorities too."""
    import ssl  # noqa: PLC0415 (without TLS nobody needs it)

    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context.wrap_socket(sock, server_hostname=host)


def _log_in(wire: Wire, settings: RedisSettings) -> None:
    """Log in with AUTH: without HELLO, a connection without credentials costs no round trip."""
    words = [b"AUTH", *(each.encode() for each in settings.credentials if each)]
    wire.sock.sendall(encode_command(*words))
    reply = wire.read_response()
    if isinstance(reply, Exception):
        raise reply


def seconds_left(deadline: Deadline) -> float:
    """A socket's timeout. Raises RedisTimeoutError at 0, which would make the socket non-blocking."""
    left_s = deadline.at_s - deadline.clock.monotonic_s()
    if left_s <= 0:
        raise RedisTimeoutError("the deadline has passed")
    return left_s
