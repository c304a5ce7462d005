"""Records what a checkout answers, and compares two: `python -m tests.contract.hosts.record`.

    --old DIR --new DIR [--to FOLDER]    record both on the same servers, and compare them
    --checkout DIR --to FILE             record one
    --compare FILE FILE                  compare what was recorded before

It exits with 1 if there is a difference that `changes.toml` does not mean, or an entry there that fits none.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tests.contract.hosts import files
from tests.contract.hosts.checkouts import Checkout
from tests.contract.hosts.compare import compared, read_table
from tests.contract.hosts.recording import Recorder
from tests.contract.hosts.servers import prepared
from tests.contract.hosts.worlds import WORLDS
from tests.servers import aws
from tests.servers.own import guarded, own_cluster, own_kafka
from tests.servers.schema_registry import Registry

from keylane_local.process.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.contract.hosts.servers import Servers
    from tests.contract.hosts.worlds import World

SLOWEST = 20
"""How many of the slowest requests are named."""
CHANGES = Path(__file__).with_name("changes.toml")


@contextlib.contextmanager
def own_servers(data: Path) -> Iterator[Servers]:
    """Servers of their own, with the corpus' data."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(own_cluster(data / "cluster"))
        kafka = stack.enter_context(own_kafka(data / "broker"))
        registry = Registry(stack.enter_context(guarded(data / "registry")), Ports().any())
        registry.start()
        stack.callback(registry.close)
        moto = stack.enter_context(aws.moto())
        yield stack.enter_context(prepared(cluster.addresses, kafka.bootstrap, registry.url, moto))


def record(checkouts: Mapping[Path, Checkout], worlds: Sequence[World], data: Path) -> None:
    """Record checkouts in each world, into the files that are theirs."""
    for file in checkouts:
        file.unlink(missing_ok=True)
    begin_ms = time.time_ns() // 1_000_000
    with own_servers(data) as servers:
        recorder = Recorder(servers, begin_ms, data / "log")
        for world in worlds:
            begun_s, count = time.monotonic(), 0
            for host in world.hosts:
                for file, checkout in checkouts.items():
                    found = recorder.record(world, checkout, host)
                    count = max(count, len(found))
                    files.append(file, f"{host} {world.name}", found)
            _say(f"{world.name}: {count} answers, {time.monotonic() - begun_s:.1f} s", sys.stderr)
        for seconds, title in sorted(recorder.slow, reverse=True)[:SLOWEST]:
            _say(f"slow: {seconds:.1f} s {title[:200]}", sys.stderr)


def show(old: Path, new: Path) -> int:
    """Print what differs between two files; return the exit code."""
    one, other = files.read(old), files.read(new)
    verdict = compared(read_table(CHANGES), one, other)
    for line in verdict.render():
        _say(line)
    answers = sum(map(len, other.values()))
    _say(f"{answers} answers; {len(verdict.unmeant)} differences that are not meant")
    return 1 if verdict.unmeant or verdict.unused else 0


def _say(text: str, file: TextIO = sys.stdout) -> None:
    file.write(f"{text}\n")
    file.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--old", "--new", "--checkout", "--to"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--compare", type=Path, nargs=2)
    parser.add_argument("--worlds", default="*", help="patterns of the worlds' names, with commas")
    given = parser.parse_args(arguments)
    if given.compare:
        return show(*given.compare)
    patterns = given.worlds.split(",")
    worlds = [each for each in WORLDS if any(fnmatch.fnmatchcase(each.name, pattern) for pattern in patterns)]
    with tempfile.TemporaryDirectory(prefix="keylane-hosts-") as folder:
        data = Path(folder)
        if given.checkout and given.to:
            record({given.to: Checkout.at(given.checkout)}, worlds, data)
            return 0
        if not (given.old and given.new):
            parser.error("give --old and --new, or --checkout and --to, or --compare")
        results = given.to or data
        results.mkdir(parents=True, exist_ok=True)
        old, new = results / "old.jsonl", results / "new.jsonl"
        record({old: Checkout.at(given.old), new: Checkout.at(given.new)}, worlds, data)
        return show(old, new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
