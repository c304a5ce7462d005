"""Pictures of a soak: memory, descriptors and threads, Redis, and speed over the minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.curves import Panel, draw
from tests.soak.plan import EXPIRING, GROWING, STEADY
from tests.soak.sampler import (
    DAEMON,
    DRIVER,
    FDS,
    HEAP_LIVE,
    KAFKA,
    KEYS,
    RSS,
    SPARK,
    THREADS,
    USED_MEMORY,
    WORKER,
)

if TYPE_CHECKING:
    from tests.soak.slopes import Points

MIB = 2**20
MOST_POINTS = 120


def draw_all(series: dict[str, dict[str, Points]], minutes: list[dict[str, Any]]) -> dict[str, str]:
    """Return the pictures by name."""
    labels = {KAFKA: "Kafka", SPARK: "JVM", DRIVER: "driver", WORKER: "server"}

    def panel(title: str, wanted: dict[str, tuple[str, str]], scale: float = 1) -> Panel:
        lines = {
            label: _thinned(series[name][figure], scale)
            for label, (name, figure) in wanted.items()
            if figure in series.get(name, {})
        }
        return Panel(title, "minutes", lines, over_time=True)

    def each_of(figure: str) -> dict[str, tuple[str, str]]:
        return {label: (name, figure) for name, label in labels.items()}

    jvm = {"Kafka": (KAFKA, RSS), "job's JVM": (SPARK, RSS), "its live heap": (SPARK, HEAP_LIVE)}
    python = {"driver": (DRIVER, RSS), "daemon": (DAEMON, RSS), "server": (WORKER, RSS)}
    nodes = [name for name in series if name.startswith("redis ")]
    primaries, replicas = nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]
    redis = {
        "first three": _sum(series, primaries, USED_MEMORY, 1 / MIB),
        "their replicas": _sum(series, replicas, USED_MEMORY, 1 / MIB),
    }
    keys = {"first three": _sum(series, primaries, KEYS, 1e-3)}
    return {
        "memory": draw(
            "Resident memory over the soak",
            [panel("JVMs, MiB", jvm, 1 / MIB), panel("Python, MiB", python, 1 / MIB)],
        ),
        "handles": draw(
            "File descriptors and threads over the soak",
            [panel("file descriptors", each_of(FDS)), panel("threads", each_of(THREADS))],
        ),
        "redis": draw(
            "Redis over the soak",
            [
                Panel("used_memory of three nodes, MiB", "minutes", redis, over_time=True),
                Panel("keys, thousands", "minutes", keys, over_time=True),
            ],
        ),
        "speed": draw(
            "Latency and age over the soak",
            [
                _of_minutes("p50 of a request, ms", minutes, "requests", ("read", "put", "page")),
                _of_minutes("p50 of ages, ms", minutes, "ages_ms", (STEADY, GROWING, EXPIRING)),
            ],
        ),
    }


def _thinned(points: Points, scale: float) -> list[tuple[float, float]]:
    step = max(1, len(points) // MOST_POINTS)
    return [(at / 60, value * scale) for at, value in points[::step]]


def _sum(series: dict[str, dict[str, Points]], names: list[str], figure: str, scale: float) -> Points:
    """Return the sum over nodes, which are sampled at the same times."""
    columns = [dict(series[name][figure]) for name in names]
    times = [at for at in columns[0] if all(at in column for column in columns)]
    return _thinned([(at, sum(column[at] for column in columns)) for at in times], scale)


def _of_minutes(title: str, minutes: list[dict[str, Any]], member: str, names: tuple[str, ...]) -> Panel:
    lines = {
        name: [(each["minute"], each[member][name]["p50"]) for each in minutes if name in each[member]]
        for name in names
    }
    return Panel(title, "minutes", {name: points for name, points in lines.items() if points}, over_time=True)
