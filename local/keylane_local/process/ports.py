"""Ports of this machine's addresses: whether they are free, who has them, and which to use."""

import fcntl
import ipaddress
import os
import random
import socket
import tempfile
import time
from pathlib import Path
from typing import Self

import psutil  # type: ignore[import-untyped]

from keylane_local.errors import PortInUse, StackError

HOST = "127.0.0.1"
# Below Linux's ephemeral range (32768..60999): no outgoing connection takes a port before its server listens.
_FREE_FROM, _FREE_TO = 20000, 32000
_ATTEMPTS = 500
_RELEASED_S, _LOOK_S = 5.0, 0.05
"""So long a process that was killed may still have its port, though nobody is seen to listen."""
_MOST_HELD = 256
"""Of those that a process reserves: a server listens long before so many others have been chosen."""
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


class Reservations:
    """Keeps ports from this user's other commands between the choice of a port and its server's start.

    Two stacks that start at the same time both find the default ports free, and the one whose broker
    cannot bind would take the other's for its own. Locks on files end with the process that has them.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"keylane-ports-{os.getuid()}"
        self._held: dict[int, int] = {}

    def take(self, port: int) -> bool:
        """Reserve `port` until the block ends; return whether that was possible, or was done before."""
        if port in self._held:
            return True
        self._folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(self._folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._held[port] = lock
        while len(self._held) > _MOST_HELD:
            os.close(self._held.pop(next(iter(self._held))))
        return True

    def holds(self, port: int) -> bool:
        """Return whether it has reserved this port."""
        return port in self._held

    def holder(self, port: int) -> int | None:
        """Return the id of the process that reserves `port`, or has reserved it last; None if none has."""
        try:
            return int((self._folder / str(port)).read_bytes())
        except (OSError, ValueError):
            return None

    def __enter__(self) -> Self:
        """Nothing is reserved at first."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release every port."""
        for lock in self._held.values():
            os.close(lock)
        self._held.clear()


OF_PROCESS = Reservations()


class Ports:
    """Hands out free ports, each of them once: free on the loopback address, and on `host`.

    No other process of this user gets them while `reservations` hold them; by default, that is until this
    process ends.
    """

    def __init__(self, host: str = HOST, reservations: Reservations = OF_PROCESS) -> None:
        self._hosts = {HOST, host}
        self._given: set[int] = set()
        self._reservations = reservations

    def exactly(self, port: int, part: str, option: str | None = None) -> int:
        """Return `port`; raise PortInUse, which names `part` and `option`, if it is taken."""
        if not 0 < port <= MAX_PORT:
            raise StackError(f"port {port}, requested for {part}, is not between 1 and {MAX_PORT}")
        until_s = time.monotonic() + _RELEASED_S
        while not self._is_unused(port) and owner_of(port) is None and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        if not self._is_free(port, is_asked_for=True):
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
            if not self._reservations.holds(port) and self._is_free(port):
                self._given.add(port)
                return port
        raise StackError(f"no free port between {_FREE_FROM} and {_FREE_TO} on {HOST}")

    def _is_free(self, port: int, *, is_asked_for: bool = False) -> bool:
        # One that is in use is not reserved: its server may end, and start again.
        if port in self._given or not self._is_unused(port):
            return False
        is_ours = self._reservations.take(port) or (is_asked_for and _is_chosen_for_us(port))
        return is_ours and self._is_unused(port)  # whoever had reserved it may listen by now

    def _is_unused(self, port: int) -> bool:
        return all(is_free(port, host) for host in self._hosts)


def _is_chosen_for_us(port: int) -> bool:
    """Return whether this process, or one that has started it, has chosen the port with `Ports()`."""
    starters = (each.pid for each in psutil.Process().parents())
    return OF_PROCESS.holds(port) or OF_PROCESS.holder(port) in starters
