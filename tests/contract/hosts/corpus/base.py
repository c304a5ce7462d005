"""One good request for each route: those of tests/e2e/examples.py, over this corpus' topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.contract.hosts.case import Case
from tests.contract.hosts.topics import PREFIX
from tests.e2e.examples import EXAMPLES, NO_CLUSTER

if TYPE_CHECKING:
    from tests.contract.hosts.case import Names

_READ = re.compile(r"\b(flights|bookings|joined|puts)\b")
WRITES = ("PUT", "DELETE", "POST")
READS_BY_POST = {"read_keys", "mcp"}
STREAMS = {"get_key_changes", "get_changes"}
WITHOUT_KEY = {"post_v3_batch"}
EVENTS_OF_A_START = 2
"""Of a stream: how soon to connect again, and where it begins."""


def base(name: str, names: Names) -> Case:
    """The good request of a route. A write goes to a topic of this run."""
    example = EXAMPLES[name]
    writes = example.method in WRITES and name not in READS_BY_POST
    # In any partition a record would change the offsets of others.
    kind = "compat" if name in WITHOUT_KEY else "three"

    def renamed(text: str) -> str:
        text = text.replace(NO_CLUSTER, names.cluster)
        return _READ.sub(lambda found: names.out(kind) if writes else PREFIX + found[1], text)

    return Case(
        example.method,
        renamed(example.path),
        tuple(example.headers.items()),
        renamed(example.body).encode(),
        floats=name in WITHOUT_KEY,
        events=EVENTS_OF_A_START if name in STREAMS else 0,
    )
