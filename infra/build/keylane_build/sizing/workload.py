"""The arithmetic of docs/operate/sizing.md: from a workload to the sizes of all parts, and to a bill.

Measured and assumed numbers are listed separately below.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from keylane_build.sizing import prices
from keylane_build.sizing.at_rest import Charge, charges, deployed
from keylane_build.stack.parameters import Refused
from keylane_local.commands.lane_balance import MAX_NODES, Proposal, divide, propose_stripes

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
DISK_USED = 0.6
"""Of a broker's disk: MSK enlarges volumes above that, and an alarm rings at 0.75."""
REBUILD = 2.0
"""Factor for a change of layout, during which a topic is in memory twice."""
NODES_OF_CLUSTER, NODES_OF_REGION = 90, 300
"""ElastiCache's quotas of an account that has not asked for more."""
MIN_SHARDS = 3
NODES = {name: gib for name, (gib, _) in prices.CACHE_NODES.items() if name.startswith("cache.r7g.")}
"""Nodes that are proposed, by their GiB."""
ZONES = 3
TASK_CORES = (2, 4, 8, 16)
"""Of the job on Fargate. More cores are several jobs."""
GIB_PER_CORE = 4


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
    """Sizes of all parts. `bound` says what determines the number of shards; `nodes` are all of the cache."""

    partitions: int
    stripes: Proposal
    shards: int
    bound: str
    node: str
    nodes: int
    state_gib: float
    job_cores: int
    brokers: int
    disk_gib: int
    environments: int
    requests_per_s: float

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of template.yaml with these sizes."""
        cores = next((cores for cores in TASK_CORES if cores >= self.job_cores), TASK_CORES[-1])
        return {
            "CacheNodeType": self.node,
            "CacheShards": str(self.shards),
            "CacheReplicas": str(self.nodes // self.shards - 1),
            "KafkaBrokersPerZone": str(self.brokers // ZONES),
            "KafkaVolumeGiB": str(self.disk_gib),
            "JobCores": str(cores),
            "JobMemoryGiB": str(cores * GIB_PER_CORE),
        }

    @property
    def jobs(self) -> int:
        """How many tasks of Fargate the job's cores are."""
        return math.ceil(self.job_cores / TASK_CORES[-1])


def size(workload: Workload) -> Sizing:
    """Return the sizes of all parts; raise ValueError if one cluster is not enough."""
    state_bytes = workload.keys * bytes_per_key(workload)
    memory_gib = state_bytes * REBUILD / MEMORY_USED / 2**30
    shards, bound = _count_shards(workload, memory_gib)
    partitions = max(math.ceil(workload.writes_per_s / PARTITION_RECORDS_PER_S), min(shards, 1000), 1)
    most_shards = MAX_NODES // (1 + workload.replicas)
    brokers = max(ZONES, ZONES * math.ceil(workload.ingress_bytes_per_s / BROKER_BYTES_PER_S / ZONES))
    disk_bytes = workload.ingress_bytes_per_s * workload.retention_h * 3600 * ZONES / DISK_USED
    return Sizing(
        partitions=partitions,
        stripes=propose_stripes(partitions, divide(shards), most_shards),
        shards=shards,
        bound=bound,
        node=next(name for name, gib in NODES.items() if gib >= memory_gib / shards),
        nodes=shards * (1 + workload.replicas),
        state_gib=state_bytes / 2**30,
        job_cores=max(2, math.ceil(workload.writes_per_s * JOB_US_PER_RECORD / 1e6 / MAX_LOAD)),
        brokers=brokers,
        disk_gib=max(1, math.ceil(disk_bytes / brokers / 2**30)),
        environments=math.ceil(workload.requests_per_s * FUNCTION_MS / 1e3),
        requests_per_s=workload.requests_per_s,
    )


def bytes_per_key(workload: Workload) -> float:
    """Return the bytes that one key takes of a primary's memory."""
    name = NAME_BYTES + workload.topic_bytes + workload.key_bytes
    plain = BYTES_PER_KEY + name + ENVELOPE_BYTES + workload.value_bytes
    return plain + (BYTES_PER_INDEXED_KEY + workload.key_bytes if workload.indexed else 0)


def _count_shards(workload: Workload, memory_gib: float) -> tuple[int, str]:
    """Return the number of shards, and what determines it."""
    needs = {
        "memory": memory_gib / max(NODES.values()),
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


def exceeded_quotas(nodes: int) -> str:
    """Return the quotas of ElastiCache that must be raised for so many nodes; empty if none."""
    quotas = (("a cluster", NODES_OF_CLUSTER), ("a region", NODES_OF_REGION))
    return ", ".join(f"{quota} {what}" for what, quota in quotas if nodes > quota)


def bill(sizing: Sizing) -> Iterator[Charge]:
    """Yield what a month costs: template.yaml with these sizes and everything new, and the requests.

    Raises ValueError if the template does not take the sizes.
    """
    everything = {"Job": "FARGATE", "JobImage": "image", "Observability": "true", "AlarmEmail": "a@b.c"}
    try:
        at_rest = list(charges(deployed(everything | sizing.parameters)))
    except Refused as error:
        raise ValueError(f"template.yaml cannot be deployed with these sizes: {error}") from None
    for each in at_rest:
        jobs = sizing.jobs if each.part.startswith("Fargate") else 1
        yield Charge(each.part, each.count * jobs, each.dollars * jobs)
    yield from _requests(sizing.requests_per_s * prices.SECONDS_A_MONTH)


REQUESTS = ("API Gateway, requests", "Lambda, requests")


def _requests(count: float) -> Iterator[Charge]:
    gateway, function = REQUESTS
    yield Charge(gateway, count, count / 1e6 * prices.BY_USE["a million requests of a REST API"])
    duration = FUNCTION_MS / 1e3 * FUNCTION_GB * prices.BY_USE["a GB-second of Lambda"]
    yield Charge(function, count, count * (prices.BY_USE["a million requests of Lambda"] / 1e6 + duration))


EXAMPLES = {
    "a start": Workload(200, 2_000, 1e6),
    "a large shop": Workload(20_000, 100_000, 2e8, indexed=True),
    "the internet, key by key": Workload(1_000_000, 10_000_000, 1e10, retention_h=24),
    "the internet, 100 at a time": Workload(
        1_000_000, 10_000_000, 1e10, retention_h=24, keys_per_read=100, records_per_write=100
    ),
}
