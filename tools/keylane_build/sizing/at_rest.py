"""What a stack costs in a month without a request: each resource of its resolved templates, by its type."""

import fnmatch
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from keylane.metrics.catalogue import GAUGE, JOB
from keylane_build.sizing import prices
from keylane_build.sizing.prices import BY_THE_HOUR, BY_THE_MONTH, CORES, FREE, HOURS_A_MONTH
from keylane_build.stack.combinations import MAIN
from keylane_build.stack.loading import load_template
from keylane_build.stack.matrix import STACK_NAME
from keylane_build.stack.parameters import Refused
from keylane_build.stack.resolving import ResolvedStack, every_stack
from keylane_local.tools import project_root
from keylane_spark.telemetry.emf import INTERVAL_S, EmfLines
from keylane_spark.telemetry.metrics import MetricSeries

T = TypeVar("T")
Properties = dict[str, Any]
Count = Callable[[ResolvedStack, str, Properties], Iterator["Charge"]]
"""Yields what a resource costs, by its stack, logical id and properties."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What a resource costs a month: of which part of the bill, how much of it there is, and dollars."""

    part: str
    count: float
    dollars: float


def deployed(parameters: dict[str, Any], path: str = MAIN) -> ResolvedStack:
    """Return a template's stack with its nested stacks, as these parameters make it."""
    return ResolvedStack(path, STACK_NAME, _load(path), parameters, _load)


@functools.cache
def _load(path: str) -> dict[str, Any]:
    return load_template(project_root() / path)


def charges(stack: ResolvedStack) -> Iterator[Charge]:
    """Yield what the resources of a stack and its nested stacks cost.

    Raises Refused, and ValueError for a type or size of which no price is known.
    """
    for each in every_stack(stack):
        if each.problems:
            raise Refused(each.problems[0])
        for name, resource in each.resources.items():
            count = _counter(resource["Type"])
            if count is not None:
                yield from count(each, name, resource.get("Properties") or {})


def is_counted(kind: str) -> bool:
    """Return whether a type costs something at rest. Raises ValueError if nobody has said so yet."""
    return _counter(kind) is not None


def _counter(kind: str) -> Count | None:
    if kind in AT_REST:
        return AT_REST[kind]
    if any(fnmatch.fnmatchcase(kind, pattern) for pattern in FREE):
        return None
    raise ValueError(f"{kind}: keylane_build/sizing/prices.toml does not say what it costs at rest")


def _hours(part: str, count: float, price: float) -> Charge:
    return Charge(part, count, count * price * HOURS_A_MONTH)


def _months(part: str, count: float, name: str) -> Charge:
    return Charge(part, count, count * BY_THE_MONTH[name])


def _price_of(table: dict[str, T], size: str) -> T:
    if size not in table:
        raise ValueError(f"no price of {size} is known: add it to keylane_build/sizing/prices.toml")
    return table[size]


def _cache(_: ResolvedStack, __: str, group: Properties) -> Iterator[Charge]:
    _gib, price = _price_of(prices.CACHE_NODES, group["CacheNodeType"])
    nodes = int(group["NumNodeGroups"]) * (1 + int(group["ReplicasPerNodeGroup"]))
    yield _hours("cache nodes", nodes, price)


def _brokers(_: ResolvedStack, __: str, cluster: Properties) -> Iterator[Charge]:
    brokers, group = int(cluster["NumberOfBrokerNodes"]), cluster["BrokerNodeGroupInfo"]
    yield _hours("brokers", brokers, _price_of(prices.BROKERS, group["InstanceType"]))
    volume = int(group["StorageInfo"]["EBSStorageInfo"]["VolumeSize"])
    yield _months("brokers' disks, GB", brokers * volume, "a GB of a broker's disk")
    if cluster.get("EnhancedMonitoring", "DEFAULT") != "DEFAULT":
        yield _months("metrics", brokers * prices.BROKER_METRICS, "a metric")
    if "LoggingInfo" in cluster:
        yield _months("logs, GB", brokers * prices.BROKER_LOG_GB, "a GB of logs")


def _serverless_kafka(_: ResolvedStack, __: str, ___: Properties) -> Iterator[Charge]:
    yield _hours("MSK Serverless", 1, BY_THE_HOUR["a cluster of MSK Serverless"])
    partitions = prices.PARTITIONS_AT_REST
    yield _hours("MSK Serverless, partitions", partitions, BY_THE_HOUR["a partition of MSK Serverless"])


def _endpoint(_: ResolvedStack, __: str, endpoint: Properties) -> Iterator[Charge]:
    if endpoint["VpcEndpointType"] == "Interface":
        price = BY_THE_HOUR["an interface endpoint in a zone"]
        yield _hours("interface endpoints, by zone", len(endpoint["SubnetIds"]), price)


