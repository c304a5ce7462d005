"""`keylane demo`: real flights into Kafka, and their answers over HTTP, told as it happens."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import redis
import urllib3
from confluent_kafka import Producer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from keylane_local.commands import flights
from keylane_local.errors import PartFailed
from keylane_local.stack.watching import Lanes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from keylane_local.stack.stack import Stack

TOPIC = "flights"
VIEW = "departures"
SAMPLES = ("N14228", "N725MQ", "N0EGMQ")
WRITES = 30
_WHOLE_TIMEOUT_S = 300.0
_HTTP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What went into Kafka, and how long that and the way into the state took."""

    records: int
    without_key: int
    produce_s: float
    whole_s: float


def run(stack: Stack, out: Console) -> None:
    """Load, wait until the state is whole, tell what happened, read, write and read back."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
    ) as progress:
        load = _load(stack, progress)
    http = urllib3.PoolManager(timeout=_HTTP_TIMEOUT_S, retries=False)
    with out.status("the view: all flights by airport and day"):
        _wait_for_view(http, stack)
    counts = _keys_by_shard(stack)
    out.print(_told(load, counts, _readable_ms(http, stack.http_url)))
    for key in SAMPLES:
        _show_read(http, stack.http_url, key, out)
    _write_and_read(http, stack.http_url, out)
    _show_view(http, stack.http_url, out)


def _load(stack: Stack, progress: Progress) -> Load:
    bar = progress.add_task("flights into Kafka        ", total=flights.COUNT)
    faults: list[str] = []
    records = without_key = 0
    with Lanes(stack, TOPIC) as lanes:
        producer = Producer(
            {
                "bootstrap.servers": stack.kafka_bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 500_000,
            }
        )
        began_s = time.monotonic()
        for key, value in flights.records():
            while True:
                try:
                    producer.produce(TOPIC, key=key, value=value, on_delivery=_noting(faults))
                    break
                except BufferError:
                    producer.poll(0.1)
            records += 1
            without_key += key is None
            if records % 2000 == 0:
                producer.poll(0)
                progress.update(bar, completed=records)
        left = producer.flush(60)
        if faults or left:
            raise PartFailed("kafka", f"{left + len(faults)} records were not taken: {faults[:1]}")
        produce_s = time.monotonic() - began_s
        progress.update(bar, completed=records)
        ends = lanes.end_offsets()
        bar = progress.add_task("from Kafka into the state", total=sum(ends.values()))
        until_s = began_s + _WHOLE_TIMEOUT_S
        while time.monotonic() < until_s:
            reached = lanes.next_offsets()
            progress.update(bar, completed=sum(min(reached[p], end) for p, end in ends.items()))
            if all(reached[partition] >= end for partition, end in ends.items()):
                return Load(records, without_key, produce_s, time.monotonic() - began_s)
            time.sleep(0.05)
    raise PartFailed("job", f"the state was not whole within {_WHOLE_TIMEOUT_S:.0f} s", stack.job.log)


def _noting(faults: list[str]) -> Callable[[object, object], None]:
    def report(error: object, _: object) -> None:
        if error is not None:
            faults.append(str(error))

    return report


def _readable_ms(http: urllib3.PoolManager, url: str) -> list[float]:
    """Milliseconds from a write's answer to the answer of a read that has it, sorted."""
    took = []
    for number in range(WRITES):
        address = f"{url}/topics/{TOPIC}/keys/demo-{number}"
        written = http.request("PUT", address, body=b'{"number": %d}' % number)
        began_s = time.perf_counter()
        wanted = {"Keylane-Min-Position": written.json()["position"]}
        answer = http.request("GET", address, headers=wanted)
        took.append((time.perf_counter() - began_s) * 1000)
        if answer.status != 200 or answer.json() != {"number": number}:  # noqa: PLR2004
            raise PartFailed("http", f"a write was not read back: {answer.status} {answer.data[:300]!r}")
        http.request("DELETE", address)
    return sorted(took)


