"""One read by a warm query function, event in to response out, beside bare-socket `MGET`s of the same keys.

They alternate on one real cluster, each with its own order of keys, so that other load on the machine affects
all of them. There are two measurements: `lookup`, with the processes where the system places them, and
`lookup-one-core`, with client and servers on one core. There, no other core has to wake up for a reply, which
otherwise dominates the bare socket's time and hides the cost of the function itself.
"""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import stage
import state
from bare import Bare, run
from bench_read import timed
from harness import ResultRow, in_turns, latency, parse, report
from state import CONTEXT
from tests.support.builders import load_handler

from keylane.ports import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from bare import Errand

BARE = "bare-socket MGET"
CLIENT = "redis-py's cluster client"
FUNCTION = "query function"
WARM_UP = 500


class Read(NamedTuple):
    """A read of a key by each way."""

    rounds: list[list[Errand]]
    names: tuple[bytes, bytes]
    event: dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keys", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3, help="reads of every key, each way")
    options.add_argument("--value-bytes", type=int, default=184)
    chosen = parse(options)
    with (
        stage.cluster() as nodes,
        closing(Bare(nodes)) as bare,
        state.client(nodes) as client,
    ):
        records = state.fill(nodes, chosen.keys, chosen.value_bytes)
        os.environ.update(state.environment(nodes))
        handler = load_handler("query").lambda_handler
        ways: dict[str, Callable[[Read], float]] = {
            BARE: lambda read: timed(run, read.rounds),
            CLIENT: lambda read: timed(client.mget, *read.names),
            FUNCTION: lambda read: timed(handler, read.event, CONTEXT),
        }
        reads = []
        for key, value in records:
            slot, *names = state.redis_keys(key)
            rounds = bare.prepare([[Call(slot, (b"MGET", *names))]])
            reads.append(Read(rounds, tuple(names), state.get_event(key)))
            assert client.mget(*names)[0].endswith(value)
            state.check(handler(reads[-1].event, CONTEXT), value)
        measure_and_report("lookup", ways, reads, chosen)
        if hasattr(os, "sched_setaffinity"):
            core = min(os.sched_getaffinity(0))
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                os.sched_setaffinity(process.pid, {core})
            measure_and_report("lookup-one-core", ways, reads, chosen)


def measure_and_report(
    bench: str, ways: dict[str, Callable[[Read], float]], reads: list[Read], chosen: argparse.Namespace
) -> None:
    in_turns(ways, reads[:WARM_UP])
    samples = in_turns(ways, reads * chosen.rounds)
    report(
        bench,
        "us",
        [ResultRow(name, latency(taken)) for name, taken in samples.items()],
        reference=BARE,
        settings=vars(chosen) | {"reads_each_way": len(samples[BARE])},
        aim="the function's p50 at most 2x of the bare socket's",
    )


if __name__ == "__main__":
    main()
