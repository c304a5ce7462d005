"""Slopes and verdicts of a soak, from the files that it wrote."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from tests.soak.pictures import draw_all
from tests.soak.plan import EXPIRING, GROWING, STEADY, VALUE_BYTES
from tests.soak.run import MINUTES, OUTCOME, SAMPLES
from tests.soak.sampler import (
    CLIENTS,
    CONNECTIONS,
    DISK,
    FDS,
    FILES,
    FORKS,
    HEAP_LIVE,
    JVMS,
    KEYS,
    LOAD,
    METASPACE,
    NATIVE,
    RECORDS,
    RSS,
    THREADS,
    USED_MEMORY,
    WORKER,
    read_series,
)
from tests.soak.slopes import EXPLAINED, GROWS, LEAST_POINTS, Limits, Trend, judge

from keylane_build.sizing.workload import Workload, bytes_per_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.soak.slopes import Points

MIB = 2**20
LIMITS = {
    RSS: Limits(0.02, 2 * MIB),
    HEAP_LIVE: Limits(0.05, 2 * MIB),
    NATIVE: Limits(0.02, 4 * MIB),
    METASPACE: Limits(0.02, 1 * MIB),
    FDS: Limits(0.02, 3),
    THREADS: Limits(0.02, 3),
    CONNECTIONS: Limits(0.02, 3),
    CLIENTS: Limits(0.02, 3),
    USED_MEMORY: Limits(0.02, 1 * MIB),
    KEYS: Limits(0.02, 50),
    DISK: Limits(0.05, 1 * MIB),
    FILES: Limits(0.05, 20),
    "age p50, ms": Limits(0.5, 20),
    "p50, ms": Limits(0.5, 5),
}
"""What a figure may gain in the judged time. Ages and latencies depend on what else the machine does."""
CONNECTION_BYTES = 48 * 1024
"""Of the server's memory. Measured: 250 requests at once, each over a connection of its own, take 12 MiB."""
BY_LOAD = {"kafka's log", "Redis' files", "logs"}
"""Folders that grow with every write or batch."""
GROWING_KEY = Workload(
    0, 0, 0, key_bytes=10, value_bytes=VALUE_BYTES, topic_bytes=len(GROWING)
)  # of a key in Redis


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one process, server or topic. `verdict` is the trend's, or what explains it."""

    name: str
    figure: str
    trend: Trend
    verdict: str


def report(folder: Path, images: Path, prefix: str = "soak-") -> int:
    """Print the table, draw the pictures into `images`, and return 1 for a fault or unexplained growth."""
    outcome = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    series = read_series(folder / SAMPLES)
    minutes = [json.loads(line) for line in (folder / MINUTES).read_text(encoding="utf-8").splitlines()]
    rows = [*judge_samples(series), *judge_minutes(minutes, outcome["machine"]["cores"])]
    images.mkdir(parents=True, exist_ok=True)
    for name, picture in draw_all(series, minutes).items():
        (images / f"{prefix}{name}.svg").write_text(picture, encoding="utf-8")
    document = {
        **outcome,
        "rows": [asdict(row) | {"trend": row.trend._asdict()} for row in rows],
        "minutes": minutes,
        "samples": series,
    }
    (folder / "soak.json").write_text(json.dumps(document), encoding="utf-8")
    _print(rows, outcome)
    return 1 if outcome["fault_count"] or any(row.verdict == GROWS for row in rows) else 0


def judge_samples(series: dict[str, dict[str, Points]]) -> list[Row]:
    """Return a row for each figure that has a limit; what nothing explains may grow within it only."""
    rows = []
    for name, figures in series.items():
        if name in (FORKS, LOAD):
            continue
        for figure, points in figures.items():
            if figure in LIMITS and points[-1][0] > points[0][0] and len(points) >= LEAST_POINTS:
                rows.append(_row(name, figure, points, _explanation(name, figure, series)))
    return [_by_parts(row, rows) for row in rows]


def _row(name: str, figure: str, points: Points, explanation: Points | None = None) -> Row:
    trend = judge(points, LIMITS[figure], explanation)
    grows_by_load = name in BY_LOAD and trend.verdict == GROWS
    return Row(name, figure, trend, EXPLAINED if grows_by_load else trend.verdict)


