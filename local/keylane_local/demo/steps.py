"""`keylane demo`: write real flights into Kafka and read them over HTTP, reporting each step."""

import time
from dataclasses import dataclass, field
from typing import Any

import redis
import urllib3
from confluent_kafka import Producer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from keylane_local.demo import flights
from keylane_local.errors import PartFailed
from keylane_local.stack.stack import Stack
from keylane_local.stack.watching import Lanes

TOPIC = "flights"
VIEW = "departures"
SAMPLES = ("N14228", "N725MQ", "N0EGMQ")
FOUND = f"/topics/{TOPIC}/find?origin=JFK&dep_delay=60..&order=-dep_delay&limit=3&fields=dest,dep_delay"
WRITES = 30
SHOWN_HEADERS = ("ETag", "Keylane-Position", "Keylane-Watermark", "Keylane-Age-Ms")
_COMPLETE_TIMEOUT_S = 300.0
_HTTP_TIMEOUT_S = 30.0
_OK, _NO_FIELDS = 200, 409


@dataclass(slots=True)
class LoadReport:
    """How many flights went into Kafka, and how long that and the state's catching up took."""

    records: int = 0
    without_key: int = 0
    produce_s: float = 0.0
    complete_s: float = 0.0


@dataclass(slots=True)
class _DeliveryErrors:
    errors: list[str] = field(default_factory=list)

    def report(self, error: object, _: object) -> None:
        """Keep the error of a record, if it has one (librdkafka's callback)."""
        if error is not None:
            self.errors.append(str(error))


class _Api:
    """The stack's API, with the time of its last answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = urllib3.PoolManager(timeout=_HTTP_TIMEOUT_S, retries=False)
        self.took_ms = 0.0

    def request(self, method: str, path: str, **options: Any) -> urllib3.BaseHTTPResponse:
        started_s = time.perf_counter()
        answer = self._http.request(method, self._url + path, **options)
        self.took_ms = (time.perf_counter() - started_s) * 1000
        return answer

    def read_written(self, path: str, position: str, body: bytes) -> urllib3.BaseHTTPResponse:
        """Read a key at or after `position`; raise PartFailed unless it has the value `body`."""
        answer = self.request("GET", path, headers={"Keylane-Min-Position": position})
        if answer.status != _OK or answer.data != body:
            raise PartFailed("server", f"a write was not read back: {answer.status} {answer.data[:300]!r}")
        return answer


def run(stack: Stack, out: Console) -> None:
    """Load the flights, wait until the state is complete, report, then read, write and read back."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=out,
    ) as progress:
        report = _load(stack, progress)
    api = _Api(stack.http_url)
    with out.status("the view: all flights by airport and day"):
        _wait_for_view(api, stack)
    out.print(_render_report(report, _count_keys_by_shard(stack), _measure_writes(api)))
    for key in SAMPLES:
        _show_read(api, key, out)
    _show_found(api, out)
    _write_and_read(api, out)
    _show_view(api, out)


def _load(stack: Stack, progress: Progress) -> LoadReport:
    started_s = time.monotonic()
    report = LoadReport()
    with Lanes(stack, TOPIC) as lanes:
        _produce(stack, progress, report)
        report.produce_s = time.monotonic() - started_s
        _wait_for_state(stack, lanes, progress, started_s + _COMPLETE_TIMEOUT_S)
    report.complete_s = time.monotonic() - started_s
    return report


def _produce(stack: Stack, progress: Progress, report: LoadReport) -> None:
    bar = progress.add_task("flights into Kafka        ", total=flights.COUNT)
    failed = _DeliveryErrors()
    producer = Producer(
        {
            "bootstrap.servers": stack.kafka_bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
        }
    )
    for key, value in flights.records():
        while True:
            try:
                producer.produce(TOPIC, key=key, value=value, on_delivery=failed.report)
                break
            except BufferError:
                producer.poll(0.1)
        report.records += 1
        report.without_key += key is None
        if report.records % 2000 == 0:
            producer.poll(0)
            progress.update(bar, completed=report.records)
    undelivered = producer.flush(60)
    if failed.errors or undelivered:
        count = undelivered + len(failed.errors)
        raise PartFailed("kafka", f"{count} records were not acknowledged: {failed.errors[:1]}")
    progress.update(bar, completed=report.records)


def _wait_for_state(stack: Stack, lanes: Lanes, progress: Progress, until_s: float) -> None:
    ends = lanes.end_offsets()
    bar = progress.add_task("from Kafka into the state", total=sum(ends.values()))
    while time.monotonic() < until_s:
        reached = lanes.next_offsets()
        progress.update(bar, completed=sum(min(reached[p], end) for p, end in ends.items()))
        if all(reached[partition] >= end for partition, end in ends.items()):
            return
        time.sleep(0.05)
    raise PartFailed("job", f"the state is not complete after {_COMPLETE_TIMEOUT_S:.0f} s", stack.job.log)


