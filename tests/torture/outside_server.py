"""`python -m tests.torture.outside_server`: `keylane serve`, whose way to Redis the torture changes.

Its connections to Redis go through the readers' links, and it notes each node that did not answer it in time,
for `slowness`. The server knows nothing of it: granian's process begins with `build`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torture.links import link_all_clusters

from keylane.adapters.redis.state import RedisState
from keylane_server import server, worker

if TYPE_CHECKING:
    from keylane.adapters.redis.connections import Node
    from keylane.ports import Deadline

PORTS = "TORTURE_PORTS"
SLOW_FILE = "TORTURE_SLOW_FILE"


def build() -> worker.ServerProcess:
    link_all_clusters({int(port): proxy for port, proxy in json.loads(os.environ[PORTS]).items()})
    note_slowness(Path(os.environ[SLOW_FILE]))
    return worker.build()


def note_slowness(file: Path) -> None:
    """Let the states of this process add a line to the file for each node that did not answer them."""
    mark = RedisState._mark_unhealthy

    def mark_unhealthy(self: RedisState, node: Node, deadline: Deadline) -> None:
        mark(self, node, deadline)
        slot = next((slot for slot, nodes in enumerate(self._slot_map.slots) if node in nodes), None)
        if slot is not None:
            with file.open("a", encoding="ascii") as opened:
                opened.write(f"{slot} {time.monotonic()}\n")

    RedisState._mark_unhealthy = mark_unhealthy  # type: ignore[method-assign]


if __name__ == "__main__":
    from keylane_client.cli.__main__ import main

    server.TARGET = f"{__spec__.name}:{build.__name__}"
    main()