def _told(load: Load, counts: dict[str, int], readable_ms: list[float]) -> Table:
    table = Table(title="From Kafka to HTTP", title_justify="left", show_header=False)
    table.add_row("records into Kafka", f"{load.records:,} in {load.produce_s:.1f} s")
    table.add_row("without an aircraft number", f"{load.without_key:,} (no key: counted and skipped)")
    behind_s = load.whole_s - load.produce_s
    table.add_row("state whole", f"{behind_s:.1f} s after the last acknowledgement")
    table.add_row("all in all", f"{load.whole_s:.1f} s: {load.records / load.whole_s:,.0f} records/s")
    table.add_row("keys in the state", f"{sum(counts.values()):,}")
    for shard, count in counts.items():
        table.add_row(f"  on {shard}", f"{count:,}")
    median, worst = readable_ms[len(readable_ms) // 2], readable_ms[-1]
    table.add_row(
        "from a write's answer until it is read",
        f"median {median:.0f} ms, longest {worst:.0f} ms ({len(readable_ms)} writes over HTTP)",
    )
    return table


def _keys_by_shard(stack: Stack) -> dict[str, int]:
    counts = {}
    for node in stack.redis.nodes:
        host, _, port = node.address.rpartition(":")
        with redis.Redis(host, int(port)) as client:
            if client.info("replication")["role"] == "master":
                pattern = f"{{*}}:{TOPIC}:*:v:*"
                counts[node.address] = sum(1 for _ in client.scan_iter(pattern, count=5000))
    return counts


def _show_read(http: urllib3.PoolManager, url: str, key: str, out: Console) -> None:
    path = f"/topics/{TOPIC}/keys/{key}"
    began_s = time.perf_counter()
    answer = http.request("GET", url + path)
    took_ms = (time.perf_counter() - began_s) * 1000
    out.print(f"\n[bold]GET {path}[/]  [dim]{took_ms:.1f} ms[/]")
    out.print(f"{answer.status} {answer.reason}")
    for name in ("ETag", "Keylane-Position", "Keylane-Watermark", "Keylane-Age-Ms"):
        out.print(f"[cyan]{name}[/]: {answer.headers.get(name, '-')}")
    out.print(escape(answer.data.decode()))


def _write_and_read(http: urllib3.PoolManager, url: str, out: Console) -> None:
    path = f"/topics/{TOPIC}/keys/N14228"
    body = b'{"tailnum": "N14228", "origin": "EWR", "dest": "SFO", "note": "written by keylane demo"}'
    began_s = time.perf_counter()
    written = http.request("PUT", url + path, body=body)
    position = written.json()["position"]
    answer = http.request("GET", url + path, headers={"Keylane-Min-Position": position})
    took_ms = (time.perf_counter() - began_s) * 1000
    out.print(f"\n[bold]PUT {path}[/], and at once [bold]GET[/] with Keylane-Min-Position: {position}")
    if answer.status != 200 or answer.data != body:  # noqa: PLR2004
        raise PartFailed("http", f"the write was not read back: {answer.status} {answer.data[:300]!r}")
    out.print(
        f"{written.status} {written.data.decode()}, then {answer.status} {escape(answer.data.decode())}"
    )
    out.print(f"[green]its own write, read back[/] {took_ms:.0f} ms after the PUT was sent")


def _show_view(http: urllib3.PoolManager, url: str, out: Console) -> None:
    """Two days of one airport."""
    path = f"/views/{VIEW}/keys/JFK?from=2013-07-04&to=2013-07-06"
    began_s = time.perf_counter()
    answer = http.request("GET", url + path)
    took_ms = (time.perf_counter() - began_s) * 1000
    out.print(f"\n[bold]GET {path}[/]  [dim]{took_ms:.1f} ms[/]")
    out.print(f"{answer.status} {escape(answer.data.decode())}")


def _wait_for_view(http: urllib3.PoolManager, stack: Stack) -> None:
    until_s = time.monotonic() + _WHOLE_TIMEOUT_S
    while not _has_all(http, stack.http_url):
        if time.monotonic() > until_s:
            raise PartFailed("job", f"the view was not whole within {_WHOLE_TIMEOUT_S:.0f} s", stack.job.log)
        time.sleep(0.2)


def _has_all(http: urllib3.PoolManager, url: str) -> bool:
    answer = http.request("GET", f"{url}/views/{VIEW}")
    if answer.status != 200:  # noqa: PLR2004
        return False
    view = answer.json()
    return not view["building"] and all(sum(lane["offsets"]) >= flights.COUNT for lane in view["lanes"])
