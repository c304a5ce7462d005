"""Benchmarks of two commits in turns: `make bench-compare OLD=v1 NEW=HEAD BENCH="lookup ingest" ROUNDS=3`.

Each commit has a worktree and a virtual environment of its own; Java, Redis and the jars are shared. Each
runs the benchmarks of its own commit, and the order changes in every round. Printed are the medians of each
figure, their ratio, and the spread of the ratios: a difference that is smaller than the spread says nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness import RESULTS, ROOT, machine, parse, write_json
from rich.console import Console
from rich.table import Table
from suite import Bench, Samples

from keylane_local.tools import tools_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Path]:
    """Yield a worktree of a commit, set up; it is removed afterwards."""
    git = ("git", "-C", str(ROOT), "worktree")
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        subprocess.run(["make", "--no-print-directory", "setup"], cwd=folder, check=True)
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=False)


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("old", help="a commit")
    options.add_argument("new", help="another")
    options.add_argument("benches", nargs="+", help="such as lookup, or 'ingest --records 1000000'")
    options.add_argument("--rounds", type=int, default=3)
    chosen = parse(options, arguments)
    os.environ["KEYLANE_TOOLS"] = str(tools_dir())
    benches = [Bench(script, tuple(rest)) for script, *rest in map(shlex.split, chosen.benches)]
    with tempfile.TemporaryDirectory(prefix="keylane-compare-") as name, contextlib.ExitStack() as stack:
        places = {
            side: stack.enter_context(checkout(commit, Path(name) / side))
            for side, commit in (("old", chosen.old), ("new", chosen.new))
        }
        samples = take_turns(places, benches, chosen.rounds)
    show(samples, chosen)
    document = {side: found.to_json() for side, found in samples.items()} | {"machine": machine()}
    write_json(RESULTS / "compare.json", document)


def take_turns(places: dict[str, Path], benches: Sequence[Bench], rounds: int) -> dict[str, Samples]:
    """Run every benchmark on both sides in each round."""
    samples = {side: Samples() for side in places}
    for number in range(rounds):
        for bench in benches:
            for side in sorted(places, reverse=bool(number % 2)):
                print(f"round {number + 1} of {rounds}: {bench.script}, {side}", file=sys.stderr, flush=True)
                for document in bench.run(places[side], places[side] / ".venv/bin/python"):
                    samples[side].add(document)
    return samples


def show(samples: dict[str, Samples], chosen: argparse.Namespace) -> None:
    """Print each figure that both sides have."""
    table = Table(title=f"{chosen.old} and {chosen.new}, {chosen.rounds} rounds", title_justify="left")
    for column in ("benchmark", "row", "figure"):
        table.add_column(column, no_wrap=True)
    for column in ("old", "new", "new / old", "least to most"):
        table.add_column(column, justify="right", no_wrap=True)
    for found in samples["new"].to_json():
        name = found["bench"], found["row"], found["figure"]
        old, new = (samples[side].of(*name) for side in ("old", "new"))
        if found["ratio"] or not old or not min(old):
            continue
        ratios = [after / before for before, after in zip(old, new, strict=False)]
        table.add_row(
            *name,
            *(f"{statistics.median(each):,.1f}" for each in (old, new)),
            f"{statistics.median(ratios):.3f}",
            f"{min(ratios):.3f} to {max(ratios):.3f}",
        )
    console = Console()
    console.width = max(console.width, 150)
    console.print(table)


if __name__ == "__main__":
    main()
