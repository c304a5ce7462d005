"""Sizes of all parts for a workload: `python -m keylane_build.sizing --writes-per-s 1e3 ...`.

docs/operate/sizing.md explains the arithmetic. Measured and assumed numbers are listed separately below.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields

from keylane_build.generated import replace_between
from keylane_local.tools import project_root

# Measured: docs/benchmarks.md, records of 14 + 170 bytes.
JOB_US_PER_RECORD = 2.1
"""CPU of the job per record: 0.7 in Spark's JVM, 1.4 in Python."""
REDIS_US_PER_WRITE = 2.4
"""CPU of a primary per record: the call of the function library, MSET, memory."""
BYTES_PER_KEY, BYTES_PER_INDEXED_KEY = 94, 96
"""Memory of Redis 7.0 per key, besides its name, envelope and value; and what an index adds to that.

Measured with a million keys of 14 bytes (names of 31 bytes, envelopes and values of 188) on a node in cluster
mode: 312 bytes per key, 422 with an index.
"""
NAME_BYTES, ENVELOPE_BYTES = 20, 18
"""Bytes of a key's name in Redis besides topic and key, and of the envelope before a value."""
# Assumed.
REDIS_US_PER_READ = 8.0
"""CPU of a primary per MGET of a value and a watermark, network included: over 100,000/s per core."""
MAX_LOAD = 0.5
"""Of a core: the rest keeps reads fast during failovers, heartbeats and large batches."""
BROKER_BYTES_PER_S = 30e6
"""Ingress of a broker without replication: half of what AWS states for kafka.m7g.large."""
PARTITION_RECORDS_PER_S = 50_000
"""Of a partition, which one task reads: a fifth of what a core can do."""
FUNCTION_MS = 3.0
"""Duration of a request in a warm environment, including Lambda's own part."""
FUNCTION_GB = 1.0
QUOTA_PER_S = 10
"""Requests per second that Lambda allows per unit of the concurrency quota, however short they are."""
MEMORY_USED = 0.75
"""Of a node: the rest is reserved for replication and failovers (reserved-memory-percent)."""
REBUILD = 2.0
"""Factor for a change of layout, during which a topic is in memory twice."""
SECONDS_A_MONTH = 730 * 3600
MAX_LANES, MAX_NODES = 16_384, 500
MIN_SHARDS = 3
LANES_PER_SHARD = 4
"""At least, so that the number of shards can be doubled twice without a new layout."""

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
"""US dollars, us-east-1, on demand, at high volumes, November 2026. Check them before you rely on them."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What to size for. `keys_per_read` and `records_per_write` are per request; `retention_h` is Kafka's."""

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

    @property
    def requests_per_s(self) -> float:
        """Requests to the API, reads and writes."""
        return self.reads_per_s / self.keys_per_read + self.writes_per_s / self.records_per_write

    @property
    def ingress_bytes_per_s(self) -> float:
        """Bytes written to Kafka, without replication."""
        return self.writes_per_s * (self.key_bytes + self.value_bytes)


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sizes of all parts. `bound` names what determines the number of shards; `month` is in US dollars."""

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


def size(workload: Workload) -> Sizing:
    """Return the sizes of all parts; raise ValueError if one cluster is not enough."""
    state_bytes = workload.keys * bytes_per_key(workload)
    memory_gib = state_bytes * REBUILD / MEMORY_USED / 2**30
    shards, bound = _count_shards(workload, memory_gib)
    partitions = max(math.ceil(workload.writes_per_s / PARTITION_RECORDS_PER_S), min(shards, 1000), 1)
    node = next(name for name, gib in NODES_GIB.items() if gib >= memory_gib / shards)
    brokers = max(3, 3 * math.ceil(workload.ingress_bytes_per_s / BROKER_BYTES_PER_S / 3))
    job_cores = max(2, math.ceil(workload.writes_per_s * JOB_US_PER_RECORD / 1e6 / MAX_LOAD))
    return Sizing(
        partitions=partitions,
        stripes=min(math.ceil(shards * LANES_PER_SHARD / partitions), MAX_LANES // partitions),
        shards=shards,
        bound=bound,
        node=node,
        state_gib=state_bytes / 2**30,
        job_cores=job_cores,
        brokers=brokers,
        environments=math.ceil(workload.requests_per_s * FUNCTION_MS / 1e3),
        requests_per_s=workload.requests_per_s,
        month={
            "cache": shards * (1 + workload.replicas) * NODES_GIB[node] * PRICES["cache, GiB an hour"] * 730,
            "brokers": brokers * PRICES["broker, an hour"] * 730,
            "brokers' disks": _disk_gb(workload) * PRICES["broker's disk, GB a month"],
            "job": job_cores * PRICES["core of Fargate, an hour, with 4 GiB"] * 730,
            **_request_costs(workload.requests_per_s * SECONDS_A_MONTH),
        },
    )


def bytes_per_key(workload: Workload) -> float:
    """Return the bytes that one key takes of a primary's memory."""
    name = NAME_BYTES + workload.topic_bytes + workload.key_bytes
    plain = BYTES_PER_KEY + name + ENVELOPE_BYTES + workload.value_bytes
    return plain + (BYTES_PER_INDEXED_KEY + workload.key_bytes if workload.indexed else 0)


