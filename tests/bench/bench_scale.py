"""Curves: how Keylane behaves as keys, partitions, stripes and connections grow.

- `keys`: p50 and p99 of one read by a warm query function beside bare sockets, and what Redis uses for a
  record beyond its key and value. One topic of one cluster grows from point to point. The cluster has no
  replicas and writes nothing to disk.
- `partitions`, `stripes`: records/s of a warm job that writes a backlog, as in bench_ingest.py, and the CPU
  of each part. Each point has a stack of its own.
- `lanes`: what a topic of up to 1,000 partitions costs: a start, a record's way at 200 and 2,000 records/s,
  an idle minute, a backlog. Each point has a stack of its own, and takes three minutes.
- `connections`: lookups by `keylane serve`, as in bench_serve.py, over 1 to 1,024 kept connections.

Each curve is reported in `.keylane-bench/scale-NAME.json` and drawn in `docs/images/scale-NAME.svg`; with
`--quick` or `--busy` it is drawn in `.keylane-bench`, because such figures are not for documents.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import bench_idle
import bench_ingest
import bench_read
import bench_serve
import peers
import stage
import state
from bare import Bare
from bench_freshness import KafkaWriter, PositionReader, through_keylane, writing
from curves import Panel, draw
from fill import TopicFiller
from harness import RESULTS, ROOT, ResultRow, add_settings, configured, latency, parse, percentile, report
from tests.support.builders import load_handler

from keylane.model.records import Layout
from keylane_spark.engine.polling import IDLE_AFTER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

IMAGES = ROOT / "docs/images"
FLIGHTS = Layout("flights", 9)
PARTITIONS = 9
"""Of the topics of the other curves."""
KEYS_SERVED = 20_000
WARM_CONNECTIONS = 32
SETTLE_S = 10
"""The most that a point waits for Redis' memory."""


@dataclass(frozen=True, slots=True)
class Size:
    """The points of all curves, and how much each of them measures."""

    keys: tuple[int, ...]
    partitions: tuple[int, ...]
    stripes: tuple[int, ...]
    lanes: tuple[tuple[int, int], ...]
    """Partitions and stripes."""
    connections: tuple[int, ...]
    reads: int
    samples: int
    warm_up: int
    records: int
    seconds: int


FULL = Size(
    keys=(10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000, 5_000_000),
    partitions=(1, 3, 9, 27),
    stripes=(1, 2, 4),
    lanes=((9, 1), (100, 1), (1_000, 1), (1_000, 4)),
    connections=tuple(2**power for power in range(11)),
    reads=2_000,
    samples=200,
    warm_up=1_500_000,
    records=1_500_000,
    seconds=5,
)
QUICK = Size(
    keys=(1_000, 3_000, 10_000),
    partitions=(1, 3),
    stripes=(1, 2),
    lanes=((3, 1), (3, 2)),
    connections=(1, 32, 1_024),
    reads=100,
    samples=8,
    warm_up=20_000,
    records=20_000,
    seconds=1,
)


@dataclass(slots=True)
class Run:
    """What was chosen, and when to stop: points that do not begin in time are left out."""

    size: Size
    images: Path
    chosen: argparse.Namespace
    until_s: float

    def points(self, what: str, values: Sequence[int]) -> Iterator[int]:
        """Yield the points of a curve, and print which one is measured."""
        for number, value in enumerate(values):
            left_s = self.until_s - time.monotonic()
            if left_s < 0:
                print(
                    f"the time is up, left out: {what} {', '.join(f'{each:,}' for each in values[number:])}"
                )
                return
            left = f"{left_s / 60:.1f} minutes left for new points"
            print(f"{what} {value:,}: point {number + 1} of {len(values)}, {left}", flush=True)
            yield value

    def finish(self, curve: Curve, points: Mapping[int, Mapping[str, float]]) -> None:
        """Report the points beside the first of them, and draw them."""
        if not points:
            return
        rows = [ResultRow(f"{curve.what}: {value:,}", figures) for value, figures in points.items()]
        settings = {**asdict(self.size), "set": self.chosen.set}
        report(f"scale-{curve.name}", curve.unit, rows, reference=rows[0].name, settings=settings)
        panels = [
            Panel(
                title,
                curve.what,
                {name: [(value, figures[name]) for value, figures in points.items()] for name in names},
            )
            for title, names in curve.panels.items()
        ]
        path = self.images / f"scale-{curve.name}.svg"
        path.write_text(draw(curve.title, panels), encoding="utf-8")
        print(f"drawn: {path}", flush=True)