def _service(stack: ResolvedStack, name: str, service: Properties) -> Iterator[Charge]:
    written = stack.template["Resources"][name]["Properties"]
    task = stack.resources[written["TaskDefinition"]["Ref"]]["Properties"]
    tasks = int(service["DesiredCount"]) if "DesiredCount" in service else _least_tasks(stack)
    is_arm = task.get("RuntimePlatform", {}).get("CpuArchitecture") == "ARM64"
    cores, gib = (tasks * float(task[size].split()[0]) for size in ("Cpu", "Memory"))
    yield _cores("Fargate, arm64" if is_arm else "Fargate", cores, gib)
    environment = {each["Name"]: each["Value"] for each in task["ContainerDefinitions"][0]["Environment"]}
    if tasks and environment.get("KEYLANE_JOB_METRICS") == "emf":
        yield from _job_metrics()


def _least_tasks(stack: ResolvedStack) -> int:
    """Return how many tasks a service has that is scaled."""
    [target] = [
        each["Properties"]
        for each in stack.resources.values()
        if each["Type"] == "AWS::ApplicationAutoScaling::ScalableTarget"
    ]
    return int(target["MinCapacity"])


def _cores(kind: str, cores: float, gib: float) -> Charge:
    core, memory = CORES[kind]
    return Charge(f"{kind}, cores", cores, (cores * core + gib * memory) * HOURS_A_MONTH)


def _emr(stack: ResolvedStack, _: str, __: Properties) -> Iterator[Charge]:
    given = {name: str(stack.parameters[name]) for name in ("Running", "Executors", "Cores", "MemoryGiB")}
    if given["Running"] == "true":
        workers = 1 + int(given["Executors"])
        yield _cores("EMR Serverless", workers * int(given["Cores"]), workers * int(given["MemoryGiB"]))
        yield from _job_metrics()


def _job_metrics() -> Iterator[Charge]:
    """Yield what the job's lines cost, which CloudWatch makes metrics of, with one topic."""
    lines: list[str] = []
    metrics = JOB["topic"]
    totals = {name: 0 for name, each in metrics.items() if each.kind != GAUGE}
    gauges = dict.fromkeys(metrics.keys() - totals.keys(), 0)
    EmfLines(lines.append)([MetricSeries("topic", ("orders",), totals, gauges)])
    yield _months("metrics", len(metrics), "a metric")
    gigabytes = sum(map(len, lines)) * prices.SECONDS_A_MONTH / INTERVAL_S / 1e9
    yield _months("logs, GB", gigabytes, "a GB of logs")


def _cluster(_: ResolvedStack, __: str, cluster: Properties) -> Iterator[Charge]:
    settings = {each["Name"]: each["Value"] for each in cluster.get("ClusterSettings") or ()}
    if settings.get("containerInsights", "disabled") != "disabled":
        yield _months("metrics", prices.CLUSTER_METRICS, "a metric")


def _function(_: ResolvedStack, __: str, function: Properties) -> Iterator[Charge]:
    if "ProvisionedConcurrencyConfig" in function:
        warm = int(function["ProvisionedConcurrencyConfig"]["ProvisionedConcurrentExecutions"])
        gigabytes = warm * int(function["MemorySize"]) / 1024
        price = BY_THE_HOUR["a GB of provisioned concurrency"]
        yield _hours("provisioned concurrency, GB", gigabytes, price)


def _alarm(_: ResolvedStack, __: str, alarm: Properties) -> Iterator[Charge]:
    # A query counts as one here. CloudWatch counts the metrics that it finds: of each topic, node or broker.
    yield _months("alarms' metrics", len(alarm.get("Metrics") or "1"), "an alarm's metric")


def _each(part: str, name: str) -> Count:
    """Return the function that counts one of these for each resource."""

    def count(_: ResolvedStack, __: str, ___: Properties) -> Iterator[Charge]:
        if name in BY_THE_HOUR:
            yield _hours(part, 1, BY_THE_HOUR[name])
        else:
            yield _months(part, 1, name)

    return count


AT_REST: dict[str, Count] = {
    "AWS::CloudWatch::Alarm": _alarm,
    "AWS::CloudWatch::Dashboard": _each("dashboards", "a dashboard"),
    "AWS::EC2::NatGateway": _each("NAT gateways", "a NAT gateway"),
    "AWS::EC2::VPCEndpoint": _endpoint,
    "AWS::ECS::Cluster": _cluster,
    "AWS::ECS::Service": _service,
    "AWS::EMRServerless::Application": _emr,
    "AWS::ElastiCache::ReplicationGroup": _cache,
    "AWS::ElasticLoadBalancingV2::LoadBalancer": _each("load balancers", "an Application Load Balancer"),
    "AWS::KMS::Key": _each("keys of KMS", "a key of KMS"),
    "AWS::MSK::Cluster": _brokers,
    "AWS::MSK::ServerlessCluster": _serverless_kafka,
    "AWS::SecretsManager::Secret": _each("secrets", "a secret"),
    "AWS::Serverless::Function": _function,
}
"""Types that cost something because they are there."""
