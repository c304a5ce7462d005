"""Readers that read while a schedule runs; what each of them saw is checked afterwards."""

from __future__ import annotations

import queue
import random
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.own import CLOCK

from keylane.adapters.redis.state import RedisState
from keylane.errors import KeylaneError
from keylane.query.latest import Wait, read_latest
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.redis.cluster import Cluster
    from keylane.model.records import Answer, Position

READERS = 2
WAITERS = 2
TIMEOUT_MS = 3_000
"""The timeout of one read: more than a function's second, because Spark takes most of the processors."""
WAIT_MS = 120_000
LAYOUT_TTL_S = 0.3
_PAUSE_S = 0.003


class Seen(NamedTuple):
    """One read: its answer or its error. `waited_for`: its min_position.

    Times in monotonic seconds, and `ended_ms` by the wall clock.
    """

    reader: int
    topic: str
    key: bytes
    began_s: float
    ended_s: float
    answer: Answer | None
    error: KeylaneError | None
    waited_for: Position | None = None
    ended_ms: int = 0


class Readers:
    """Threads with their own clients: some read at random, some wait for positions that writes returned."""

    def __init__(self, connect: Callable[[], Cluster], seed: int) -> None:
        self._connect = connect
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
        store = Store(state, Layouts(state, CLOCK, LAYOUT_TTL_S), CLOCK)
        source = random.Random(f"{seed}/{number}")
        try:
            while not self._stop.is_set():
                if number >= READERS:
                    self._await_one(number, store)
                elif keys := self._keys:
                    self._seen[number].append(_read(number, store, *source.choice(keys)))
                    time.sleep(_PAUSE_S)
                else:
                    time.sleep(0.01)
        except Exception as error:  # noqa: BLE001 - any other error is a finding
            self.broken.append(f"reader {number} broke: {error!r}")
        finally:
            state.close()

    def _await_one(self, number: int, store: Store) -> None:
        try:
            topic, key, position = self._positions.get(timeout=0.1)
        except queue.Empty:
            return
        try:
            self._seen[number].append(_read(number, store, topic, key, position))
        finally:
            self._positions.task_done()


def _read(number: int, store: Store, topic: str, key: bytes, position: Position | None = None) -> Seen:
    began_s = time.monotonic()
    answer, failure = None, None
    try:
        wait = Wait(position, WAIT_MS if position else 0)
        answer = read_latest(store, topic, key, ReadTerms(timeout_ms=TIMEOUT_MS), wait)
    except KeylaneError as error:
        failure = error
    ended_s, ended_ms = time.monotonic(), CLOCK.now_ms()
    return Seen(number, topic, key, began_s, ended_s, answer, failure, position, ended_ms)