@dataclass(frozen=True, slots=True)
class Curve:
    """How a curve is reported. `panels`: figures by the title of their panel."""

    name: str
    title: str
    what: str
    unit: str
    panels: Mapping[str, Sequence[str]]


READS = Curve(
    "lookup",
    "One read by number of keys",
    "keys",
    "us",
    {"p50, µs": ("function p50", "bare p50"), "p99, µs": ("function p99", "bare p99")},
)
MEMORY = Curve(
    "memory",
    "Redis memory of a record beyond its key and value",
    "keys",
    "B a record",
    {"bytes a record": ("beyond key and value",)},
)
CPU_PARTS = ("JVM", "Python", "Redis", "Kafka")
INGEST_PANELS = {"records/s": ("records/s",), "CPU, µs a record": CPU_PARTS}
INGEST_UNIT = "records/s; CPU in us a record"
BY_PARTITIONS = Curve(
    "partitions", "Ingest by number of partitions", "partitions", INGEST_UNIT, INGEST_PANELS
)
BY_STRIPES = Curve(
    "stripes", f"Ingest by stripes of {PARTITIONS} partitions", "stripes", INGEST_UNIT, INGEST_PANELS
)
BY_LANES = Curve(
    "lanes",
    "A job by number of lanes",
    "lanes",
    "s; ms; % of one core; us a record",
    {
        "ms until a record is read": ("p50 at 200/s", "p50 at 2,000/s"),
        "% of one core, idle": ("idle Python", "idle JVM", "idle Kafka"),
        "CPU, µs a record": ("Python", "Redis"),
    },
)
BY_CONNECTIONS = Curve(
    "connections",
    "Lookups by one process of the standing server",
    "connections",
    "/s, ms",
    {"lookups/s": ("per_s",), "ms": ("p50", "p99")},
)


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", nargs="+", choices=CURVES, default=list(CURVES), help="of these curves")
    options.add_argument("--quick", action="store_true", help="few and small points, to see that it works")
    options.add_argument("--minutes", type=float, default=12, help="no point begins after so long")
    options.add_argument("--value-bytes", type=int, default=184)
    add_settings(options)
    chosen = parse(options, arguments)
    if "connections" in chosen.only:
        peers.require_wrk()
    RESULTS.mkdir(exist_ok=True)
    images = RESULTS if chosen.quick or chosen.busy else IMAGES
    until_s = time.monotonic() + chosen.minutes * 60
    run = Run(QUICK if chosen.quick else FULL, images, chosen, until_s)
    for name, measure in CURVES.items():
        if name in chosen.only:
            measure(run)


def by_keys(run: Run) -> None:
    """Measure reads and memory while a topic grows."""
    reads: dict[int, dict[str, float]] = {}
    memory: dict[int, dict[str, float]] = {}
    size, kept = run.chosen.value_bytes, 0
    stored = len(bench_read.key_of(0)) + len(state.value_of(0, size))
    with stage.cluster(replicas=0, appendonly=False) as nodes, TopicFiller(nodes, FLIGHTS) as filler:
        os.environ.update(state.environment(nodes))
        function, bare, empty_bytes = (
            load_handler("query"),
            Bare(nodes),
            used_bytes(nodes),
        )
        for count in run.points("keys", run.size.keys):
            new = range(kept, count)
            filler.add((bench_read.key_of(number), state.value_of(number, size)) for number in new)
            kept = count
            memory[count] = {"beyond key and value": (used_bytes(nodes) - empty_bytes) / count - stored}
            reads[count] = read(function, bare, count, run.size.reads)
        bare.close()
    run.finish(READS, reads)
    run.finish(MEMORY, memory)


def read(function: ModuleType, bare: Bare, keys: int, reads: int) -> dict[str, float]:
    """Return the microseconds of single reads, by the function and by bare sockets in turns."""
    kind = bench_read.kinds_of(keys)[0]
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):  # the function's metrics
        prepared = bench_read.prepared(function, bare, kind, reads + bench_read.WARM_UP)
        taken = bench_read.measure(prepared, function, kind)
    ways = {"function": bench_read.FUNCTION, "bare": bench_read.BARE}
    return {
        f"{name} p{percent}": percentile(taken[way][bench_read.WARM_UP :], percent)
        for name, way in ways.items()
        for percent in (50, 99)
    }


def used_bytes(nodes: str) -> int:
    """Return what the data of all nodes use, once that stays the same: tables grow step by step."""
    until_s, before, used = time.monotonic() + SETTLE_S, -1, 0
    with state.node_clients(nodes) as clients:
        while before != used and time.monotonic() < until_s:
            before = used
            time.sleep(0.5)
            used = sum(data_bytes(client.info("memory")) for client in clients)
    return used


