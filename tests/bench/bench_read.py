"""All kinds of reads by a warm query function, event in to answer out, beside bare sockets.

The commands of each read are recorded in advance and also sent over bare sockets, where replies are counted
and not parsed; the two alternate. Each number of keys has its own cluster, filled by the job's writer, with
values of 184 bytes in two topics: `flights` (index, history, 200 of its keys with 150 records) and `trips`
(keys customer|number, partitioned by customer). The last table is the curve: p50 by number of keys.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import stage
import state
from bare import Bare, noted, run
from fill import fill, settle
from harness import ResultRow, in_turns, latency, parse, report
from state import CONTEXT, event_of
from tests.support.builders import load_handler

from keylane.model.records import Layout, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from bare import Errand

FLIGHTS = Layout("flights", 9, options=Options(history_count=150))
TRIPS = Layout("trips", 9, partition_by="prefix:|")
PER_CUSTOMER = 1_000
STORIED, RECORDS_EACH = 200, 150
PAGE = 100
FUNCTION = "query function"
BARE = "bare sockets, the same commands"
SLOWEST = "bare-socket MGET, slowest single lane"
WARM_UP = 100


@dataclass(frozen=True, slots=True)
class ReadKind:
    """A kind of read: its requests, the number of records in a correct answer, and the target."""

    name: str
    targets: Callable[[int], tuple[str, bytes]]
    records: int
    aim: str


@dataclass(frozen=True, slots=True)
class Read:
    """A read: the function's event, and its commands for bare sockets, together and lane by lane."""

    event: dict[str, Any]
    rounds: list[list[Errand]]
    lanes: list[list[list[Errand]]]


def kinds_of(count: int) -> list[ReadKind]:
    """Return the kinds of reads of topics with `count` keys; each takes a random number."""

    def many(_: int) -> tuple[str, bytes]:
        keys = [key_of(random.randrange(count)).decode() for _ in range(PAGE)]
        return "/topics/flights/keys:read", json.dumps({"keys": keys}).encode()

    return [
        ReadKind(
            "latest",
            lambda number: (f"/topics/flights/keys/{key_of(number % count).decode()}", b""),
            1,
            "p50 at most 2x of the bare socket's, p99 at most 3x",
        ),
        ReadKind("100 keys", many, PAGE, f"p50 at most 3x of '{SLOWEST}'"),
        ReadKind(
            "page of 100",
            lambda number: (f"/topics/flights/keys?prefix={key_of(number % count)[:-3].decode()}", b""),
            PAGE,
            "p50 at most 10 ms with 1 M keys",
        ),
        ReadKind(
            "page of 100, one lane",
            lambda number: (
                f"/topics/trips/keys?prefix={_trip(number % count).split(b'|')[0].decode()}%7C",
                b"",
            ),
            PAGE,
            "",
        ),
        ReadKind(
            "history of 100",
            lambda number: (f"/topics/flights/keys/H{number % STORIED:07}/history", b""),
            PAGE,
            "p50 at most 2 ms",
        ),
    ]


def _indexed(layout: Layout, parts: int) -> Layout:
    return replace(layout, options=replace(layout.options, index=parts))


def key_of(number: int) -> bytes:
    return b"N%07d" % number


def _trip(number: int) -> bytes:
    return b"c%05d|%04d" % divmod(number, PER_CUSTOMER)


def records_of(count: int, value_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of `flights`, with those of the keys with a history in between."""
    for number in range(count):
        yield key_of(number), state.value_of(number, value_bytes)
    for number in range(STORIED * RECORDS_EACH):
        yield b"H%07d" % (number % STORIED), state.value_of(number, value_bytes)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keys", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    options.add_argument("--reads", type=int, default=2_000, help="of each kind, each way")
    options.add_argument("--value-bytes", type=int, default=184)
    options.add_argument("--parts", type=int, default=1, help="of each lane's index")
    chosen = parse(options)
    curve: dict[int, dict[str, float]] = {}
    for count in chosen.keys:
        with stage.cluster() as nodes:
            flights, trips = (_indexed(layout, chosen.parts) for layout in (FLIGHTS, TRIPS))
            fill(nodes, flights, records_of(count, chosen.value_bytes))
            fill(nodes, trips, ((_trip(n), state.value_of(n, chosen.value_bytes)) for n in range(count)))
            settle(nodes)
            curve[count] = measure_all(nodes, count, chosen.reads, chosen.value_bytes)
    first = f"{chosen.keys[0]:,} keys"
    report(
        "read",
        "us, p50 of the function",
        [ResultRow(f"{count:,} keys", figures) for count, figures in curve.items()],
        reference=first,
        settings=vars(chosen),
        aim="each flat",
    )


def measure_all(nodes: str, count: int, reads: int, value_bytes: int) -> dict[str, float]:
    """Print a table for each kind of read; return the function's p50 of each in microseconds."""
    os.environ.update(state.environment(nodes))
    function = load_handler("query")
    bare = Bare(nodes)
    medians = {}
    for kind in kinds_of(count):
        samples = measure(prepared(function, bare, kind, reads + WARM_UP), function, kind)
        rows = [ResultRow(name, latency(taken[WARM_UP:])) for name, taken in samples.items()]
        name = f"read-{kind.name.replace(', ', '-').replace(' ', '-')}-{count}"
        settings = {"keys": count, "reads_each_way": reads, "value_bytes": value_bytes}
        reference = SLOWEST if SLOWEST in samples else BARE
        report(name, "us", rows, reference=reference, settings=settings, aim=kind.aim)
        medians[kind.name] = rows[-1].figures["p50"]
    bare.close()
    return medians


def prepared(function: ModuleType, bare: Bare, kind: ReadKind, count: int) -> list[Read]:
    """Return events of random requests; each runs once to record its commands and check its answer."""
    redis_state = function.application.parts().store.state
    reads = []
    for _ in range(count):
        target, body = kind.targets(random.randrange(1 << 30))
        event = event_of("POST" if body else "GET", target, body)
        check(function.lambda_handler(event, CONTEXT), kind)
        rounds = noted(redis_state, lambda event=event: check(function.lambda_handler(event, CONTEXT), kind))
        alone = [bare.prepare([[call]]) for call in rounds[0]] if kind.name == "100 keys" else []
        reads.append(Read(event, bare.prepare(rounds), alone))
    return reads


def measure(reads: list[Read], function: ModuleType, kind: ReadKind) -> dict[str, list[float]]:
    """Return the microseconds of every read, by way."""
    ways: dict[str, Callable[[Read], float]] = {
        BARE: lambda read: timed(run, read.rounds),
        FUNCTION: lambda read: timed(function.lambda_handler, read.event, CONTEXT),
    }
    if reads[0].lanes:
        ways = {SLOWEST: lambda read: max(timed(run, lane) for lane in read.lanes), **ways}
    samples = in_turns(ways, reads)
    check(function.lambda_handler(reads[-1].event, CONTEXT), kind)
    return samples


def timed(act: Callable[..., Any], *arguments: Any) -> float:
    """Return the microseconds of one call."""
    begun = time.perf_counter_ns()
    act(*arguments)
    return (time.perf_counter_ns() - begun) / 1000


def check(answer: dict[str, Any], kind: ReadKind) -> None:
    """Exit unless the answer has the expected number of records: its speed would be meaningless."""
    document = json.loads(answer["body"])
    if answer["statusCode"] != 200 or len(document.get("records", [document])) != kind.records:
        sys.exit(f"{kind.name}: the function did not answer with {kind.records} records: {answer}"[:2_000])


if __name__ == "__main__":
    main()
