"""The arithmetic of docs/operate/sizing.md: from a workload to the sizes of all parts, and to a bill.

Its figures are those of `costs`, its formulas those of `formulas`. `steps` shows them with their numbers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from keylane_build.sizing import costs, prices
from keylane_build.sizing.at_rest import Charge, charges, deployed
from keylane_build.sizing.formulas import Values
from keylane_build.stack.parameters import Refused
from keylane_cli.survey import key_memory
from keylane_cli.survey.lane_balance import MAX_NODES, Proposal, divide, propose_stripes

FUNCTION_GB = 1.0
QUOTA_PER_S = 10
"""Requests per second that Lambda allows per unit of the concurrency quota, however short they are."""
NODES_OF_CLUSTER, NODES_OF_REGION = 90, 300
"""ElastiCache's quotas of an account that has not asked for more."""
MIN_SHARDS = 3
NODES = {name: gib for name, (gib, _) in prices.CACHE_NODES.items() if name.startswith("cache.r7g.")}
"""Nodes that are proposed, by their GiB."""
ZONES = 3
FEW_BROKERS, BROKERS_OF_CLUSTER = 30, 60
"""How many are proposed before larger ones are, and MSK's quota of a cluster with KRaft."""
TASK_CORES = (2, 4, 8, 16)
"""Of the job on Fargate. More cores are several jobs."""
EXECUTOR_CORES = 4
"""Of the driver and of each executor, where the job is spread."""
GIB_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """What to size for. `keys_per_read` and `records_per_write` are per request; `retention_h` is Kafka's.

    `records_per_write`: 0 where producers write to Kafka. `partitions`: 0 for as many as are proposed.
    `fields`: in how many indexes of fields a record is, with values of `field_bytes` each. `compression`:
    what part of a value's bytes it leaves, 1 for none; `keylane check` names it for a topic.
    """

    writes_per_s: float
    reads_per_s: float
    keys: float
    key_bytes: int = 20
    value_bytes: int = 200
    topic_bytes: int = 10
    keys_per_read: int = 1
    records_per_write: int = 1
    indexed: bool = False
    fields: int = 0
    field_bytes: int = 8
    retention_h: float = 168
    replicas: int = 1
    partitions: int = 0
    compression: float = 1.0

    @property
    def requests_per_s(self) -> float:
        """Requests to the API, reads and writes."""
        writes = self.writes_per_s / self.records_per_write if self.records_per_write else 0
        return self.reads_per_s / self.keys_per_read + writes

    @property
    def name_bytes(self) -> int:
        """Bytes of a key's name in Redis."""
        return key_memory.NAME_BYTES + self.topic_bytes + self.key_bytes

    @property
    def stored_bytes(self) -> float:
        """Bytes of a value in Redis."""
        return self.value_bytes * self.compression

    @property
    def member_bytes(self) -> int:
        """Bytes of a key in the largest index that it is in; 0 where it is in none."""
        if self.fields:
            return self.field_bytes + key_memory.END_BYTES + self.key_bytes
        return self.key_bytes if self.indexed else 0


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sizes of all parts. `bound` says what determines the number of shards; `nodes` are all of the cache.

    `index_parts`: of each lane; 0 where the topic has no index.
    """

    partitions: int
    stripes: Proposal
    index_parts: int
    shards: int
    bound: str
    node: str
    nodes: int
    state_gib: float
    job_cores: int
    broker: str
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
            "KafkaBrokerType": self.broker,
            "KafkaBrokersPerZone": str(self.brokers // ZONES),
            "KafkaVolumeGiB": str(self.disk_gib),
            "JobCores": str(cores),
            "JobMemoryGiB": str(cores * GIB_PER_CORE),
        }

    @property
    def lanes(self) -> int:
        """Lanes of the topic."""
        return self.partitions * self.stripes.stripes

    @property
    def executors(self) -> int:
        """How many executors the job's cores are, where it is spread."""
        return math.ceil(self.job_cores / EXECUTOR_CORES)

    @property
    def jobs(self) -> int:
        """How many tasks of Fargate the job's cores are."""
        return math.ceil(self.job_cores / TASK_CORES[-1])


def values_of(workload: Workload) -> Values:
    """Return the numbers of the formulas that do not depend on sizes."""
    own = {each.name: getattr(workload, each.name) for each in fields(workload)}
    own |= {"name_bytes": workload.name_bytes, "stored_bytes": workload.stored_bytes}
    own["bytes_per_key"] = bytes_per_key(workload)
    return Values(vars(key_memory) | costs.VALUES | own, ZONES=ZONES, largest_node_gib=max(NODES.values()))


