"""What all benchmarks share: statistics, facts about the machine, tables for people and JSON for programs.

A benchmark measures its subject and a reference in one run. `report` prints both with their ratio, and writes
`.keylane-bench/NAME.json` in the repository's folder.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import statistics
import subprocess
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import quiet
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".keylane-bench"
PACKAGES = ("redis", "hiredis", "aws-lambda-powertools", "confluent-kafka", "pyarrow", "numpy", "pyspark")
MIN_WIDTH = 110  # for output to a file or a pipe
_STOLEN_S = getattr(psutil.cpu_times(), "steal", 0.0)


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


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile. Raises ValueError without samples."""
    if not samples:
        raise ValueError("there are no samples")
    rank = math.ceil(percent / 100 * len(samples))
    return sorted(samples)[max(rank, 1) - 1]


def latency(samples: Sequence[float]) -> dict[str, float]:
    """Return p50, p90, p99 and max of many samples."""
    ordered = sorted(samples)
    return {f"p{percent}": percentile(ordered, percent) for percent in (50, 90, 99)} | {"max": ordered[-1]}


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
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{bench}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def machine() -> dict[str, Any]:
    """Return facts about this run: cores, memory, versions, commit, load of other processes."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _output("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "stolen_s": round(getattr(psutil.cpu_times(), "steal", 0.0) - _STOLEN_S, 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "redis_server": _first_version(_output("redis-server", "--version")),
        "packages": {name: installed for name in PACKAGES if (installed := _installed(name))},
    }


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


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _first_version(text: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+", text)
    return found[0] if found else ""


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
