"""Readers that read while a schedule runs; what each of them saw is checked afterwards."""

from __future__ import annotations

import queue
import random
import threading
import time
from typing import TYPE_CHECKING

from tests.servers.own import CLOCK
from tests.torture.reading import WAIT_MS, Reads, Seen

from keylane.adapters.redis.state import RedisState
from keylane.query.layouts import Layouts
from keylane.query.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.configurations import Configuration

    from keylane.adapters.redis.cluster import Cluster
    from keylane.model.records import Position

READERS = 2
WAITERS = 2
LAYOUT_TTL_S = 0.3
_PAUSE_S = 0.003


class Readers:
    """Threads with their own clients: some read at random, some wait for positions that writes returned."""

    def __init__(self, connect: Callable[[], Cluster], configuration: Configuration, seed: int) -> None:
        self._connect = connect
        self._configuration = configuration
        self._keys: list[tuple[str, bytes]] = []
        self._positions: queue.Queue[tuple[str, bytes, Position]] = queue.Queue()
        self._seen: list[list[Seen]] = [[] for _ in range(READERS + WAITERS)]
        self._idle = threading.Event()
        self._stop = threading.Event()
        self._waiting = 0
        self.broken: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number, seed), daemon=True, name=f"reader-{number}")
            for number in range(READERS + WAITERS)
        ]
        for thread in self._threads:
            thread.start()

    def read_keys(self, keys: list[tuple[str, bytes]]) -> None:
        """Read these from now on."""
        self._keys = keys

    def wait_for(self, topic: str, key: bytes, position: Position) -> None:
        """Let a waiter read the key as of a position; dropped when all waiters are busy."""
        if self._positions.qsize() < WAITERS * 2:
            self._positions.put((topic, key, position))

    def take(self) -> list[list[Seen]]:
        """What each reader has seen since the last call, in order. Waits for all positions first."""
        self._positions.join()
        self._keys = []
        time.sleep(_PAUSE_S)
        taken = self._seen
        self._seen = [[] for _ in taken]
        return taken

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_MS / 1000 + 10)

    def _run(self, number: int, seed: int) -> None:
        state = RedisState(self._connect())
        reads = Reads(number, Store(state, Layouts(state, CLOCK, LAYOUT_TTL_S), CLOCK), self._configuration)
        source = random.Random(f"{seed}/{number}")
        try:
            while not self._stop.is_set():
                if number >= READERS:
                    self._await_one(number, reads)
                elif keys := self._keys:
                    self._seen[number] += reads.read_any(source, keys)
                    time.sleep(_PAUSE_S)
                else:
                    time.sleep(0.01)
        except Exception as error:  # noqa: BLE001 - any other error is a finding
            self.broken.append(f"reader {number} broke: {error!r}")
        finally:
            state.close()

    def _await_one(self, number: int, reads: Reads) -> None:
        try:
            topic, key, position = self._positions.get(timeout=0.1)
        except queue.Empty:
            return
        try:
            self._seen[number].append(reads.read_one(topic, key, position))
        finally:
            self._positions.task_done()