def size(workload: Workload) -> Sizing:
    """Return the sizes of all parts; raise ValueError if one cluster, or `partitions`, is not enough."""
    values = values_of(workload)
    shards, bound = _count_shards(workload, values)
    partitions = _count_partitions(workload, shards)
    most_shards = MAX_NODES // (1 + workload.replicas)
    stripes = propose_stripes(partitions, divide(shards), most_shards)
    broker, brokers = _choose_brokers(values)
    values.update(partitions=partitions, stripes=stripes.stripes, shards=shards, brokers=brokers)
    index_parts = 0
    if workload.member_bytes:
        megabytes = key_memory.index_megabytes(workload.keys / values["lanes"], workload.member_bytes)
        index_parts = key_memory.count_index_parts(megabytes)
    return Sizing(
        partitions=partitions,
        stripes=stripes,
        index_parts=index_parts,
        shards=shards,
        bound=bound,
        node=next(name for name, gib in NODES.items() if gib >= values["node_gib"]),
        nodes=shards * (1 + workload.replicas),
        state_gib=values["state_gib"],
        job_cores=max(2, math.ceil(values["cores"])),
        broker=broker,
        brokers=brokers,
        disk_gib=max(1, math.ceil(values["disk_of_broker_gib"])),
        environments=math.ceil(workload.requests_per_s * costs.FUNCTION_MS / 1e3),
        requests_per_s=workload.requests_per_s,
    )


def bytes_per_key(workload: Workload) -> float:
    """Return the bytes that one key takes of a primary's memory."""
    sizes = workload.topic_bytes, workload.key_bytes, workload.stored_bytes
    of_key = key_memory.bytes_of_key(*sizes, indexed=workload.indexed or workload.fields > 0)
    in_fields = workload.fields * workload.field_bytes
    return of_key + key_memory.bytes_of_fields(workload.key_bytes, workload.fields, in_fields)


def _count_partitions(workload: Workload, shards: int) -> int:
    needed = math.ceil(workload.writes_per_s / costs.PARTITION_RECORDS_PER_S)
    if not workload.partitions:
        return max(needed, min(shards, 1000), 1)
    if workload.partitions < needed:
        raise ValueError(
            f"{workload.partitions} partitions are too few for these records: {needed} are needed"
        )
    return workload.partitions


def _choose_brokers(values: Values) -> tuple[str, int]:
    """Return the smallest brokers of which few are enough, or the largest, and how many."""
    choices = []
    for broker, disk_mb_per_s in prices.BROKER_DISKS.items():
        needed = Values(values, disk_mb_per_s=disk_mb_per_s)["brokers_for_disks"]
        choices.append((broker, ZONES * max(1, math.ceil(needed / ZONES))))
    broker, brokers = next((each for each in choices if each[1] <= FEW_BROKERS), choices[-1])
    if brokers > BROKERS_OF_CLUSTER:
        raise ValueError(f"{brokers} brokers of {broker} are needed: split the topics between clusters")
    return broker, brokers


def _count_shards(workload: Workload, values: Values) -> tuple[int, str]:
    """Return the number of shards, and what determines it."""
    needs = {name: values[f"shards_for_{name}"] for name in ("memory", "writes", "reads")}
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
    yield from requests(sizing.requests_per_s * prices.SECONDS_A_MONTH)


REQUESTS = ("API Gateway, requests", "Lambda, requests", "logs of requests, GB")


def requests(count: float) -> Iterator[Charge]:
    """Yield what so many requests a month cost at API Gateway, in Lambda and in their logs."""
    gateway, function, logs = REQUESTS
    millions = count / 1e6
    yield Charge(gateway, count, prices.tiered("a million requests of a REST API", millions))
    duration = prices.tiered(
        "a million GB-seconds of Lambda", millions * costs.FUNCTION_MS / 1e3 * FUNCTION_GB
    )
    yield Charge(function, count, prices.tiered("a million requests of Lambda", millions) + duration)
    gigabytes = count * costs.REQUEST_LOG_BYTES / 1e9
    yield Charge(logs, gigabytes, prices.tiered("a GB of logs of requests", gigabytes))


EXAMPLES = {
    "a start": Workload(200, 2_000, 1e6),
    "a large shop": Workload(20_000, 100_000, 2e8, indexed=True),
    "the internet, key by key": Workload(1_000_000, 10_000_000, 1e10, retention_h=24),
    "the internet, 100 at a time": Workload(
        1_000_000, 10_000_000, 1e10, retention_h=24, keys_per_read=100, records_per_write=100
    ),
}
LARGE_TOPIC = Workload(
    writes_per_s=500e6 / (14 + 170),
    reads_per_s=100_000,
    keys=1e9,
    key_bytes=14,
    value_bytes=170,
    records_per_write=0,
    retention_h=24,
    partitions=1000,
)
"""500 MB/s into 1,000 partitions, in records of the size that was measured."""