def _wait_for_view(api: _Api, stack: Stack) -> None:
    until_s = time.monotonic() + _COMPLETE_TIMEOUT_S
    while not _is_view_complete(api):
        if time.monotonic() > until_s:
            reason = f"the view is not complete after {_COMPLETE_TIMEOUT_S:.0f} s"
            raise PartFailed("job", reason, stack.job.log)
        time.sleep(0.2)


def _is_view_complete(api: _Api) -> bool:
    answer = api.request("GET", f"/views/{VIEW}")
    if answer.status != _OK:
        return False
    view = answer.json()
    return not view["building"] and all(sum(lane["offsets"]) >= flights.COUNT for lane in view["lanes"])


def _measure_writes(api: _Api) -> list[float]:
    """Return the milliseconds from a write's answer to the answer of a read that has it, sorted."""
    took_ms = []
    for number in range(WRITES):
        path, body = f"/topics/{TOPIC}/keys/demo-{number}", b'{"number": %d}' % number
        position = api.request("PUT", path, body=body).json()["position"]
        api.read_written(path, position, body)
        took_ms.append(api.took_ms)
        api.request("DELETE", path)
    return sorted(took_ms)


def _count_keys_by_shard(stack: Stack) -> dict[str, int]:
    counts = {}
    for node in stack.redis.nodes:
        host, _, port = node.address.rpartition(":")
        with redis.Redis(host, int(port)) as client:
            if client.info("replication")["role"] == "master":
                pattern = f"{{*}}:{TOPIC}:*:v:*"
                counts[node.address] = sum(1 for _ in client.scan_iter(pattern, count=5000))
    return counts


def _render_report(report: LoadReport, counts: dict[str, int], writes_ms: list[float]) -> Table:
    table = Table(title="From Kafka to HTTP", title_justify="left", show_header=False)
    table.add_row("records into Kafka", f"{report.records:,} in {report.produce_s:.1f} s")
    table.add_row("without an aircraft number", f"{report.without_key:,} (no key: counted and skipped)")
    behind_s = report.complete_s - report.produce_s
    table.add_row("state complete", f"{behind_s:.1f} s after the last acknowledgement")
    rate = report.records / report.complete_s
    table.add_row("in total", f"{report.complete_s:.1f} s: {rate:,.0f} records/s")
    table.add_row("keys in the state", f"{sum(counts.values()):,}")
    for shard, count in counts.items():
        table.add_row(f"  on {shard}", f"{count:,}")
    median_ms, worst_ms = writes_ms[len(writes_ms) // 2], writes_ms[-1]
    table.add_row(
        "from a write's answer until it is read",
        f"median {median_ms:.0f} ms, longest {worst_ms:.0f} ms ({len(writes_ms)} writes over HTTP)",
    )
    return table


def _show_read(api: _Api, key: str, out: Console) -> None:
    path = f"/topics/{TOPIC}/keys/{key}"
    answer = api.request("GET", path)
    out.print(f"\n[bold]GET {path}[/]  [dim]{api.took_ms:.1f} ms[/]")
    out.print(f"{answer.status} {answer.reason}")
    for name in SHOWN_HEADERS:
        out.print(f"[cyan]{name}[/]: {answer.headers.get(name, '-')}")
    out.print(escape(answer.data.decode()))


def _show_found(api: _Api, out: Console) -> None:
    """Show the aircraft whose last flight left one airport latest, if the topic has the fields."""
    answer = api.request("GET", FOUND)
    if answer.status == _NO_FIELDS:
        return
    out.print(f"\n[bold]GET {FOUND}[/]  [dim]{api.took_ms:.1f} ms[/]")
    out.print(f"{answer.status} {escape(answer.data.decode())}")


def _write_and_read(api: _Api, out: Console) -> None:
    path = f"/topics/{TOPIC}/keys/N14228"
    body = b'{"tailnum": "N14228", "origin": "EWR", "dest": "SFO", "note": "written by keylane demo"}'
    started_s = time.perf_counter()
    written = api.request("PUT", path, body=body)
    position = written.json()["position"]
    answer = api.read_written(path, position, body)
    took_ms = (time.perf_counter() - started_s) * 1000
    out.print(f"\n[bold]PUT {path}[/], then [bold]GET[/] with Keylane-Min-Position: {position}")
    out.print(
        f"{written.status} {written.data.decode()}, then {answer.status} {escape(answer.data.decode())}"
    )
    out.print(f"[green]the write was read back[/] {took_ms:.0f} ms after the PUT was sent")


def _show_view(api: _Api, out: Console) -> None:
    """Show two days of one airport."""
    path = f"/views/{VIEW}/keys/JFK?from=2013-07-04&to=2013-07-06"
    answer = api.request("GET", path)
    out.print(f"\n[bold]GET {path}[/]  [dim]{api.took_ms:.1f} ms[/]")
    out.print(f"{answer.status} {escape(answer.data.decode())}")
