"""Ports of this machine's addresses: whether they are free, who has them, and which to use."""

from __future__ import annotations

import ipaddress
import random
import socket

import psutil  # type: ignore[import-untyped]

from keylane_local.errors import PortInUse, StackError

HOST = "127.0.0.1"
# Below Linux's ephemeral range (32768..60999): no outgoing connection takes a port before its server listens.
_FREE_FROM, _FREE_TO = 20000, 32000
_ATTEMPTS = 500
MAX_PORT = 65535


def is_own_address(host: str) -> bool:
    """Return whether it is an IPv4 address that this machine has, and not that of all its networks."""
    try:
        if ipaddress.IPv4Address(host).is_unspecified:
            return False
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError):
        return False
    return True


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether no process listens on `port` of an address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def owner_of(port: int) -> str | None:
    """Return the process that listens on `port` ("redis-server, pid 12"), or None if it is not visible."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, PermissionError):
        return None
    for connection in connections:
        listens = connection.status == psutil.CONN_LISTEN
        if listens and connection.laddr and connection.laddr.port == port and connection.pid:
            try:
                return f"{psutil.Process(connection.pid).name()}, pid {connection.pid}"
            except psutil.NoSuchProcess:
                return None
    return None


class Ports:
    """Hands out free ports, each of them once: free on the loopback address, and on `host`."""

    def __init__(self, host: str = HOST) -> None:
        self._hosts = {HOST, host}
        self._given: set[int] = set()

    def exactly(self, port: int, part: str, option: str | None = None) -> int:
        """Return `port`; raise PortInUse, which names `part` and `option`, if it is taken."""
        if not 0 < port <= MAX_PORT:
            raise StackError(f"port {port}, requested for {part}, is not between 1 and {MAX_PORT}")
        if not self._is_free(port):
            raise PortInUse(port, part, owner_of(port), option)
        self._given.add(port)
        return port

    def rather(self, port: int) -> int:
        """Return `port` if it is free, else any free port."""
        if self._is_free(port):
            self._given.add(port)
            return port
        return self.any()

    def any(self) -> int:
        """Return a free port."""
        for _ in range(_ATTEMPTS):
            port = random.randrange(_FREE_FROM, _FREE_TO)  # noqa: S311 - no secret
            if self._is_free(port):
                self._given.add(port)
                return port
        raise StackError(f"no free port between {_FREE_FROM} and {_FREE_TO} on {HOST}")

    def _is_free(self, port: int) -> bool:
        return port not in self._given and all(is_free(port, host) for host in self._hosts)
