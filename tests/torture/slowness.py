"""When readers gave up on a node: a schedule did that to it, or the machine was too busy to answer in time.

From then on a replica, which may be behind, answers them for a while, also when the trouble is just over. So
what they saw is judged as in a schedule that slows their links down.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.torture.faults.world import Trouble

from keylane.adapters.redis.replicas import UNHEALTHY_FOR_S
from keylane.adapters.redis.state import RedisState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
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
