"""The arithmetic of a workload as its steps, each a calculation that anyone can follow by hand."""

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from keylane_build.generated import render_table
from keylane_build.sizing import costs, prices
from keylane_build.sizing.formulas import FORMULAS
from keylane_build.sizing.workload import (
    EXECUTOR_CORES,
    GIB_PER_CORE,
    REQUESTS,
    ZONES,
    Sizing,
    Workload,
    bill,
    exceeded_quotas,
    size,
    values_of,
)

_NAME = re.compile(r"[A-Za-z]\w*")
_FORMATS = {
    **dict.fromkeys(("writes_per_s", "reads_per_s", "keys", "lanes"), ",.0f"),
    **dict.fromkeys(("cores_of_records", "cores_of_lanes", "state_gib"), ",.2f"),
    **dict.fromkeys(("memory_gib", "redis_mb"), ",.1f"),
    "ingress_mb": ",.4g",
}
"""How numbers are written that are neither integers nor as exact as they are."""
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
    values = values_of(workload)
    values.update(_sizes(size(workload)))
    for name, formula in FORMULAS.items():
        calculation = _NAME.sub(lambda found: _number(found[0], values[found[0]]), formula.expression)
        step = Step(formula.what, calculation.replace("_", ","), formula.taken.format_map(values))
        values[name] = step.result
        yield step


def _sizes(sizing: Sizing) -> dict[str, Any]:
    """Return what was chosen, by the names that formulas have for it."""
    exceeded = exceeded_quotas(sizing.nodes)
    quota = f" (above the quota: {exceeded})" if exceeded else ""
    return {
        **{each.name: getattr(sizing, each.name) for each in fields(sizing)},
        "stripes": sizing.stripes.stripes,
        "nodes_of_kind": f"{sizing.nodes} {sizing.node}{quota}",
        "disk_mb_per_s": prices.BROKER_DISKS[sizing.broker],
        "executors": sizing.executors,
        "tasks": sizing.executors * EXECUTOR_CORES,
        "EXECUTOR_CORES": EXECUTOR_CORES,
        "executor_gib": EXECUTOR_CORES * GIB_PER_CORE,
    }


def _number(name: str, value: float) -> str:
    return format(value, _FORMATS.get(name, "," if isinstance(value, int) else "g"))


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
    values = values_of(workload)
    for name, rate, of in (
        ("from Kafka to the job, between zones", "ingress_mb", "a GB from Kafka in another zone"),
        ("from the job to Redis, between zones", "redis_mb", "a GB to a cache node in another zone"),
    ):
        parts[name] = values[rate] / 1e3 * prices.SECONDS_A_MONTH * FAR * prices.BY_USE[of]
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