def _explanation(name: str, figure: str, series: dict[str, dict[str, Points]]) -> Points | None:
    """Return what a figure must be, up to a constant: memory by keys, keys and connections by the load."""
    figures = series[name]
    found: Points | None = None
    if name == WORKER:
        if figure in (CONNECTIONS, FDS):
            found = series.get(LOAD, {}).get(CONNECTIONS)
        elif figure == RSS:
            found = _times(figures.get(CONNECTIONS, ()), CONNECTION_BYTES)
    elif name.startswith("redis "):
        shards = sum(other.startswith("redis ") for other in series) / 2
        if figure == KEYS:
            found = _times(series[f"topic {GROWING}"][RECORDS], 1 / shards)
        elif figure == USED_MEMORY:
            found = _times(figures[KEYS], bytes_per_key(GROWING_KEY))
        elif figure == RSS:
            found = figures[USED_MEMORY]
    return found or None


def _times(points: Points, factor: float) -> Points:
    return [(at, value * factor) for at, value in points]


def _by_parts(row: Row, rows: list[Row]) -> Row:
    """A JVM fills its heap up to the limit: what it has of the system grows only if one of its parts does."""
    if row.name not in JVMS or row.figure != RSS or row.verdict != GROWS:
        return row
    parts = [each for each in rows if each.name == row.name and each.figure in (HEAP_LIVE, NATIVE, METASPACE)]
    is_explained = len(parts) == 3 and all(each.verdict != GROWS for each in parts)
    return Row(row.name, row.figure, row.trend, EXPLAINED) if is_explained else row


def judge_minutes(minutes: list[dict[str, Any]], cores: int) -> list[Row]:
    """Return a row for the age of each topic and view, the latency of each kind of request, and counts."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for each in minutes:
        at_s = each["minute"] * 60
        for name, ages in each["ages_ms"].items():
            found.setdefault((name, "age p50, ms"), []).append((at_s, ages["p50"]))
        for kind, figures in each["requests"].items():
            found.setdefault((kind, "p50, ms"), []).append((at_s, figures["p50"]))
        for topic in (STEADY, EXPIRING):
            if topic in each["keys"]:
                found.setdefault((topic, KEYS), []).append((at_s, each["keys"][topic]))
    rows = [_row(*names, points) for names, points in found.items() if len(points) > 2]
    shares = {each["minute"] * 60: max(1.0, each["load_1min"] / cores) for each in minutes}
    return [_by_machine(row, found[row.name, row.figure], shares) for row in rows]


def _by_machine(row: Row, points: Points, shares: dict[float, float]) -> Row:
    """What takes longer only because more processes share the cores is explained by that."""
    if row.verdict != GROWS or row.figure == KEYS:
        return row
    alone = judge([(at_s, value / shares[at_s]) for at_s, value in points], LIMITS[row.figure])
    return row if alone.verdict == GROWS else Row(row.name, row.figure, row.trend, EXPLAINED)


def _print(rows: list[Row], outcome: dict[str, Any]) -> None:
    console = Console()
    console.width = max(console.width, 130)
    table = Table(title="After the warm-up, by the line of Theil and Sen", title_justify="left")
    for name in ("of", "figure"):
        table.add_column(name, no_wrap=True)
    for name in ("first", "last", "an hour", "noise"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        show = _shown(row.figure)
        trend = row.trend
        cells = (show(trend.first), show(trend.last), f"{show(trend.slope_per_h)}", show(trend.noise))
        style = "bold red" if row.verdict == GROWS else None
        table.add_row(row.name, row.figure.replace("_bytes", ", MiB"), *cells, row.verdict, style=style)
    console.print(table)
    facts = {name: value for name, value in outcome.items() if name not in ("faults", "fault_count")}
    console.print_json(json.dumps(facts))
    for fault in outcome["faults"]:
        console.print(fault, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{outcome['fault_count']} faults", highlight=False)


def _shown(figure: str) -> Callable[[float], str]:
    if figure.endswith("_bytes"):
        return lambda value: f"{value / MIB:,.2f}"
    return lambda value: f"{value:,.1f}"
