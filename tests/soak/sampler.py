"""Samples of the whole stack, every few seconds, in a thread; each is a line of JSON in samples.jsonl."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from tests.soak.processes import JVMS, find_processes, measure, measure_heap
from tests.soak.state import StateReader

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.processes import Figures

    from keylane_local.stack.stack import Stack

EVERY_S, HEAP_EVERY_S = 5.0, 120.0
"""A JVM's heap is measured by a full collection, which takes it a tenth of a second."""


class Sampler:
    """Samples from `start` to `stop`; `failures` has what could not be read."""

    def __init__(self, stack: Stack, topics: dict[str, int], to: Path) -> None:
        self.failures: list[str] = []
        self.latest: dict[str, Figures] = {}
        self._stack = stack
        self._to = to
        self._state = StateReader(stack, topics)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it, unless it has ended."""
        self._over.set()
        self._thread.join(120)
        self._state.close()

    def _run(self) -> None:
        begun_s = heap_s = time.monotonic()
        number = 0
        with self._to.open("w", encoding="utf-8") as file:
            while not self._over.wait(max(0.0, begun_s + number * EVERY_S - time.monotonic())):
                number = int((time.monotonic() - begun_s) / EVERY_S) + 1
                with_heap = time.monotonic() >= heap_s
                heap_s += HEAP_EVERY_S if with_heap else 0
                try:
                    self.latest = self._sample(with_heap=with_heap)
                except Exception as error:  # noqa: BLE001 - a server that is busy leaves a gap, which is counted
                    self.failures.append(repr(error))
                    continue
                file.write(json.dumps({"at_s": round(time.time(), 3), "figures": self.latest}) + "\n")
                file.flush()

    def _sample(self, *, with_heap: bool) -> dict[str, Figures]:
        figures = self._state.read()
        for name, processes in find_processes(self._stack).items():
            own = measure(processes)
            if with_heap and name in JVMS and processes:
                own |= measure_heap(processes[0])
            figures[name] = figures.get(name, {}) | own
        return figures


def read_series(samples: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return points (seconds since the first sample, value) by name and figure."""
    series: dict[str, dict[str, list[tuple[float, float]]]] = {}
    begun_s: float | None = None
    for line in samples.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        begun_s = sample["at_s"] if begun_s is None else begun_s
        for name, figures in sample["figures"].items():
            for figure, value in figures.items():
                points = series.setdefault(name, {}).setdefault(figure, [])
                points.append((round(sample["at_s"] - begun_s, 3), value))
    return series
