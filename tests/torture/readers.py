"""Readers that read while a schedule runs; what each of them saw is checked afterwards."""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.torture.listeners import Listeners
from tests.torture.over_http import ServerSource
from tests.torture.reading import Reads, Seen
from tests.torture.snapshots import Snapshots
from tests.torture.sources import SERVER, STORE, TERMS, WAIT_MS, NoAnswer, StoreSource
from tests.torture.stack import rest
from tests.torture.synced import SyncedTopics

from keylane.api.reads.key import KnownTags, ReadKeyRequest, render_record
from keylane.errors import KeylaneError
from keylane.ports import WaitBudget
from keylane.query.decoding import ValueDecoder
from keylane.query.latest import NO_WAIT, Wait, read_latest

if TYPE_CHECKING:
    from tests.torture.sources import Source
    from tests.torture.stack import TortureStack

    from keylane.model.records import Position
    from keylane.query.store import Store


_NOT_MODIFIED = 304


class TagReads:
    """One reader that keeps each key's last value with its tag. `wrong`: a sentence for each false 304."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[tuple[str, bytes], tuple[str, bytes | None]] = {}
        self.wrong: list[str] = []
        self.confirmed = 0

    def read(self, topic: str, key: bytes) -> None:
        """Read a key unless it is as it was. Raises KeylaneError."""
        tag, value = self._held.get((topic, key), ("", None))
        known = KnownTags.parse(tag) if tag else None
        wait = Wait(is_known=known.has_answer) if known else NO_WAIT
        request = ReadKeyRequest(topic, key, TERMS, wait, known=known)
        answer = read_latest(self._store, topic, key, TERMS, wait)
        decoder = ValueDecoder(lambda: None, WaitBudget(0, self._store.clock))  # type: ignore[arg-type, return-value]
        response = render_record(answer, request, decoder, self._store.clock.now_ms())
        if answer.record is None:
            return
        new_tag = response.headers["ETag"]
        is_confirmed = response.status_code == _NOT_MODIFIED
        self.confirmed += is_confirmed
        if (is_confirmed or new_tag == tag) and answer.record.value != value:
            self.wrong.append(
                f"{topic}/{key.decode()}: {response.status_code} for {tag}, which was {value!r:.80}; the key "
                f"has {answer.record.value!r:.80} at {answer.record.position}, {new_tag}"
            )
        self._held[topic, key] = new_tag, answer.record.value


READERS = 3
WAITERS = 2
TAGS = READERS + WAITERS
"""The number of the reader with If-None-Match."""
OVER_HTTP = frozenset({1, 2, 4})
"""The numbers of those that read from the server: two at random, whose requests meet there, and a waiter."""
RECENT = 40
"""So many of the side topics' keys are read again: those that were added last."""
FAILED, NOT_ANSWERED = f"{SERVER}, failed", f"{SERVER}, not answered"
SOURCES = (STORE, SERVER, FAILED, NOT_ANSWERED)
"""What reads are counted by. One that is not answered has failed, too."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.003, 0.05


class Readers:
    """Threads with their own clients: some read at random, some wait for positions that writes returned.

    Half of them read from the server. One sends If-None-Match, for side topics too. `listeners` hear of
    changes, `snapshots` read whole topics, `synced` keep them current.
    """

    def __init__(self, stack: TortureStack, seed: int) -> None:
        self._stack = stack
        self.listeners = Listeners(stack, seed)
        self.snapshots = Snapshots(stack, seed)
        self.synced = SyncedTopics(stack, seed)
        self._others = (self.listeners, self.snapshots, self.synced)
        self._keys: list[tuple[str, bytes]] = []
        self._positions: queue.Queue[tuple[str, bytes, Position]] = queue.Queue()
        self._seen: list[list[Seen]] = [[] for _ in range(READERS + WAITERS)]
        self._reading = [threading.Lock() for _ in range(READERS)]
        self._tags: TagReads | None = None
        self._stop = threading.Event()
        self._broken: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number, seed), daemon=True, name=f"reader-{number}")
            for number in range(READERS + WAITERS + 1)
        ]
        for thread in self._threads:
            thread.start()

    def read_keys(self, keys: list[tuple[str, bytes]]) -> None:
        self._keys = keys
        self.listeners.listen_to(keys)
        self.snapshots.begin()
        self.synced.begin()

    def wait_for(self, topic: str, key: bytes, position: Position) -> None:
        """Let a waiter read the key as of a position; dropped when all waiters are busy."""
        if self._positions.qsize() < WAITERS * 2:
            self._positions.put((topic, key, position))

    def drop_positions(self) -> None:
        """Wait for no more positions than those that are being waited for."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._positions.get_nowait()
                self._positions.task_done()

    def take(self) -> list[list[Seen]]:
        """What each reader has seen since the last call, in order. Waits for positions and reads first."""
        self._positions.join()
        self._keys = []
        for reading in self._reading:
            with reading:
                pass  # what was being read is in
        taken = self._seen
        self._seen = [[] for _ in taken]
        return taken

    @property
    def broken(self) -> list[str]:
        """Why readers have ended, if any have."""
        return self._broken + [each for one in self._others for each in one.broken]

    @property
    def confirmed(self) -> int:
        """How often the answer was 304 so far."""
        return self._tags.confirmed if self._tags else 0

    def take_wrong(self) -> list[str]:
        """What was wrong with answers of 304 since the last call."""
        if self._tags is None:
            return []
        taken, self._tags.wrong = self._tags.wrong, []
        return taken

    def close(self) -> None:
        for each in self._others:
            each.close()
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_MS / 1000 + 10)

    def _run(self, number: int, seed: int) -> None:
        with contextlib.ExitStack() as running:
            try:
                if number == TAGS:
                    self._read_tags(seed, running)
                else:
                    self._read(number, seed, running)
            except Exception as error:  # noqa: BLE001 - any other error is a finding
                self._broken.append(f"reader {number} broke: {error!r}")

    def _read_tags(self, seed: int, running: contextlib.ExitStack) -> None:
        tags = self._tags = TagReads(self._open_store(running).store)
        source = random.Random(f"{seed}/{TAGS}")
        while not self._stop.is_set():
            self._read_unless_known(source, tags)

    def _read(self, number: int, seed: int, running: contextlib.ExitStack) -> None:
        where: Source
        if number in OVER_HTTP:
            stack = self._stack
            where = ServerSource(stack.hosts.server_port, stack.shapes, f"{seed}/{number}/ways")
            running.callback(where.close)
        else:
            where = self._open_store(running)
        reads = Reads(number, where, self._stack.configuration)
        source = random.Random(f"{seed}/{number}")
        while not self._stop.is_set():
            if number >= READERS:
                self._await_one(number, reads, source)
            else:
                began_s = time.monotonic()
                self._read_once(number, reads, source)
                rest(began_s, _PAUSE_S if self._keys else _LONGEST_PAUSE_S, _LONGEST_PAUSE_S)

    def _read_once(self, number: int, reads: Reads, source: random.Random) -> None:
        with self._reading[number]:
            if keys := self._keys:
                self._seen[number] += reads.read_any(source, keys)

    def _open_store(self, running: contextlib.ExitStack) -> StoreSource:
        state = self._stack.reader_state()
        running.callback(state.close)
        return StoreSource(state)

    def _read_unless_known(self, source: random.Random, tags: TagReads) -> None:
        """Read a key that is being written, or one of a side topic. Others judge reads that fail."""
        sides = list(self._stack.side_keys)[-RECENT:]
        keys = source.choice([each for each in (self._keys, sides) if each] or [[]])
        began_s = time.monotonic()
        if keys:
            with contextlib.suppress(KeylaneError):
                tags.read(*source.choice(keys))
        rest(began_s, _PAUSE_S, _LONGEST_PAUSE_S)

    def _await_one(self, number: int, reads: Reads, source: random.Random) -> None:
        try:
            topic, key, position = self._positions.get(timeout=0.1)
        except queue.Empty:
            return
        try:
            self._seen[number] += reads.await_one(source, topic, key, position)
        finally:
            self._positions.task_done()


def count_by_source(seen: list[list[Seen]]) -> Counter[str]:
    """How many reads there were from each source, and how many of the server's had an error, or no answer."""
    counts = Counter[str]()
    for one in itertools.chain.from_iterable(seen):
        counts[one.source] += 1
        if one.source == SERVER:
            counts[FAILED] += one.error is not None
            counts[NOT_ANSWERED] += isinstance(one.error, NoAnswer)
    return counts
