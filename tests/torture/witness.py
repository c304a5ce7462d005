"""Asks every node the same as the readers can reach it, and knows when no node of a shard answered anybody.

On a machine that is too busy a read fails in time, as it should. Whether it had to is not for the code under
test to say: a witness with connections of its own does.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from typing import TYPE_CHECKING

from tests.torture.faults.world import Trouble

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NO_ANSWER = "no-node-answers"
SILENT_S = 1.0
"""A node that answers nothing for so long is silent: a read gives each node a third of its three seconds."""
_EVERY_S = 0.1
_TIMEOUT_S = 5.0

Period = tuple[float, float]


class _Node:
    """A thread that asks one node again and again, and the periods in which that was not answered."""

    def __init__(self, port: int, closing: threading.Event) -> None:
        self._port = port
        self._closing = closing
        self._lock = threading.Lock()
        self._answered_s = time.monotonic()
        self._silent: list[Period] = []
        self.thread = threading.Thread(target=self._watch, name=f"witness of {port}", daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(OSError):
                self._ask()
            self._closing.wait(_EVERY_S)

    def _ask(self) -> None:
        """Ask until the connection ends."""
        with socket.create_connection((HOST, self._port), timeout=_TIMEOUT_S) as connection:
            while not self._closing.is_set():
                connection.sendall(b"PING\r\n")
                if not connection.recv(64).startswith(b"+PONG"):
                    return
                self._note_answer()
                self._closing.wait(_EVERY_S)

    def _note_answer(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            if now_s - self._answered_s > SILENT_S:
                self._silent.append((self._answered_s, now_s))
            self._answered_s = now_s

    def take(self) -> list[Period]:
        """The silent periods since the last call, the present one with them."""
        now_s = time.monotonic()
        with self._lock:
            taken, self._silent = self._silent, []
            if now_s - self._answered_s > SILENT_S:
                taken.append((self._answered_s, now_s))
        return taken


class Witness:
    """Watches the nodes of a cluster until it is closed. `shards`: the ports of each shard's nodes."""

    def __init__(self, shards: Sequence[Sequence[int]]) -> None:
        self._closing = threading.Event()
        self._shards = [[_Node(port, self._closing) for port in ports] for ports in shards]

    def take(self) -> list[Trouble]:
        """The periods since the last call in which no node of a shard answered."""
        return [
            Trouble(NO_ANSWER, shard, began_s, ended_s, unreachable=True)
            for shard, nodes in enumerate(self._shards)
            for began_s, ended_s in in_all([node.take() for node in nodes])
        ]

    def close(self) -> None:
        """End the threads."""
        self._closing.set()
        for node in itertools.chain.from_iterable(self._shards):
            node.thread.join()


def in_all(periods: Sequence[Sequence[Period]]) -> Iterator[Period]:
    """The periods that are in each of the lists."""
    for each in itertools.product(*periods):
        began_s, ended_s = max(begin for begin, _ in each), min(end for _, end in each)
        if began_s < ended_s:
            yield began_s, ended_s
