"""The arithmetic of a workload as its steps, each a calculation that anyone can follow by hand."""

from collections.abc import Iterator
from typing import NamedTuple

from keylane_build.generated import render_table
from keylane_build.sizing import costs, prices
from keylane_build.sizing.workload import (
    EXECUTOR_CORES,
    GIB_PER_CORE,
    NODES,
    REQUESTS,
    ZONES,
    Sizing,
    Workload,
    bill,
    bytes_per_key,
    exceeded_quotas,
    size,
)

MB = 1e6
FAR = 2 / ZONES
"""The share of traffic that leaves its zone, where both ends are spread evenly."""


class Step(NamedTuple):
    """What is calculated, how, and what is taken for the result."""

    what: str
    calculation: str
    taken: str = ""

    @property
    def result(self) -> float:
        """What comes out, if one does as the calculation says."""
        return float(eval(self.calculation.replace(",", "")))  # noqa: S307 (it is ours)


def steps(workload: Workload) -> Iterator[Step]:
    """Yield the steps from a workload to its sizes. Raises ValueError as `size`."""
    sizing = size(workload)
    yield from _job_steps(workload, sizing)
    yield from _redis_steps(workload, sizing)
    yield from _kafka_steps(workload, sizing)
    yield from _network_steps(workload, sizing)


def _job_steps(workload: Workload, sizing: Sizing) -> Iterator[Step]:
    rate, lanes = f"{workload.writes_per_s:,.0f}", f"{sizing.lanes:,}"
    size_of_record = f"({workload.key_bytes} + {workload.value_bytes})"
    yield Step("MB/s into Kafka", f"{rate} * {size_of_record} / 1,000,000")
    yield Step("lanes", f"{sizing.partitions:,} * {sizing.stripes.stripes}")
    per_record = f"({costs.WORKER_US_PER_RECORD} + {costs.JVM_US_PER_RECORD})"
    of_records = Step("cores of records", f"{rate} * {per_record} / 1,000,000")
    of_lanes = Step(
        "cores of lanes", f"{lanes} * {costs.BATCHES_PER_S:g} * {costs.WORKER_MS_PER_LANE} / 1,000"
    )
    yield of_records
    yield of_lanes
    yield Step(
        "job's cores",
        f"({of_records.result:.2f} + {of_lanes.result:.2f}) / {costs.MAX_LOAD}",
        f"**{sizing.executors} executors** of {EXECUTOR_CORES} cores and {EXECUTOR_CORES * GIB_PER_CORE} GiB",
    )
    beat = f"{costs.HEARTBEATS_PER_S:g} * {costs.HEARTBEAT_US_PER_LANE:g}"
    yield Step(
        "driver's cores for the heartbeat",
        f"{lanes} * {beat} / 1,000,000",
        f"one driver of {EXECUTOR_CORES} cores",
    )
    tasks = f"{sizing.executors * EXECUTOR_CORES}"
    yield Step(
        "records of a batch, at most", f"{costs.TASK_RECORDS:,} * {tasks}", "a batch a second is enough"
    )


def _redis_steps(workload: Workload, sizing: Sizing) -> Iterator[Step]:
    state = Step("state, GiB", f"{workload.keys:,.0f} * {bytes_per_key(workload):g} / 1,073,741,824")
    memory = Step(
        "memory of all primaries, GiB", f"{state.result:,.2f} * {costs.REBUILD:g} / {costs.MEMORY_USED}"
    )
    yield state
    yield memory
    yield Step("shards for the memory", f"{memory.result:,.1f} / {max(NODES.values())}")
    for what, rate, us in (
        ("writes", workload.writes_per_s, costs.REDIS_US_PER_WRITE),
        ("reads", workload.reads_per_s, costs.REDIS_US_PER_READ),
    ):
        yield Step(f"shards for the {what}", f"{rate:,.0f} * {us:g} / 1,000,000 / {costs.MAX_LOAD}")
    exceeded = exceeded_quotas(sizing.nodes)
    quota = f" (above the quota: {exceeded})" if exceeded else ""
    yield Step(
        "GiB of a node",
        f"{memory.result:,.1f} / {sizing.shards}",
        f"**{sizing.shards} shards** ({sizing.bound}), {sizing.nodes} {sizing.node}{quota}",
    )


