"""`python -m tests.model`: the model of the protocol, as deep as asked for."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.model.explorer import Limits, explore
from tests.model.spaces import SPACES, Bounds, space_named
from tests.model.world import World
from tests.servers.own import own_cluster, shorten_jvm_starts

BROKEN = 3
"""The exit code where a promise is broken: not 1, which an error has."""


def main(arguments: list[str] | None = None) -> int:
    """Explore; the exit code is BROKEN where a promise is broken."""
    parser = argparse.ArgumentParser(prog="tests.model", description=__doc__)
    names = [space.name for space in SPACES]
    parser.add_argument("--spaces", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--steps", type=int, help="steps after a start (default: by space)")
    parser.add_argument("--faults", type=int, help="faults among them (default: by space)")
    parser.add_argument("--gate", action="store_true", help="what the integration tests visit")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--broken", type=int, default=1, help="stop at so many broken promises (default 1)")
    given = parser.parse_args(arguments)
    shorten_jvm_starts()
    limits = Limits(time.monotonic() + given.seconds, given.broken)
    broken: list[tuple[str, ...]] = []
    with (
        tempfile.TemporaryDirectory(prefix="model-") as folder,
        own_cluster(Path(folder), replicas=0) as cluster,
    ):
        with World(cluster.addresses) as world:
            for space in map(space_named, given.spaces):
                began_s = time.monotonic()
                default = space.gate if given.gate else space.default
                bounds = Bounds(
                    given.steps or default.steps, default.faults if given.faults is None else given.faults
                )
                report = explore(world, space, bounds, space.in_gate if given.gate else space.starts, limits)
                print(
                    f"{space.name}, {bounds.steps} steps, {bounds.faults} faults: {report.starts} starts, "
                    f"{report.states:,} states, {report.steps:,} steps, {report.recoveries:,} recoveries "
                    f"in {time.monotonic() - began_s:.0f} s{'' if report.is_complete else ': out of time'}",
                    flush=True,
                )
                broken += report.broken
                if limits.are_reached(report):
                    break
        cluster.stop()
    for trace in broken:
        print("\n  ".join(trace))
    return BROKEN if broken else 0


if __name__ == "__main__":
    sys.exit(main())
