"""All benchmarks in rounds, each figure beside its aim: `make bench`, about 15 minutes on 2 cores.

Each measures its subject beside a reference in the same run. Here they run one after the other, and
all of them again in each round; medians and spreads are over the rounds. The aims are in `aims.toml`. The
result is in `.keylane-bench/suite.json`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import quiet
from harness import RESULTS, ROOT, machine, parse, write_json
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence


QUIET_WITHIN_S = 60


@dataclass(frozen=True, slots=True)
class Bench:
    """A script of this folder with its arguments."""

    script: str
    arguments: tuple[str, ...] = ()

    def run(self, checkout: Path, python: Path | str = sys.executable) -> list[dict[str, Any]]:
        """Run it in a checkout, once the machine is quiet; return what it reports. Exits if it fails."""
        quiet.require(within_s=QUIET_WITHIN_S)
        results = checkout / RESULTS.name
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


PLAN = (
    Bench("lookup"),
    Bench("read", ("--keys", "10000", "--reads", "500")),
    Bench("coldstart"),
    Bench("write", ("--only", "put")),
    Bench("serve"),
    Bench("freshness", ("--samples", "300")),
    Bench("idle"),
    Bench("ingest"),
)
NEEDED = {"serve": "wrk"}
"""Programs that a benchmark needs beyond the set-up; without its program it is left out, and that is said."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure of a report, or one of its facts, and the least or most that it may be."""

    name: str
    bench: str
    row: str = ""
    figure: str = ""
    fact: str = ""
    ratio: bool = False
    at_least: float | None = None
    at_most: float | None = None

    def samples(self, found: Samples) -> list[float]:
        return found.of(self.bench, self.row, self.figure or self.fact, ratio=self.ratio)

    def verdict(self, median: float) -> str:
        """Return "met", or by how much it is missed."""
        if self.at_least is not None:
            return "met" if median >= self.at_least else f"{median / self.at_least:.2f}x of it"
        assert self.at_most is not None, self.name
        return "met" if median <= self.at_most else f"{median / self.at_most:.2f}x of it"

    @property
    def bound(self) -> str:
        suffix = "x" if self.ratio else ""
        if self.at_least is not None:
            return f">= {self.at_least:,}{suffix}"
        return f"<= {self.at_most:,}{suffix}"


def aims() -> list[Aim]:
    return [Aim(**aim) for aim in tomllib.loads((Path(__file__).with_name("aims.toml")).read_text())["aims"]]


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--only", nargs="+", choices=[bench.script for bench in PLAN], help="of these")
    options.add_argument("--markdown", action="store_true", help="print the table for docs/benchmarks.md too")
    chosen = parse(options, arguments)
    plan = [bench for bench in PLAN if chosen.only is None or bench.script in chosen.only]
    left_out = [b.script for b in plan if b.script in NEEDED and shutil.which(NEEDED[b.script]) is None]
    samples = run([bench for bench in plan if bench.script not in left_out], chosen.rounds)
    rows = judge(samples, plan)
    show(rows)
    for script in left_out:
        Console().print(f"left out: bench-{script} needs {NEEDED[script]}")
    document = {"machine": machine(), "rounds": chosen.rounds, "figures": samples.to_json()}
    write_json(RESULTS / "suite.json", document)
    if chosen.markdown:
        print(markdown(rows))


def run(plan: Sequence[Bench], rounds: int) -> Samples:
    """Run all benchmarks of a plan in each round, with a progress bar."""
    samples, columns = Samples(), (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn()) as progress:
        bar = progress.add_task("", total=rounds * len(plan))
        for number in range(rounds):
            for bench in plan:
                progress.update(bar, description=f"round {number + 1}: {bench.script}")
                began_s = time.monotonic()
                for document in bench.run(ROOT):
                    samples.add(document)
                progress.console.print(f"{bench.script}: {time.monotonic() - began_s:.0f} s", highlight=False)
                progress.advance(bar)
    return samples


def judge(samples: Samples, plan: Sequence[Bench]) -> list[dict[str, Any]]:
    """Return a row for each aim of the plan. An aim whose figure nobody reported says so."""
    scripts = [bench.script for bench in plan]
    rows = []
    for aim in aims():
        if not any(aim.bench == script or aim.bench.startswith(f"{script}-") for script in scripts):
            continue
        found = aim.samples(samples)
        row: dict[str, Any] = {"name": aim.name, "aim": aim.bound}
        if found:
            row |= summary(found) | {"verdict": aim.verdict(summary(found)["median"])}
        rows.append(row | ({} if found else {"verdict": "NOT MEASURED"}))
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table of aims."""
    table = Table(title="make bench", title_justify="left")
    for column in ("", "aim", "median", "least to most", "verdict"):
        table.add_column(column, justify="left" if column in {"", "verdict"} else "right", no_wrap=True)
    for row in rows:
        table.add_row(row["name"], row["aim"], *_figures(row), row["verdict"])
    console = Console()
    console.width = max(console.width, 120)
    console.print(table)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of aims for a document."""
    lines = ["| | aim | median | least to most | |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join((row['name'], row['aim'], *_figures(row), row['verdict']))} |" for row in rows]
    return "\n".join(lines)


def _figures(row: dict[str, Any]) -> tuple[str, str]:
    if "median" not in row:
        return "", ""
    return _number(row["median"]), f"{_number(row['least'])} to {_number(row['most'])}"


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"


if __name__ == "__main__":
    main()
