"""A relay between a client and a server, whose connections a test cuts, and whose server it replaces."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import TYPE_CHECKING

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE_BYTES = 4096
_REQUEST = re.compile(rb"^[A-Z]+ (\S+) HTTP/1", re.MULTILINE)


class CutRelay:
    """Passes bytes on to `target`, a port. `connections`: how many there were; `asked`: for which paths.

    `cut_after_bytes`: after how many bytes from the server each next connection ends.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.cut_after_bytes: int | None = None
        self._is_refusing = False
        self.connections = 0
        self.asked: list[str] = []
        self._listener = socket.create_server((HOST, 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """End all connections, wherever they are."""
        with self._lock:
            connections, self._open = self._open, set()
        for each in connections:
            _end(each)

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """End all connections, and within the block each new one."""
        self._is_refusing = True
        try:
            self.cut()
            yield
        finally:
            self._is_refusing = False

    def close(self) -> None:
        _end(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_refusing:
                _end(client)
                continue
            try:
                server = socket.create_connection((HOST, self.target))
            except OSError:
                _end(client)
                continue
            with self._lock:
                self._open |= {client, server}
            if self._is_refusing:  # it was connected meanwhile
                self.cut()
            self.connections += 1
            most = self.cut_after_bytes
            threading.Thread(target=self._pass_on, args=(client, server, None, True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, most, False), daemon=True).start()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, most_bytes: int | None, sends_requests: bool
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while (most_bytes is None or passed < most_bytes) and (data := source.recv(_PIECE_BYTES)):
                if sends_requests:
                    self.asked += [path.decode() for path in _REQUEST.findall(data)]
                sink.sendall(data)
                passed += len(data)
        with self._lock:
            self._open -= {source, sink}
        _end(source)
        _end(sink)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextlib.contextmanager
def relaying(target: int) -> Iterator[CutRelay]:
    """Yield a relay to a port; close it afterwards."""
    relay = CutRelay(target)
    try:
        yield relay
    finally:
        relay.close()
