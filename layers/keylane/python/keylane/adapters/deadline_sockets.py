"""Sockets that are opened within a deadline, and one for a conversation over HTTP that ends by it.

One thing is not bounded: resolving the host name, which Python cannot interrupt.
"""

import io
import socket
from typing import Any

from keylane.ports import Deadline


def open_socket(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Connect to the first address of a name that answers: each has its share of the time."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    fault = OSError("the name has no address")
    for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(remaining_s(deadline) / left)
            sock.connect(address)
        except OSError as error:
            sock.close()
            fault = error
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise fault


def remaining_s(deadline: Deadline) -> float:
    """Return the seconds left. Raises TimeoutError where there are none."""
    if not deadline.remaining_s:
        raise TimeoutError
    return deadline.remaining_s


class DeadlineSocket:
    """A socket whose reads and writes all end by the deadline: its own timeout bounds each one alone."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        """Send all of the data. Raises TimeoutError."""
        self._sock.settimeout(remaining_s(self._deadline))
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the stream of what comes."""
        return io.BufferedReader(_DeadlineStream(self._sock, self._deadline))

    def close(self) -> None:
        """Do nothing: http.client closes its socket before it has read the response."""


class _DeadlineStream(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(remaining_s(self._deadline))
        return self._sock.recv_into(buffer)