def _kafka_steps(workload: Workload, sizing: Sizing) -> Iterator[Step]:
    into, disk = f"{workload.ingress_bytes_per_s / MB:,.4g}", prices.BROKER_DISKS[sizing.broker]
    taken = f"**{sizing.brokers} brokers**, {sizing.broker}"
    yield Step("brokers", f"{into} * {ZONES} / ({disk:g} * {costs.MAX_LOAD})", taken)
    kept = f"{into} * {ZONES} * 3,600 * {workload.retention_h:g} / {costs.DISK_USED}"
    yield Step(
        "GiB of a broker's disk", f"{kept} / {sizing.brokers} / 1,073.741824", f"{sizing.disk_gib:,} GiB"
    )
    yield Step("replicas of a broker", f"{sizing.partitions:,} * {ZONES} / {sizing.brokers}")


def _network_steps(workload: Workload, sizing: Sizing) -> Iterator[Step]:
    into = f"{workload.ingress_bytes_per_s / MB:,.4g}"
    taken = "in: producers and replicas; out: replicas and the job"
    yield Step("MB/s of a broker, in and out", f"{into} * {ZONES} / {sizing.brokers}", taken)
    stored = f"({workload.name_bytes} + {costs.ENVELOPE_BYTES} + {workload.value_bytes})"
    out = Step(
        "MB/s into Redis", f"{workload.writes_per_s:,.0f} * {stored} / 1,000,000", "if no key comes twice"
    )
    yield out
    taken = f"and {workload.replicas} times as much out, to its replicas"
    yield Step("MB/s into a primary", f"{out.result:,.1f} / {sizing.shards}", taken)
    yield Step("MB/s of an executor, in and out", f"({into} + {out.result:,.1f}) / {sizing.executors}")


def render_steps(workload: Workload) -> Iterator[str]:
    """Yield a table of the steps."""
    rows = (
        (each.what, f"`{each.calculation}`", _format(each.result), each.taken) for each in steps(workload)
    )
    yield from render_table(("", "calculation", "result", "taken"), rows)


def _format(result: float) -> str:
    return f"{result:,.2f}".rstrip("0").rstrip(".")


def hosts(workload: Workload) -> dict[str, dict[str, float]]:
    """Return US dollars a month by part, where the job runs on Fargate, EMR Serverless or EC2 with EKS."""
    sizing = size(workload)
    parts: dict[str, float] = {}
    for each in bill(sizing):
        name = each.part if each.part in _OWN_ROWS else "everything else at rest"
        parts[name] = parts.get(name, 0) + each.dollars
    for name in REQUESTS:
        del parts[name]
    seconds = prices.SECONDS_A_MONTH / 1e9 * FAR
    for name, rate, of in (
        (
            "from Kafka to the job, between zones",
            workload.ingress_bytes_per_s,
            "a GB from Kafka in another zone",
        ),
        (
            "from the job to Redis, between zones",
            workload.redis_bytes_per_s,
            "a GB to a cache node in another zone",
        ),
    ):
        parts[name] = rate * seconds * prices.BY_USE[of]
    task = parts.pop("Fargate, cores")
    spread = (1 + sizing.executors) * EXECUTOR_CORES
    cluster = prices.BY_THE_HOUR["a cluster of EKS"] * prices.HOURS_A_MONTH
    jobs = {
        "Fargate, one task": task,
        "EMR Serverless": spread * _month_of_core("EMR Serverless"),
        "EKS on EC2": spread * _month_of_core("EC2") + cluster,
    }
    return {name: {"the job": dollars} | parts for name, dollars in jobs.items()}


def _month_of_core(kind: str) -> float:
    core, gib = prices.CORES[kind]
    return (core + GIB_PER_CORE * gib) * prices.HOURS_A_MONTH


_OWN_ROWS = ("brokers", "brokers' disks, GB", "cache nodes", "Fargate, cores", *REQUESTS)


def render_hosts(workload: Workload) -> Iterator[str]:
    """Yield a table of what a month costs, without requests, by where the job runs."""
    found = hosts(workload)
    parts = next(iter(found.values()))
    rows = [[part.removesuffix(", GB"), *(f"{each[part]:,.0f}" for each in found.values())] for part in parts]
    rows.append(["**a month, US dollars**", *(f"**{sum(each.values()):,.0f}**" for each in found.values())])
    yield from render_table(("", *found), rows)


def render_costs() -> Iterator[str]:
    """Yield a table of the figures of the arithmetic."""
    rows = [
        (what, f"{value:,g} {unit}".strip(), kind, source)
        for kind, figures in (("measured", costs.MEASURED), ("assumed", costs.ASSUMED))
        for what, value, unit, source in figures
    ]
    yield from render_table(("", "figure", "", "from"), rows)
