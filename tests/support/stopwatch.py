"""Time that a block takes, without what a busy machine takes from it: for bounds of up to a few seconds.

For blocks that wait. One C call that computes and holds the interpreter's lock would be left out like a busy
machine: measure that by the process's own time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

TICK_S = 0.02
GRACE_S = 0.01
"""A thread may resume as late as that: another one of this process runs."""
TIMES = 5
"""A bound tells a limit that holds from one that does not: it is no measure of the product's speed."""


class Stalls:
    """While its block runs, a thread that only sleeps notes when it was resumed late, and by how much."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def between(self, begin_s: float, end_s: float) -> float:
        """Return for how long the machine did not run this process, between two monotonic times."""
        return sum(max(0.0, min(end_s, to_s) - max(begin_s, from_s)) for from_s, to_s in self._found)

    def note(self, slept_from_s: float, resumed_s: float) -> None:
        """Note a sleep of TICK_S, or less."""
        due_s = slept_from_s + TICK_S
        if resumed_s > due_s + GRACE_S:
            self._found.append((due_s, resumed_s))

    def _watch(self) -> None:
        while not self._over.is_set():
            begin_s = time.monotonic()
            self._over.wait(TICK_S)
            self.note(begin_s, time.monotonic())


class Stopwatch:
    """`with Stopwatch() as watch:`, and then `watch.seconds`: the time, on a machine with time to spare."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._stalls = Stalls()

    def __enter__(self) -> Self:
        self._stalls.__enter__()
        self._begin_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        end_s = time.monotonic()
        self._stalls.__exit__()
        self.seconds = end_s - self._begin_s - self._stalls.between(self._begin_s, end_s)


@contextlib.contextmanager
def takes_about(seconds: float) -> Iterator[None]:
    """Fail if the block takes five times as long. `seconds`: what it takes on a machine with other work."""
    with Stopwatch() as watch:
        yield
    assert watch.seconds < TIMES * seconds, f"it took {watch.seconds:.2f} s, and about {seconds} s are usual"
