"""`python -m tests.model`: the model of the protocol, as deep as asked for."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.model.explorer import Bounds, explore
from tests.model.world import World
from tests.servers.own import own_cluster

BROKEN = 3
"""The exit code where a promise is broken: not 1, which an error has."""


def main(arguments: list[str] | None = None) -> int:
    """Explore; the exit code is BROKEN where a promise is broken."""
    parser = argparse.ArgumentParser(prog="tests.model", description=__doc__)
    parser.add_argument("--steps", type=int, default=6, help="steps after the settled state (default 6)")
    parser.add_argument("--faults", type=int, default=2, help="faults among them (default 2)")
    parser.add_argument("--records", type=int, default=2, help="records in the log, at most (default 2)")
    parser.add_argument("--partitions", type=int, default=2, help="partitions (default 2)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--broken", type=int, default=1, help="stop at so many broken promises (default 1)")
    given = parser.parse_args(arguments)
    bounds = Bounds(given.steps, given.faults, given.records, given.seconds, given.broken)
    with tempfile.TemporaryDirectory(prefix="model-") as folder, own_cluster(Path(folder)) as cluster:
        began_s = time.monotonic()
        with World(cluster.addresses, given.partitions) as world:
            report = explore(world, bounds)
        cluster.stop()
    print(
        f"{report.logs} logs, {report.states:,} states, {report.steps:,} steps, {report.recoveries:,} "
        f"recoveries in {time.monotonic() - began_s:.0f} s{'' if report.is_complete else ': out of time'}"
    )
    for trace in report.broken:
        print("\n  ".join(trace))
    return BROKEN if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
