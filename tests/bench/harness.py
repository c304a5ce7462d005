"""What all benchmarks share: statistics, facts about the machine, tables for people and JSON for programs.

A benchmark measures its subject and a reference in one run. `report` prints both with their ratio, and writes
`.keylane-bench/NAME.json` in the repository's folder.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import quiet
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parents[2]))  # scripts have this folder alone
from tests.support.figures import (  # noqa: F401 (other benchmarks have them from here)
    RESULTS,
    ROOT,
    machine,
    percentile,
    percentiles,
    write_json,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    Case = TypeVar("Case")

MIN_WIDTH = 110  # for output to a file or a pipe


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One measured subject, with its figures by name, such as {"p50": 61.2, "p99": 120.0}."""

    name: str
    figures: Mapping[str, float]


def parse(options: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a benchmark's arguments; exit if the machine is busy, unless one of them is `--busy`."""
    options.add_argument("--busy", action="store_true", help="measure though other processes compute")
    chosen = options.parse_args(arguments)
    if chosen.busy:
        os.environ[quiet.BUSY] = "1"  # for those that this one runs, too
    quiet.require()
    return chosen


def add_settings(options: argparse.ArgumentParser) -> None:
    """Add `--set LINE` for benchmarks that run the job; `configured` reads it."""
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="LINE",
        help="of keylane.toml, as 'job.reader = \"direct\"'",
    )


def configured(config: str, chosen: argparse.Namespace) -> str:
    """Return a keylane.toml with the lines of `--set`."""
    return "".join(f"{line}\n" for line in chosen.set) + config


def latency(samples: Sequence[float]) -> dict[str, float]:
    """Return p50, p90, p99 and max of many samples."""
    return percentiles(samples, 50, 90, 99)


def in_turns(ways: Mapping[str, Callable[[Case], float]], cases: Sequence[Case]) -> dict[str, list[float]]:
    """Return what each way returns for all cases, in an order of its own; the order of the ways rotates."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    turns = [(name, way, random.sample(cases, len(cases))) for name, way in ways.items()]
    for number in range(len(cases)):
        for name, way, order in turns:
            samples[name].append(way(order[number]))
        turns = [*turns[1:], turns[0]]
    return samples


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Return min, median and max of a few samples."""
    ordered = sorted(samples)
    return {"min": ordered[0], "median": statistics.median(ordered), "max": ordered[-1]}


def report(
    bench: str,
    unit: str,
    rows: Sequence[ResultRow],
    *,
    reference: str,
    settings: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    aim: str = "",
) -> Path:
    """Print rows and their ratio to the row named `reference`; return the path of the JSON file with them.

    `facts` are further findings, such as {"longest gap, s": 0.4}.
    """
    base = next(row.figures for row in rows if row.name == reference)
    ratios = [
        {name: row.figures[name] / base[name] for name in row.figures if base.get(name)} for row in rows
    ]
    document = {
        "bench": bench,
        "unit": unit,
        "reference": reference,
        "aim": aim,
        "rows": [
            {"name": row.name, "figures": dict(row.figures), "ratio": ratio}
            for row, ratio in zip(rows, ratios, strict=True)
        ],
        "facts": dict(facts or {}),
        "settings": dict(settings or {}),
        "machine": machine(),
    }
    _print(document)
    path = RESULTS / f"{bench}.json"
    write_json(path, document)
    return path


def _print(document: Mapping[str, Any]) -> None:
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    names = list(dict.fromkeys(name for row in document["rows"] for name in row["figures"]))
    table = Table(title=f"{document['bench']} ({document['unit']})", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in document["rows"]:
        cells = [_cell(row["figures"].get(name), row["ratio"].get(name)) for name in names]
        table.add_row(row["name"], *cells)
    console.print(table)
    for name, fact in document["facts"].items():
        console.print(f"{name}: {fact}", highlight=False)
    host = document["machine"]
    console.print(
        f"ratios beside {document['reference']!r}; {host['cores']} cores ({host['processor']}),"
        f" {host['memory_gib']} GiB, load {host['load_1min']}, Python {host['python']}, {host['date']}",
        highlight=False,
    )
    if document["aim"]:
        console.print(f"aim: {document['aim']}", highlight=False)


def _cell(figure: float | None, ratio: float | None) -> str:
    if figure is None:
        return ""
    digits = 0 if figure >= 1000 else 1
    return f"{figure:,.{digits}f}" + ("" if ratio is None else f" {ratio:6.2f}x")
