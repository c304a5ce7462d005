"""`python -m tests.model.mutants`: the model must detect the absence of each guard.

For each mutant the checkout is copied without one guard, as for the torture, and the model is explored there
within the bounds of the integration test. Exit code 1 when a mutant survives.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.model.__main__ import BROKEN
from tests.torture.guards import Mutant, Replacement
from tests.torture.mutants import environment_of, make

_LIBRARY = "spark/keylane_spark/adapters/library/"
_OPEN = "spark/keylane_spark/serving/open_topics.py"
_HEARTBEAT = "spark/keylane_spark/stream/heartbeat.py"


def _mutant(name: str, path: str, old: str, new: str) -> Mutant:
    return Mutant(name, (Replacement(path, old, new),), focus=None)


MUTANTS = (
    _mutant(
        "gaps: a chunk that begins beyond the lane's next offset is accepted",
        f"{_LIBRARY}lanes.lua",
        "if next_offset < from then",
        "if false then",
    ),
    _mutant(
        "taken: a lane takes strays that it has taken before",
        f"{_LIBRARY}lanes.lua",
        "  if before < to then\n    merge(keys[1], args, 2, 13, before)",
        "  do\n    merge(keys[1], args, 2, 13, 0)",
    ),
    _mutant(
        "order: of records of two partitions the one that is read last wins",
        f"{_LIBRARY}merge.lua",
        "return order > entry.order",
        "return true",
    ),
    _mutant(
        "lost strays: no partition is read again for a lane that has lost them",
        _OPEN,
        "in lost_strays(starts):",
        "in lost_strays({}):",
    ),
    _mutant(
        "history of a node: a lane that has failed over takes strays and claims to be complete",
        f"{_LIBRARY}watermark.lua",
        "return redis.call('GET', key_of(watermark_key, tonumber(prefix), 'l')) ~= lineage()",
        "return false",
    ),
    _mutant(
        "slowest partition: a lane of a topic with strays waits for its own partition alone",
        _HEARTBEAT,
        "complete_ms = min(complete_ms, of_topic_ms[topic])",
        "pass",
    ),
)


def survives(mutant: Mutant) -> bool:
    """Explore the mutant; returns whether no promise was broken."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as temporary:
        checkout = Path(temporary) / "checkout"
        make(mutant, checkout)
        ended = subprocess.run(
            [sys.executable, "-m", "tests.model", "--steps", "3", "--faults", "1", "--records", "2"],
            cwd=checkout,
            env=environment_of(checkout),
            check=False,
        )
        if ended.returncode not in (0, BROKEN):
            raise SystemExit(f"without the {mutant.name}: the model ended with {ended.returncode}, see above")
        return ended.returncode == 0


def main(arguments: list[str] | None = None) -> int:
    """Explore each mutant; the exit code is 1 where one survives."""
    parser = argparse.ArgumentParser(prog="tests.model.mutants", description=__doc__)
    parser.add_argument("--only", choices=[mutant.name.partition(":")[0] for mutant in MUTANTS])
    given = parser.parse_args(arguments)
    alive = []
    for mutant in MUTANTS:
        if given.only in (None, mutant.name.partition(":")[0]):
            print(f"{mutant.name}", flush=True)
            alive += [mutant.name] if survives(mutant) else []
    print(f"survived: {alive or 'none'}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
