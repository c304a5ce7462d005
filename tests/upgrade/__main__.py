"""A live upgrade and rollback: `python -m tests.upgrade --old COMMIT`.

Job and server of a commit and of this project run on the same Kafka and Redis. The jobs take over from each
other: old, new, old, new. Both servers answer all the time, and what they hand out (positions, ETags,
cursors, ids of events) is used with the other one. Every read is compared with the log. The exit code is 1 if
there was a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.contract.hosts.checkouts import Checkout
from tests.servers.own import own_cluster, own_kafka
from tests.upgrade.live import NEW, OLD, LiveUpgrade

from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHOWN = 20


@contextlib.contextmanager
def checkout_of(commit: str, folder: Path) -> Iterator[Checkout]:
    """Yield the files of a commit; they are removed afterwards. This environment has its packages."""
    git = ("git", "-C", str(project_root()), "worktree")
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield Checkout.at(folder)
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=False)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", required=True, help="the commit to upgrade from, and to roll back to")
    parser.add_argument("--seconds", type=float, default=15, help="how long each job runs")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--json", type=Path, help="a file for the figures")
    given = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keylane-upgrade-")))
        old = stack.enter_context(checkout_of(given.old, data / "old"))
        cluster = stack.enter_context(own_cluster(data / "cluster"))
        kafka = stack.enter_context(own_kafka(data / "broker"))
        folder = data / "run"
        folder.mkdir()
        checkouts = {OLD: old, NEW: Checkout.at(project_root())}
        run = LiveUpgrade(checkouts, kafka.bootstrap, cluster.addresses, folder, given.seconds)
        say(f"from {given.old}, seed {given.seed}")
        run.run(given.seed, say)
    for fault in run.faults[:SHOWN]:
        say(f"fault: {fault}")
    for what, count in run.counts.items():
        say(f"{count:>8} {what}")
    say(f"{len(run.faults):>8} faults")
    if given.json:
        figures = {"old": given.old, "seed": given.seed, "faults": run.faults, "counts": run.counts}
        phases = [asdict(phase) for phase in run.phases]
        given.json.write_text(json.dumps({**figures, "phases": phases}, indent=1) + "\n", encoding="utf-8")
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
