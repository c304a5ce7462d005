"""Runs benchmarks in rounds, so that what changes on the machine meanwhile meets all of them alike."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import quiet

QUIET_WITHIN_S = 60
RESULTS = Path(".keylane-bench")


@dataclass(frozen=True, slots=True)
class Bench:
    """A script of this folder with its arguments."""

    script: str
    arguments: tuple[str, ...] = ()

    def run(self, checkout: Path, python: Path | str = sys.executable) -> list[dict[str, Any]]:
        """Run it in a checkout, once the machine is quiet; return what it reports. Exits if it fails."""
        quiet.require(within_s=QUIET_WITHIN_S)
        results = checkout / RESULTS
        before = {path: path.stat().st_mtime_ns for path in results.glob("*.json")}
        command = [str(python), str(checkout / "tests/bench" / f"bench_{self.script}.py"), *self.arguments]
        done = subprocess.run(
            command,
            cwd=checkout,
            env={**os.environ, quiet.BUSY: "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"bench_{self.script}.py failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        new = [path for path in results.glob("*.json") if before.get(path) != path.stat().st_mtime_ns]
        return [json.loads(path.read_text()) for path in sorted(new)]


class Samples:
    """Each figure of each report, round by round."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str, bool], list[float]] = {}

    def add(self, document: dict[str, Any]) -> None:
        """Note all figures of a report, their ratios to the reference, and its facts that are numbers."""
        bench = document["bench"]
        for row in document["rows"]:
            for name, figure in row["figures"].items():
                self._note(bench, row["name"], name, figure, ratio=False)
            for name, figure in row["ratio"].items():
                self._note(bench, row["name"], name, figure, ratio=True)
        for name, fact in document["facts"].items():
            if isinstance(fact, int | float):
                self._note(bench, "", name, fact, ratio=False)

    def of(self, bench: str, row: str, figure: str, *, ratio: bool = False) -> list[float]:
        """Return one figure's samples; empty if nobody reported it."""
        return self._found.get((bench, row, figure, ratio), [])

    def to_json(self) -> list[dict[str, Any]]:
        """Return all figures with median and spread."""
        return [
            {"bench": bench, "row": row, "figure": figure, "ratio": ratio, **summary(samples)}
            for (bench, row, figure, ratio), samples in self._found.items()
        ]

    def _note(self, bench: str, row: str, name: str, figure: float, *, ratio: bool) -> None:
        self._found.setdefault((bench, row, name, ratio), []).append(float(figure))


def summary(samples: list[float]) -> dict[str, Any]:
    """Return the median of a few samples, the least and the most."""
    return {
        "median": statistics.median(samples),
        "least": min(samples),
        "most": max(samples),
        "rounds": len(samples),
    }
