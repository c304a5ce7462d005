"""What no schedule has planned: nodes that a reader gave up on, shards of which no node answers anybody."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from typing import TYPE_CHECKING

from tests.torture.faults.world import Trouble

from keylane.adapters.redis.replicas import UNHEALTHY_FOR_S
from keylane.adapters.redis.state import RedisState
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from keylane.adapters.redis.cluster import ClusterClient
    from keylane.adapters.redis.connections import Node
    from keylane.ports import Deadline


SLOW_NODE = "slow-node"


class WatchedState(RedisState):
    """Calls `note` with a slot of each node that did not answer."""

    def __init__(self, cluster: ClusterClient, note: Callable[[int], None]) -> None:
        super().__init__(cluster)
        self._note = note

    def _mark_unhealthy(self, node: Node, deadline: Deadline) -> None:
        super()._mark_unhealthy(node, deadline)
        slot = next((slot for slot, nodes in enumerate(self._slot_map.slots) if node in nodes), None)
        if slot is not None:
            self._note(slot)


class Slowness:
    """The times of a stack's readers; all threads add to it. `file`: those of the server."""

    def __init__(self, shard_of: Callable[[int], int], file: Path) -> None:
        self._shard_of = shard_of
        self._noted: list[tuple[int, float]] = []  # shard, monotonic seconds
        self._file = file
        self._read_bytes = 0

    def note(self, slot: int) -> None:
        """A node of the slot did not answer."""
        self._noted.append((self._shard_of(slot), time.monotonic()))

    def take(self) -> Sequence[Trouble]:
        """The times of shards since the last call."""
        taken, self._noted = self._noted + self._of_server(), []
        return [Trouble(SLOW_NODE, shard, at_s, at_s + UNHEALTHY_FOR_S) for shard, at_s in taken]

    def _of_server(self) -> list[tuple[int, float]]:
        if not self._file.exists():
            return []
        with self._file.open("rb") as opened:
            opened.seek(self._read_bytes)
            lines = opened.read().decode().splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()  # it is being written
        self._read_bytes += sum(map(len, lines))
        return [(self._shard_of(int(slot)), float(at_s)) for slot, at_s in map(str.split, lines)]


def unexplained(found: Iterable[Trouble], troubles: Sequence[Trouble]) -> int:
    """How many of the times that were found are in no other trouble of their shard."""
    return sum(
        not any(trouble.touches(each.shard, each.began_s, each.began_s) for trouble in troubles)
        for each in found
    )


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
    for each in itertools.product(*periods):
        began_s, ended_s = max(begin for begin, _ in each), min(end for _, end in each)
        if began_s < ended_s:
            yield began_s, ended_s
