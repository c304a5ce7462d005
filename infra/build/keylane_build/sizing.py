"""How large the parts have to be: `python -m keylane_build.sizing --writes-per-s 1e3 --reads-per-s 1e4 ...`.

docs/operate/sizing.md explains it. What was measured here, and what is assumed, is told apart below.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING

from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Measured: docs/benchmarks.md, records of 14 + 170 bytes on an AMD EPYC core.
JOB_US_PER_RECORD = 3.8
"""CPU of the job for a record: 2.4 to 2.9 in Spark's JVM, 0.85 in Python, and its share of the driver."""
REDIS_US_PER_WRITE = 2.4
"""CPU of a primary for a record: the library's call, MSET, memory."""
BYTES_PER_KEY, BYTES_PER_INDEXED_KEY = 94, 96
"""What Redis 7.0 takes for a key beside the bytes of its name, envelope and value; and more in an index.

A million keys of 14 bytes, names of 31, values and envelopes of 188, in a node in cluster mode: 312 bytes a
key, 422 with an index.
"""
NAME_BYTES, ENVELOPE_BYTES = 20, 18
"""Of a record's name in Redis, beside topic and key; and before its value."""
# Assumed.
REDIS_US_PER_READ = 8.0
"""CPU of a primary for one MGET of a value and a watermark, network and all: 100,000/s and more a core."""
MOST_BUSY = 0.5
"""Of a core, so that failovers, heartbeats and chunks cost readers nothing."""
BROKER_BYTES_PER_S = 30e6
"""Written to a broker, its replicas not counted: kafka.m7g.large, half of what AWS says it takes."""
PARTITION_RECORDS_PER_S = 50_000
"""Of one partition's one task: a fifth of what a core does."""
FUNCTION_MS = 3.0
"""That a warm environment has for one request, Lambda's own part included."""
FUNCTION_GB = 1.0
QUOTA_PER_S = 10
"""Requests a second that Lambda allows for each environment of an account's quota, however short they are."""
MEMORY_USED = 0.75
"""Of a node: the rest is reserved for its copies and failovers (reserved-memory-percent)."""
REBUILD = 2.0
"""A topic whose layout changes is in memory twice."""
SECONDS_A_MONTH = 730 * 3600
MOST_LANES, MOST_NODES = 16_384, 500
LEAST_SHARDS = 3
LANES_PER_SHARD = 4
"""So many at least, so that shards can be doubled twice without a new layout."""

NODES_GIB = {
    "cache.r7g.large": 13.07,
    "cache.r7g.xlarge": 26.32,
    "cache.r7g.2xlarge": 52.82,
    "cache.r7g.4xlarge": 105.81,
    "cache.r7g.8xlarge": 209.55,
    "cache.r7g.16xlarge": 419.09,
}
PRICES = {
    "cache, GiB an hour": 0.0134,
    "broker, an hour": 0.204,
    "broker's disk, GB a month": 0.10,
    "core of Fargate, an hour, with 4 GiB": 0.0583,
    "requests of a REST API, a million": 1.51,
    "requests of Lambda, a million": 0.20,
    "GB-second of Lambda": 0.0000133334,
}
"""US dollars, us-east-1, on demand, of large amounts, in November 2026 as we know them: look them up."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked for. `keys_per_read`, `records_per_write`: of one request; `retention_h`: Kafka's."""

    writes_per_s: float
    reads_per_s: float
    keys: float
    key_bytes: int = 20
    value_bytes: int = 200
    topic_bytes: int = 10
    keys_per_read: int = 1
    records_per_write: int = 1
    indexed: bool = False
    retention_h: float = 168
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Sizing:
    """What it takes; `bound` names what decided on the number of shards."""

    partitions: int
    stripes: int
    shards: int
    bound: str
    node: str
    state_gib: float
    job_cores: int
    brokers: int
    environments: int
    requests_per_s: float
    month: dict[str, float]


