"""Records found by their fields: a warm function and the standing server beside bare sockets and PostgreSQL.

One topic of orders grows from point to point, over 9 lanes and then, in a cluster of its own, over 36 (4
stripes). The job's writer fills it, without Kafka and Spark. The commands of each find are recorded in
advance and sent over bare sockets, too, where replies are counted and not parsed. PostgreSQL has the same
rows with a B-tree for each index, and is asked by a client in this process and through HTTP (peer_find.py).
All of them take turns, one request at a time. An application of Kafka Streams has them in its store, and
scans it for each find (peer_lookup.py), `--scans` times, behind the others: it may take seconds. The clusters
have no replicas and write nothing to disk.

`--memory`: what Redis uses for a record without an index, with one, and with indexes of fields.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import bench_scale
import bench_serve
import peer_find
import peer_lookup
import stage
import state
from bare import Bare, noted, run
from bench_read import timed
from fill import TopicFiller
from harness import ResultRow, in_turns, latency, parse, report
from state import CONTEXT, HEADERS, event_of
from tests.support.builders import load_handler

from keylane.model.records import Layout, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from bare import Errand

OPTIONS = Options(
    index=1,
    fields=(("amount", "number"), ("customer", "text"), ("status", "text")),
    indexes=(("by_customer", ("customer", "amount")),),
)
TOPIC = "orders"
PARTITIONS = 9
OF_CUSTOMER, OPEN = 100, 100_000
"""Orders of each customer, and how many orders are open: those with the lowest numbers."""
LARGEST_CENTS = 1 << 32
PAGE = 100
WARM_UP = 50
FUNCTION = "query function"
BARE = "bare sockets, the same commands"
SQL, SQL_BY_HTTP = "PostgreSQL, by its client", "PostgreSQL, by HTTP"
SCAN = "Kafka Streams, a scan by HTTP"
AIM = "the function's p50 at most 3 ms, its p99 at most 8 ms"
MEMORY = {
    "no index": Options(),
    "an index of keys": Options(index=1),
    "and of one field": Options(index=1, fields=OPTIONS.fields[:1]),
    "and of two fields": Options(index=1, fields=OPTIONS.fields[:2]),
}


@dataclass(frozen=True, slots=True)
class FindKind:
    """A kind of find: conditions of a random order out of so many, and the records of a correct answer.

    `sql`: what PostgreSQL is asked for the same. `arguments`: of it, from the conditions.
    """

    name: str
    conditions: Callable[[int], Mapping[str, str]]
    sql: str
    arguments: Callable[[Mapping[str, str]], Sequence[str]]
    records: int = PAGE


@dataclass(frozen=True, slots=True)
class Find:
    """A find, prepared for all that it is asked of."""

    event: dict[str, Any]
    rounds: list[list[Errand]]
    request: bytes
    sql: str
    arguments: Sequence[str]
    sql_request: bytes


def _cents(number: int) -> int:
    """Return the amount of an order: all differ, and those of the first orders are spread over all."""
    return number * 2_654_435_761 % LARGEST_CENTS


def _amount(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def _customer(number: int) -> str:
    return f"c{number // OF_CUSTOMER:06}"


KINDS = (
    FindKind(
        "1 match",
        lambda number: {"amount": _amount(_cents(number))},
        "amount = %s::numeric limit 100",
        lambda asked: [asked["amount"]],
        records=1,
    ),
    FindKind(
        "100 matches",
        lambda number: {"customer": _customer(number)},
        "customer = %s limit 100",
        lambda asked: [asked["customer"]],
    ),
    FindKind(
        "100,000 matches",
        lambda _: {"status": "open"},
        "status = %s limit 100",
        lambda asked: [asked["status"]],
    ),
    FindKind(
        "a range in its order",
        lambda number: {"amount": f"{_amount(_cents(number) // 10 * 9)}..", "order": "amount"},
        "amount >= %s::numeric order by amount limit 100",
        lambda asked: [asked["amount"].removesuffix("..")],
    ),
    FindKind(
        "two conditions",
        lambda number: {"customer": f"{_customer(number)[:-1]}*", "amount": f"..{LARGEST_CENTS // 200}"},
        "customer >= %s and customer < %s and amount <= %s::numeric limit 100",
        lambda asked: [
            asked["customer"].replace("*", "0"),
            asked["customer"].replace("*", ":"),
            asked["amount"].removeprefix(".."),
        ],
    ),
    FindKind(
        "an index of two fields",
        lambda number: {"customer": _customer(number), "order": "-amount"},
        "customer = %s order by amount desc limit 100",
        lambda asked: [asked["customer"]],
    ),
)


def key_of(number: int) -> bytes:
    return b"o%07d" % number


def value_of(number: int, value_bytes: int) -> bytes:
    """Return an order as JSON of this many bytes."""
    status = "open" if number < OPEN else "done"
    start = f'{{"customer":"{_customer(number)}","status":"{status}","amount":{_amount(_cents(number))},'
    return f'{start}"note":"{"x" * max(0, value_bytes - len(start) - 10)}"}}'.encode()


def records_of(numbers: Iterable[int], value_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    return ((key_of(number), value_of(number, value_bytes)) for number in numbers)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--keys", type=int, nargs="+", default=[10_000, 1_000_000, 5_000_000])
    options.add_argument("--stripes", type=int, nargs="+", default=[1, 4], help="of 9 partitions")
    options.add_argument("--finds", type=int, default=500, help="of each kind, each way")
    options.add_argument("--scans", type=int, default=20, help="of each kind, by Kafka Streams")
    options.add_argument("--value-bytes", type=int, default=184)
    options.add_argument("--memory", type=int, default=0, metavar="KEYS", help="measure memory alone")
    chosen = parse(options)
    if chosen.memory:
        measure_memory(chosen.memory, chosen.value_bytes)
        return
    for stripes in chosen.stripes:
        curve: dict[int, dict[str, float]] = {}
        with orders_over(stripes, chosen.value_bytes) as orders:
            for count in sorted(chosen.keys):
                orders.grow(count)
                curve[count] = measure_all(orders, chosen)
        report(
            f"find-{orders.lanes}",
            "us of the function",
            [ResultRow(f"{count:,} keys", figures) for count, figures in curve.items()],
            reference=f"{min(curve):,} keys",
            settings=vars(chosen),
            aim="each flat",
        )


@dataclass(slots=True)
class Orders:
    """A topic in Redis, and the same rows in PostgreSQL and Kafka Streams if they are there. All may grow."""

    nodes: str
    layout: Layout
    filler: TopicFiller
    rows: peer_find.Rows | None
    scan: peer_lookup.Scan | None
    value_bytes: int
    count: int = 0

    @property
    def lanes(self) -> int:
        return self.layout.partition_count * self.layout.stripes

    def grow(self, count: int) -> None:
        new = range(self.count, count)
        self.filler.add(records_of(new, self.value_bytes))
        if self.rows:
            self.rows.add(records_of(new, self.value_bytes))
        if self.scan:
            self.scan.add(records_of(new, self.value_bytes))
        self.count = count


@contextlib.contextmanager
def orders_over(stripes: int, value_bytes: int) -> Iterator[Orders]:
    """Yield a topic without records in servers of its own, which stop with the block."""
    layout = Layout(TOPIC, PARTITIONS, stripes, options=OPTIONS)
    with contextlib.ExitStack() as stack:
        nodes = stack.enter_context(stage.cluster(replicas=0, appendonly=False))
        filler = stack.enter_context(TopicFiller(nodes, layout))
        rows = stack.enter_context(peer_find.rows(TOPIC)) if peer_find.is_there() else None
        scan = stack.enter_context(peer_lookup.scan(TOPIC, PARTITIONS)) if peer_lookup.is_there() else None
        yield Orders(nodes, layout, filler, rows, scan, value_bytes)


def measure_all(orders: Orders, chosen: argparse.Namespace) -> dict[str, float]:
    """Print a table for each kind of find; return p50 and p99 of the function in microseconds."""
    variables = state.environment(orders.nodes)
    os.environ.update(variables)
    rows, figures = orders.rows, {}
    with contextlib.ExitStack() as stack:
        function, bare = load_handler("query"), Bare(orders.nodes)
        stack.callback(bare.close)
        served = Connection(stack.enter_context(stage.standing_server(variables, 1)).url)
        stack.callback(served.close)
        ways: dict[str, Callable[[Find], Any]] = {
            BARE: lambda find: run(find.rounds),
            FUNCTION: lambda find: function.lambda_handler(find.event, CONTEXT),
            bench_serve.SERVER: partial(asked_of, served),
        }
        if rows:
            peer = Connection(stack.enter_context(rows.served()))
            stack.callback(peer.close)
            ways[SQL] = lambda find: rows.ask(find.sql, find.arguments)
            ways[SQL_BY_HTTP] = lambda find: peer.ask(find.sql_request)
        timings = {name: partial(timed, way) for name, way in ways.items()}
        scanning = Connection(orders.scan.url) if orders.scan else None
        if scanning:
            stack.callback(scanning.close)
        for kind in KINDS:
            finds = prepared(function, bare, kind, orders.count, chosen.finds + WARM_UP)
            first = finds[0]
            scanned = check(ways[bench_serve.SERVER](first), kind)
            for name in ways.keys() & {SQL, SQL_BY_HTTP}:
                check_sql(ways[name](first), kind)
            with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
                samples = in_turns(timings, finds)  # the function prints metrics
            samples = {name: taken[WARM_UP:] for name, taken in samples.items()}
            if scanning:
                ask = partial(asked_of, scanning)
                check(ask(first), kind)
                samples[SCAN] = [timed(ask, find) for find in random.sample(finds, chosen.scans)]
            named = kind.name.replace(" ", "-").replace(",", "")
            report(
                f"find-{orders.lanes}-{orders.count}-{named}",
                "us",
                [ResultRow(name, latency(taken)) for name, taken in samples.items()],
                reference=BARE,
                settings=vars(chosen) | {"keys": orders.count, "lanes": orders.lanes},
                facts={"scanned": scanned, "rounds": len(first.rounds)},
                aim=AIM,
            )
            found = latency(samples[FUNCTION])
            figures |= {f"{kind.name}, {each}": found[each] for each in ("p50", "p99")}
    return figures


def asked_of(connection: Connection, find: Find) -> bytes:
    """Return the body of the answer to a find."""
    return connection.ask(find.request)


def prepared(function: ModuleType, bare: Bare, kind: FindKind, keys: int, count: int) -> list[Find]:
    """Return random finds; each runs once to record its commands and check its answer."""
    redis_state = function.application.parts().store.state

    def ask_and_check(event: dict[str, Any]) -> None:
        check(function.lambda_handler(event, CONTEXT)["body"], kind)

    finds = []
    for _ in range(count):
        conditions = kind.conditions(random.randrange(keys))
        target = f"/topics/{TOPIC}/find?{urlencode(conditions)}"
        event = event_of("GET", target)
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            rounds = noted(redis_state, partial(ask_and_check, event))
        arguments = kind.arguments(conditions)
        asked = urlencode([("where", kind.sql), *(("of", each) for each in arguments)])
        finds.append(
            Find(event, bare.prepare(rounds), get(target), kind.sql, arguments, get(f"/{TOPIC}?{asked}"))
        )
    return finds


def check(body: str | bytes, kind: FindKind) -> int:
    """Exit unless the answer has the expected number of records; return how many entries were looked at."""
    document = json.loads(body)
    if len(document.get("records", ())) != kind.records:
        sys.exit(f"{kind.name}: the answer has not {kind.records} records: {body!r}"[:2_000])
    scanned: int = document["scanned"]
    return scanned


def check_sql(body: str | bytes, kind: FindKind) -> None:
    """Exit unless PostgreSQL has found the expected number of rows."""
    if len(json.loads(body)) != kind.records:
        sys.exit(f"{kind.name}: PostgreSQL has not found {kind.records} rows: {body!r}"[:2_000])


def get(target: str) -> bytes:
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in HEADERS)]
    return "\r\n".join([*lines, "", ""]).encode()


class Connection:
    """A kept connection to a server, which reads as little of an answer as it can."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Return the body of the answer to a request. Exits unless it is 200."""
        self._socket.sendall(request)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head, found = data[:end].lower(), [data[end + 4 :]]
        if not head.startswith(b"http/1.1 200"):
            sys.exit(f"the server has answered {data[:1000]!r}")
        left = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) - len(found[0])
        while left > 0:
            found.append(self._receive())
            left -= len(found[-1])
        return b"".join(found)

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        return self._socket.recv(1 << 20) or sys.exit("the server has closed the connection")


def measure_memory(count: int, value_bytes: int) -> None:
    """Report what Redis uses for a record, by what is kept of it; each has a cluster of its own."""
    rows = []
    for name, options in MEMORY.items():
        layout = Layout(TOPIC, PARTITIONS, options=options)
        with stage.cluster(replicas=0, appendonly=False) as nodes, TopicFiller(nodes, layout) as filler:
            empty = bench_scale.used_bytes(nodes)
            filler.add(records_of(range(count), value_bytes))
            rows.append(ResultRow(name, {"B a record": (bench_scale.used_bytes(nodes) - empty) / count}))
            print(f"{name}: measured at {time.strftime('%X')}", flush=True)
    before = [0.0, *(row.figures["B a record"] for row in rows)]
    rows = [
        replace(row, figures={**row.figures, "more": row.figures["B a record"] - before[number]})
        for number, row in enumerate(rows)
    ]
    stored = {"key and value, B": len(key_of(0)) + value_bytes}
    settings = {"keys": count, "value_bytes": value_bytes}
    report("find-memory", "B", rows, reference=rows[0].name, settings=settings, facts=stored)


if __name__ == "__main__":
    main()
