"""Tables of bills: of the examples with their sizes, and of the deployments of the pages at rest."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from keylane_build.generated import render_table
from keylane_build.sizing import costs, prices, workload
from keylane_build.sizing.at_rest import Charge, charges, deployed
from keylane_build.sizing.workload import (
    GIB_PER_CORE,
    QUOTA_PER_S,
    REQUESTS,
    Sizing,
    Workload,
    exceeded_quotas,
    size,
)
from keylane_build.stack.combinations import read_combinations, read_nested
from keylane_local.tools import project_root

CONNECTIONS_OF_UNIT = 25
"""New connections a second in a unit of a load balancer's load."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A workload, its sizes, and its bill by part."""

    workload: Workload
    sizing: Sizing
    bill: dict[str, Charge]

    @property
    def requests_dollars(self) -> float:
        """What API Gateway, Lambda and the logs of requests cost."""
        return sum(self.bill[part].dollars for part in REQUESTS)

    @property
    def at_rest_dollars(self) -> float:
        """What everything else costs, which is there without a request."""
        return sum(each.dollars for each in self.bill.values()) - self.requests_dollars


def sized(wanted: Workload) -> Sized:
    """Return a workload with its sizes and bill. Raises ValueError as `size` and `bill`."""
    sizing = size(wanted)
    return Sized(wanted, sizing, add_up(workload.bill(sizing)))


def add_up(found: Iterable[Charge]) -> dict[str, Charge]:
    """Return charges by their part, the dearest first."""
    totals: dict[str, Charge] = {}
    for each in found:
        before = totals.get(each.part, Charge(each.part, 0, 0))
        totals[each.part] = Charge(each.part, before.count + each.count, before.dollars + each.dollars)
    return dict(sorted(totals.items(), key=lambda item: -item[1].dollars))


def render_workloads(workloads: dict[str, Workload] | None = None) -> Iterator[str]:
    """Yield the lines of a table of `workloads`, by default of the examples, with their sizes."""
    found = {name: sized(each) for name, each in (workloads or workload.EXAMPLES).items()}
    rows = ([title, *map(cell, found.values())] for title, cell in _ROWS.items())
    yield from render_table(["", *found], rows)


def _nodes(sizing: Sizing) -> str:
    exceeded = exceeded_quotas(sizing.nodes)
    return f"{sizing.nodes} {sizing.node}" + (f" (above the quota: {exceeded})" if exceeded else "")


_ROWS: dict[str, Callable[[Sized], str]] = {
    "records/s": lambda each: f"{each.workload.writes_per_s:,.0f}",
    "keys read/s": lambda each: f"{each.workload.reads_per_s:,.0f}",
    "keys": lambda each: f"{each.workload.keys:,.0f}",
    "**state in memory, GiB**": lambda each: f"{each.sizing.state_gib:,.1f}",
    "partitions x stripes": lambda each: f"{each.sizing.partitions} x {each.sizing.stripes.stripes}",
    "`index_parts`": lambda each: f"{each.sizing.index_parts or 'no index'}",
    "shards": lambda each: f"{each.sizing.shards} ({each.sizing.bound})",
    "their nodes": lambda each: _nodes(each.sizing),
    "job's cores": lambda each: f"{each.sizing.job_cores}",
    "brokers": lambda each: f"{each.sizing.brokers}",
    "their disks, GiB": lambda each: f"{each.sizing.disk_gib:,}",
    "requests/s": lambda each: f"{each.sizing.requests_per_s:,.0f}",
    "environments of Lambda": lambda each: f"{each.sizing.environments:,}",
    "Lambda's concurrency quota": lambda each: f"{-(-each.sizing.requests_per_s // QUOTA_PER_S):,.0f}",
    "a month, US dollars": lambda each: f"{each.at_rest_dollars + each.requests_dollars:,.0f}",
    "of it at rest": lambda each: f"{each.at_rest_dollars:,.0f}",
    "of it API Gateway, Lambda, logs": lambda each: f"{each.requests_dollars:,.0f}",
}


