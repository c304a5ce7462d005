"""Reads at a steady rate: each begins at its time, whether or not the one before has returned."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tests.servers.own import eventually
from tests.support.stopwatch import Stalls

from keylane.errors import KeylaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Read = Callable[[int], None]


@dataclass(slots=True)
class SteadyReads:
    """While its block runs, `readers`, each in its own thread, share `per_s` reads a second.

    A reader is called with the number of the read, and raises errors. A read that begins late counts from
    the time at which it should have begun.
    """

    readers: Sequence[Read]
    per_s: float = 200
    failures: list[Exception] = field(default_factory=list)
    done: list[tuple[float, float]] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _stalls: Stalls = field(default_factory=Stalls)

    def __enter__(self) -> Self:
        self._stalls.__enter__()
        begin_s = time.monotonic()
        for turn, read in enumerate(self.readers):
            thread = threading.Thread(target=self._run, args=(read, begin_s, turn))
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self._stalls.__exit__()

    @property
    def longest_s(self) -> float:
        """The duration of the slowest read, without what a busy machine took from it."""
        return max(end_s - due_s - self._stalls.between(due_s, end_s) for due_s, end_s in self.done)

    def wait_for_more(self, seconds: float = 1.0) -> None:
        """Let as many reads more come back as that many seconds have."""
        wanted = len(self.done) + seconds * self.per_s
        eventually(lambda: len(self.done) >= wanted)

    def _run(self, read: Read, begin_s: float, turn: int) -> None:
        number = turn
        while not self._over.is_set():
            due_s = begin_s + number / self.per_s
            if self._over.wait(max(0.0, due_s - time.monotonic())):
                return
            try:
                read(number)
                self.done.append((due_s, time.monotonic()))
            except (KeylaneError, AssertionError) as error:
                self.failures.append(error)
            number += len(self.readers)
