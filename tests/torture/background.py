"""Threads that act again and again while a schedule runs, and rest while it is judged."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter


class Background(ABC):
    """`what` it is, in faults. `broken`: why it has ended."""

    def __init__(self, what: str) -> None:
        self.broken: list[str] = []
        self._what = what
        self._counts: Counter[str] = Counter()
        self._goes_on, self._is_idle, self._stop = (threading.Event() for _ in range(3))
        self._is_idle.set()
        self._thread = threading.Thread(target=self._run, daemon=True, name=what)

    def begin(self) -> None:
        """Act from now on."""
        self._is_idle.clear()
        self._goes_on.set()
        if self._thread.ident is None:
            self._thread.start()

    def rest(self, within_s: float = 60) -> None:
        """Act no more; whoever called may use what it acts with."""
        self._goes_on.clear()
        if not self._is_idle.wait(within_s) and not self.broken:
            self.broken.append(f"the {self._what} have not come to rest within {within_s:.0f} s")

    def counts(self) -> Counter[str]:
        """How often it did what since the last call."""
        taken, self._counts = self._counts, Counter()
        return taken

    def close(self) -> None:
        self._stop.set()
        self._goes_on.set()
        if self._thread.ident is not None:
            self._thread.join(20)

    @abstractmethod
    def _act(self) -> None:
        """Do one thing."""

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if self._goes_on.is_set():
                    self._act()
                else:
                    self._is_idle.set()
                    self._goes_on.wait()
        except Exception as error:  # noqa: BLE001 - any other error is a finding
            self.broken.append(f"the {self._what} broke: {error!r}")
            self._is_idle.set()