def deployments(root: Path) -> dict[str, dict[str, Charge]]:
    """Return what the deployments of the pages cost at rest, by their names."""
    given = read_combinations(root)
    pages = [each for name, each in given.items() if name.startswith("deploy-page-")]
    server_path, server = next(each for name, each in read_nested(root).items() if name == "server-page-1")
    new, own = (
        next(each for each in pages if each.get("Job", "none") != "none" and "RedisNodes" not in each),
        next(each for each in pages if "KafkaBootstrap" in each and "RedisNodes" in each),
    )
    stacks = {
        "your Kafka and Redis": deployed(own),
        "`sam deploy`": deployed(given["samconfig-default"]),
        # The guide starts the job in the deployment after the first.
        "everything new, with a job": deployed(new | {"JobRunning": "true"}),
        "the standing server": deployed(server, server_path),
    }
    return {name: add_up(charges(stack)) for name, stack in stacks.items()}


def render_at_rest() -> Iterator[str]:
    """Yield the lines of a table of what the deployments of the pages cost at rest."""
    found = deployments(project_root())
    parts = dict.fromkeys(part for each in sorted(found.values(), key=_sum, reverse=True) for part in each)

    def cell(bill: dict[str, Charge], part: str) -> str:
        return f"{bill[part].count:,.4g}: {bill[part].dollars:,.2f}" if part in bill else ""

    rows: list[tuple[str, ...]] = [(part, *(cell(each, part) for each in found.values())) for part in parts]
    rows.append(("**a month, US dollars**", *(f"**{_sum(each):,.0f}**" for each in found.values())))
    yield from render_table(("", *found), rows)


def _sum(bill: dict[str, Charge]) -> float:
    return sum(each.dollars for each in bill.values())


def server_dollars(requests_per_s: float) -> float:
    """Return what a month of the standing server costs: its deployment, more cores, and its balancer's load.

    A request counts as a connection of its own, which is the most that a balancer charges for it.
    """
    given = dict(read_nested(project_root()))["server-page-1"]
    stack = deployed(given[1], given[0])
    found = add_up(charges(stack))
    tasks = found["Fargate, cores"]
    target = float(str(stack.parameters["CpuTarget"])) / 100
    cores = max(tasks.count, math.ceil(requests_per_s * costs.SERVER_MS / 1e3 / target))
    load = requests_per_s / CONNECTIONS_OF_UNIT * prices.BY_THE_HOUR["a unit of its load (LCU)"]
    more = (cores - tasks.count) * tasks.dollars / tasks.count
    return _sum(found) + more + load * prices.HOURS_A_MONTH


def gateway_dollars(requests_per_s: float) -> float:
    """Return what a month of API Gateway, Lambda and their logs costs."""
    return sum(each.dollars for each in workload.requests(requests_per_s * prices.SECONDS_A_MONTH))


def break_even() -> int:
    """Return from how many requests/s on the standing server costs less."""
    return next(rate for rate in range(1, 1000) if server_dollars(rate) < gateway_dollars(rate))


def render_gateways() -> Iterator[str]:
    """Yield a table of what API Gateway alone costs a month, as a REST API and as an HTTP API."""
    rates = (10, 2_200, 120_000)
    kinds = {
        name: [
            prices.tiered(f"a million requests of {name}", rate * prices.SECONDS_A_MONTH / 1e6)
            for rate in rates
        ]
        for name in ("a REST API", "an HTTP API")
    }
    rest, http = kinds.values()
    rows = [[name, *(f"{each:,.0f}" for each in found)] for name, found in kinds.items()]
    rows.append(["less", *(f"{1 - few / many:.0%}" for few, many in zip(http, rest, strict=True))])
    yield from render_table(["requests/s", *(f"{rate:,}" for rate in rates)], rows)


def render_request_hosts() -> Iterator[str]:
    """Yield a table of what answers cost a month by their host, without what both need."""
    rates = sorted({1, break_even(), 100, 1_000, 10_000})
    hosts = {"API Gateway, Lambda, logs": gateway_dollars, "the standing server": server_dollars}
    rows = ([name, *(f"{dollars(rate):,.0f}" for rate in rates)] for name, dollars in hosts.items())
    yield from render_table(["requests/s", *(f"{rate:,}" for rate in rates)], rows)


def render_prices() -> Iterator[str]:
    """Yield a table of what one of each kind costs a month."""
    months = {name: price * prices.HOURS_A_MONTH for name, price in prices.BY_THE_HOUR.items()}
    for kind, (core, gib) in prices.CORES.items():
        hour = core + GIB_PER_CORE * gib
        months[f"a core of {kind}, with {GIB_PER_CORE} GiB"] = hour * prices.HOURS_A_MONTH
    months |= prices.BY_THE_MONTH
    rows = ([name, f"{dollars:,.2f}"] for name, dollars in months.items())
    yield from render_table(["one of", "a month, US dollars"], rows)