def data_bytes(memory: Mapping[str, int]) -> int:
    """Return what a node uses besides the buffers of its clients, by its `INFO memory`."""
    return memory["used_memory"] - memory["mem_clients_normal"]


def by_partitions(run: Run) -> None:
    points = {count: ingest(run, count, 1) for count in run.points("partitions", run.size.partitions)}
    run.finish(BY_PARTITIONS, points)


def by_stripes(run: Run) -> None:
    points = {count: ingest(run, PARTITIONS, count) for count in run.points("stripes", run.size.stripes)}
    run.finish(BY_STRIPES, points)


def ingest(run: Run, partitions: int, stripes: int) -> dict[str, float]:
    """Return what a warm job with such a topic takes for a backlog of new keys."""
    size, value = run.size, bench_ingest.value_of(run.chosen.value_bytes - len(bench_ingest.key_of(0)))
    config = configured(bench_ingest.CONFIG.format(partitions=partitions, stripes=stripes), run.chosen)
    with bench_ingest.running(config) as (stack, lanes):
        bench_ingest.job_seconds(stack, lanes, 0, size.warm_up, value)
        took_s, cpu_s = bench_ingest.job_seconds(stack, lanes, size.warm_up, size.records, value)
    cpu = {part: cpu_s[part] / size.records * 1e6 for part in CPU_PARTS}
    return {"records/s": size.records / took_s, **cpu}


def by_lanes(run: Run) -> None:
    sizes = {partitions * stripes: (partitions, stripes) for partitions, stripes in run.size.lanes}
    points = {}
    try:
        for count in run.points("lanes", list(sizes)):
            points[count] = lanes(run, *sizes[count])
    finally:
        run.finish(BY_LANES, points)


def lanes(run: Run, partitions: int, stripes: int) -> dict[str, float]:
    """Return what a topic with so many lanes costs: at rest, at two rates, and with a backlog."""
    topic, size = bench_ingest.TOPIC, run.size
    config = configured(bench_ingest.CONFIG.format(partitions=partitions, stripes=stripes), run.chosen)
    figures = {}
    with bench_ingest.running(config) as (stack, watched):
        stack.job.stop()
        began_s = time.monotonic()
        stack.job.start()
        stack.job.wait_ready()
        figures["start s"] = time.monotonic() - began_s
        writer, reader = KafkaWriter(stack.kafka_bootstrap), PositionReader(stack, topic)
        for rate in (200, 2_000):
            with writing(stack.kafka_bootstrap, topic, rate):
                through_keylane(writer, reader, size.samples // 4, f"warm-up-{rate}")
                taken = latency(through_keylane(writer, reader, size.samples, f"at-{rate}"))
            figures |= {f"{name} at {rate:,}/s": taken[name] for name in ("p50", "p99")}
        idle = bench_idle.shares(stack, IDLE_AFTER_S + bench_idle.SETTLE_S, 15 if size.seconds > 1 else 2)
        figures |= {f"idle {part}": share for part, share in idle.items()}
        value = bench_ingest.value_of(run.chosen.value_bytes - len(bench_ingest.key_of(0)))
        bench_ingest.job_seconds(stack, watched, 0, size.warm_up, value)
        took_s, cpu_s = bench_ingest.job_seconds(stack, watched, size.warm_up, size.records, value)
    cpu = {part: cpu_s[part] / size.records * 1e6 for part in CPU_PARTS}
    return figures | {"records/s": size.records / took_s} | cpu


def by_connections(run: Run) -> None:
    allow_open_files()
    points = {}
    with stage.cluster(replicas=0) as nodes:
        state.fill(nodes, KEYS_SERVED, run.chosen.value_bytes)
        with stage.standing_server(state.environment(nodes), 1) as served:
            url = served.url
            script = bench_serve.lookup_script(KEYS_SERVED)
            peers.load(url, script, WARM_CONNECTIONS, bench_serve.WARM_UP_S)
            for count in run.points("connections", run.size.connections):
                points[count] = peers.load(url, script, count, run.size.seconds)
    run.finish(BY_CONNECTIONS, points)


def allow_open_files() -> None:
    """Raise the limit of this process and its children as far as the system allows: a socket is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


CURVES: dict[str, Callable[[Run], None]] = {
    "keys": by_keys,
    "partitions": by_partitions,
    "stripes": by_stripes,
    "lanes": by_lanes,
    "connections": by_connections,
}

if __name__ == "__main__":
    main()
