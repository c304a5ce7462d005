"""The tables of the documents that the calculator makes, between marks in the pages."""

from collections.abc import Callable, Iterator

from keylane_build.generated import replace_between
from keylane_build.sizing.bills import (
    render_at_rest,
    render_gateways,
    render_prices,
    render_request_hosts,
    render_workloads,
)
from keylane_build.sizing.lanes import render_lanes, render_proposals
from keylane_build.sizing.steps import render_costs, render_hosts, render_steps
from keylane_build.sizing.workload import LARGE_TOPIC

BEGIN, END = "<!-- made by `make sizing`: {} -->", "<!-- end -->"
TABLES: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "docs/operate/sizing.md": {
        "figures": render_costs,
        "examples": render_workloads,
        "at rest": render_at_rest,
        "prices": render_prices,
        "lanes": render_lanes,
        "proposals": render_proposals,
        "a large topic": lambda: render_steps(LARGE_TOPIC),
        "hosts of requests": render_request_hosts,
        "a large topic's price": lambda: render_hosts(LARGE_TOPIC),
    },
    "docs/decisions/deployment.md": {"gateways": render_gateways},
}
"""The tables of each page, by the names in their marks."""


def write(page: str, text: str) -> str:
    """Return a page's text with its tables. Raises ValueError if it lacks a mark."""
    for name, render in TABLES[page].items():
        text = replace_between(text, BEGIN.format(name), END, render())
    return text
