"""Names that a server of our own resolves, and stops resolving: for a process with files of its own.

resolv.conf and hosts are mounted in a mount namespace of that process, which needs root. The machine's own
stay as they are.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

RESOLVER = "127.53.53.53"
"""An address of this machine's loopback that nothing else listens on."""
DOMAIN = "fire.test"
_HEADER = struct.Struct(">HHHHHH")
_A, _ANSWERED, _POLL_S = 1, 0x8580, 0.2


class Resolver:
    """Answers every name of DOMAIN with the loopback's address, until `is_silent`. `asked` counts queries."""

    def __init__(self) -> None:
        self.is_silent = False
        self.asked = 0
        self._over = threading.Event()

    def serve(self, listening: socket.socket) -> None:
        listening.settimeout(_POLL_S)
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                query, client = listening.recvfrom(4096)
                self.asked += 1
                if not self.is_silent:
                    listening.sendto(answer_of(query), client)

    def stop(self) -> None:
        self._over.set()


def answer_of(query: bytes) -> bytes:
    """Return the answer to a query of one name: an address for type A, none for other types."""
    number = _HEADER.unpack_from(query)[0]
    end = query.index(b"\0", _HEADER.size) + 5
    (kind,) = struct.unpack_from(">H", query, end - 4)
    address = b"\xc0\x0c" + struct.pack(">HHIH", _A, 1, 1, 4) + socket.inet_aton(HOST)
    found = address if kind == _A else b""
    return _HEADER.pack(number, _ANSWERED, 1, bool(found), 0, 0) + query[_HEADER.size : end] + found


@contextlib.contextmanager
def resolver() -> Iterator[Resolver]:
    """Yield a name server at RESOLVER."""
    serving = Resolver()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind((RESOLVER, 53))
        thread = threading.Thread(target=serving.serve, args=(listening,))
        thread.start()
        try:
            yield serving
        finally:
            serving.stop()
            thread.join()


def with_resolver(folder: Path) -> list[str]:
    """Return the words before a command that make it ask RESOLVER for names, and know none by itself."""
    resolv, hosts = folder / "resolv.conf", folder / "hosts.none"
    resolv.write_text(f"nameserver {RESOLVER}\n", encoding="ascii")
    hosts.write_text("127.0.0.1 localhost\n", encoding="ascii")
    return _with_files({"/etc/resolv.conf": resolv, "/etc/hosts": hosts})


def with_hosts(folder: Path, *names: str) -> list[str]:
    """Return the words before a command that make it know these names of DOMAIN besides the machine's."""
    hosts = folder / "hosts.all"
    lines = [Path("/etc/hosts").read_text(encoding="utf-8"), *(f"{HOST} {name}" for name in names)]
    hosts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _with_files({"/etc/hosts": hosts})


def _with_files(files: dict[str, Path]) -> list[str]:
    mounts = " && ".join(f"mount --bind '{ours}' {theirs}" for theirs, ours in files.items())
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{mounts} && exec "$@"', "sh"]


def in_front(words: list[str]) -> tuple[str, ...]:
    """Return the program `keylane` behind such words."""
    return (*words, sys.executable, "-m", "keylane_client.cli")