def plan(load: Workload) -> Sizing:
    """Size every part. Raises ValueError where no cluster holds it."""
    state_bytes = load.keys * bytes_per_key(load)
    needs = {
        "memory": state_bytes * REBUILD / MEMORY_USED / (_largest() * 2**30),
        "writes": load.writes_per_s * REDIS_US_PER_WRITE / 1e6 / MOST_BUSY,
        "reads": load.reads_per_s * REDIS_US_PER_READ / 1e6 / MOST_BUSY,
    }
    bound = max(needs, key=lambda name: needs[name])
    shards = max(LEAST_SHARDS, math.ceil(needs[bound]))
    bound = bound if shards > LEAST_SHARDS else "the least"
    nodes = shards * (1 + load.replicas)
    if nodes > MOST_NODES:
        raise ValueError(
            f"{nodes} nodes for {bound}, where a cluster has {MOST_NODES} at most: split the topics"
        )
    partitions = max(math.ceil(load.writes_per_s / PARTITION_RECORDS_PER_S), min(shards, 1000), 1)
    stripes = min(math.ceil(shards * LANES_PER_SHARD / partitions), MOST_LANES // partitions)
    node = _node_for(state_bytes * REBUILD / MEMORY_USED / shards / 2**30)
    ingress = load.writes_per_s * (load.key_bytes + load.value_bytes)
    requests_per_s = load.reads_per_s / load.keys_per_read + load.writes_per_s / load.records_per_write
    brokers = max(3, 3 * math.ceil(ingress / BROKER_BYTES_PER_S / 3))
    job_cores = max(2, math.ceil(load.writes_per_s * JOB_US_PER_RECORD / 1e6 / MOST_BUSY))
    disk_gb = ingress * load.retention_h * 3600 * 3 / 1e9
    month = {
        "cache": nodes * NODES_GIB[node] * PRICES["cache, GiB an hour"] * 730,
        "brokers": brokers * PRICES["broker, an hour"] * 730,
        "brokers' disks": disk_gb * PRICES["broker's disk, GB a month"],
        "job": job_cores * PRICES["core of Fargate, an hour, with 4 GiB"] * 730,
        "API Gateway": requests_per_s * SECONDS_A_MONTH / 1e6 * PRICES["requests of a REST API, a million"],
        "Lambda": requests_per_s
        * SECONDS_A_MONTH
        * (
            PRICES["requests of Lambda, a million"] / 1e6
            + FUNCTION_MS / 1e3 * FUNCTION_GB * PRICES["GB-second of Lambda"]
        ),
    }
    environments = math.ceil(requests_per_s * FUNCTION_MS / 1e3)
    return Sizing(
        partitions,
        stripes,
        shards,
        bound,
        node,
        state_bytes / 2**30,
        job_cores,
        brokers,
        environments,
        requests_per_s,
        month,
    )


def bytes_per_key(load: Workload) -> float:
    """What one key takes of a primary's memory."""
    name = NAME_BYTES + load.topic_bytes + load.key_bytes
    plain = BYTES_PER_KEY + name + ENVELOPE_BYTES + load.value_bytes
    return plain + (BYTES_PER_INDEXED_KEY + load.key_bytes if load.indexed else 0)


def _largest() -> float:
    return max(NODES_GIB.values())


def _node_for(gib: float) -> str:
    return next(name for name, size in NODES_GIB.items() if size >= gib)


EXAMPLES = {
    "a start": Workload(200, 2_000, 1e6),
    "a large shop": Workload(20_000, 100_000, 2e8, indexed=True),
    "the internet, key by key": Workload(1_000_000, 10_000_000, 1e10, retention_h=24),
    "the internet, 100 at a time": Workload(
        1_000_000, 10_000_000, 1e10, retention_h=24, keys_per_read=100, records_per_write=100
    ),
}


def table(examples: dict[str, Workload] | None = None) -> Iterator[str]:
    """Markdown of the examples."""
    plans = {name: (load, plan(load)) for name, load in (examples or EXAMPLES).items()}
    yield f"| | {' | '.join(plans)} |"
    yield f"|---|{'---|' * len(plans)}"
    for title, shown in _ROWS.items():
        yield f"| {title} | {' | '.join(shown(*each) for each in plans.values())} |"


_ROWS: dict[str, Callable[[Workload, Sizing], str]] = {
    "records/s": lambda load, _: f"{load.writes_per_s:,.0f}",
    "keys read/s": lambda load, _: f"{load.reads_per_s:,.0f}",
    "keys": lambda load, _: f"{load.keys:,.0f}",
    "**state in memory, GiB**": lambda _, made: f"{made.state_gib:,.1f}",
    "partitions x stripes": lambda _, made: f"{made.partitions} x {made.stripes}",
    "shards": lambda _, made: f"{made.shards} ({made.bound})",
    "their nodes": lambda _, made: made.node,
    "job's cores": lambda _, made: f"{made.job_cores}",
    "brokers": lambda _, made: f"{made.brokers}",
    "requests/s": lambda _, made: f"{made.requests_per_s:,.0f}",
    "environments of Lambda": lambda _, made: f"{made.environments:,}",
    "Lambda's concurrency quota": lambda _, made: f"{math.ceil(made.requests_per_s / QUOTA_PER_S):,}",
    "a month, US dollars": lambda _, made: f"{sum(made.month.values()):,.0f}",
    "of it API Gateway and Lambda": lambda _, made: (
        f"{made.month['API Gateway'] + made.month['Lambda']:,.0f}"
    ),
}


BEGIN, END = "<!-- made by `make sizing` -->", "<!-- end -->"


def inserted(page: str) -> str:
    """The page with the table of the examples. Raises ValueError where it lacks the marks."""
    before, begun, rest = page.partition(f"{BEGIN}\n")
    _, ended, after = rest.partition(f"{END}\n")
    if not begun or not ended:
        raise ValueError(f"the page has no lines {BEGIN} and {END}")
    rows = "".join(f"{row}\n" for row in table())
    return f"{before}{begun}{rows}{END}\n{after}"


def main(arguments: list[str] | None = None) -> None:
    """Size what the command line asks for, or write the examples into docs/operate/sizing.md."""
    parser = argparse.ArgumentParser(
        prog="keylane_build.sizing", description="How large the parts have to be."
    )
    parser.add_argument("--document", action="store_true", help="write the examples into the page")
    for each in fields(Workload):
        name = "--" + each.name.replace("_", "-")
        if each.type == "bool":
            parser.add_argument(name, action="store_true")
        else:
            default = None if each.default is MISSING else each.default
            parser.add_argument(name, type=int if each.type == "int" else float, default=default)
    given = vars(parser.parse_args(arguments))
    if given.pop("document"):
        page = project_root() / "docs" / "operate" / "sizing.md"
        page.write_text(inserted(page.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if missing := [name for name in ("writes_per_s", "reads_per_s", "keys") if given[name] is None]:
        parser.error(f"needed: {', '.join(missing)}")
    load = Workload(**given)
    try:
        print("\n".join(table({"asked for": load})))
    except ValueError as error:
        parser.error(str(error))
    for name, dollars in plan(load).month.items():
        print(f"| {name} | {dollars:,.0f} |")


if __name__ == "__main__":
    main()