def _count_shards(workload: Workload, memory_gib: float) -> tuple[int, str]:
    """Return the number of shards, and what determines it."""
    needs = {
        "memory": memory_gib / max(NODES_GIB.values()),
        "writes": workload.writes_per_s * REDIS_US_PER_WRITE / 1e6 / MAX_LOAD,
        "reads": workload.reads_per_s * REDIS_US_PER_READ / 1e6 / MAX_LOAD,
    }
    bound = max(needs, key=lambda name: needs[name])
    shards = max(MIN_SHARDS, math.ceil(needs[bound]))
    bound = bound if shards > MIN_SHARDS else "the least"
    nodes = shards * (1 + workload.replicas)
    if nodes > MAX_NODES:
        raise ValueError(
            f"{nodes} nodes are needed for {bound}, but a cluster has at most {MAX_NODES}:"
            " split the topics between clusters"
        )
    return shards, bound


def _disk_gb(workload: Workload) -> float:
    return workload.ingress_bytes_per_s * workload.retention_h * 3600 * 3 / 1e9


def _request_costs(requests: float) -> dict[str, float]:
    per_request = PRICES["requests of Lambda, a million"] / 1e6
    duration = FUNCTION_MS / 1e3 * FUNCTION_GB * PRICES["GB-second of Lambda"]
    return {
        "API Gateway": requests / 1e6 * PRICES["requests of a REST API, a million"],
        "Lambda": requests * (per_request + duration),
    }


EXAMPLES = {
    "a start": Workload(200, 2_000, 1e6),
    "a large shop": Workload(20_000, 100_000, 2e8, indexed=True),
    "the internet, key by key": Workload(1_000_000, 10_000_000, 1e10, retention_h=24),
    "the internet, 100 at a time": Workload(
        1_000_000, 10_000_000, 1e10, retention_h=24, keys_per_read=100, records_per_write=100
    ),
}


def render_table(workloads: dict[str, Workload] | None = None) -> Iterator[str]:
    """Yield the lines of a Markdown table of `workloads`, by default of EXAMPLES, with their sizes."""
    sized = {name: (workload, size(workload)) for name, workload in (workloads or EXAMPLES).items()}
    yield f"| | {' | '.join(sized)} |"
    yield f"|---|{'---|' * len(sized)}"
    for title, render in _ROWS.items():
        yield f"| {title} | {' | '.join(render(*each) for each in sized.values())} |"


_ROWS: dict[str, Callable[[Workload, Sizing], str]] = {
    "records/s": lambda workload, _: f"{workload.writes_per_s:,.0f}",
    "keys read/s": lambda workload, _: f"{workload.reads_per_s:,.0f}",
    "keys": lambda workload, _: f"{workload.keys:,.0f}",
    "**state in memory, GiB**": lambda _, sizing: f"{sizing.state_gib:,.1f}",
    "partitions x stripes": lambda _, sizing: f"{sizing.partitions} x {sizing.stripes}",
    "shards": lambda _, sizing: f"{sizing.shards} ({sizing.bound})",
    "their nodes": lambda _, sizing: sizing.node,
    "job's cores": lambda _, sizing: f"{sizing.job_cores}",
    "brokers": lambda _, sizing: f"{sizing.brokers}",
    "requests/s": lambda _, sizing: f"{sizing.requests_per_s:,.0f}",
    "environments of Lambda": lambda _, sizing: f"{sizing.environments:,}",
    "Lambda's concurrency quota": lambda _, sizing: f"{math.ceil(sizing.requests_per_s / QUOTA_PER_S):,}",
    "a month, US dollars": lambda _, sizing: f"{sum(sizing.month.values()):,.0f}",
    "of it API Gateway and Lambda": lambda _, sizing: (
        f"{sizing.month['API Gateway'] + sizing.month['Lambda']:,.0f}"
    ),
}


BEGIN, END = "<!-- made by `make sizing` -->", "<!-- end -->"


def insert_table(page: str) -> str:
    """Return the page with the table of the examples. Raises ValueError if it lacks the markers."""
    return replace_between(page, BEGIN, END, render_table())


def main(arguments: list[str] | None = None) -> None:
    """Print the sizes for the workload of the command line, or update docs/operate/sizing.md."""
    parser = argparse.ArgumentParser(
        prog="keylane_build.sizing", description="Size all parts of Keylane for a workload."
    )
    parser.add_argument("--document", action="store_true", help="update docs/operate/sizing.md")
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
        page.write_text(insert_table(page.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if missing := [name for name in ("writes_per_s", "reads_per_s", "keys") if given[name] is None]:
        parser.error(f"missing: {', '.join('--' + name.replace('_', '-') for name in missing)}")
    workload = Workload(**given)
    try:
        print("\n".join(render_table({"requested": workload})))
    except ValueError as error:
        parser.error(str(error))
    for name, dollars in size(workload).month.items():
        print(f"| {name} | {dollars:,.0f} |")


if __name__ == "__main__":
    main()
