"""Whole topics: `GET /topics/{topic}/snapshot` beside a consumer of the log, and SCAN with MGET.

A topic has `--keys` keys with `--updates` records each in Kafka, and the last of them in Redis. Rows are
keys, whichever way they come:

- snapshot: the lines, read as bytes and counted, from one process of `keylane serve`.
- sync: the Python client's mapping, once it has all of them.
- spark: `count()` of the Python client's data source, whose tasks read at a time; without the start of Spark.
- consumer: a process that reads the log from its beginning into a dict.
- scan: SCAN and MGET of each primary, by one client that knows no positions.

`look-up` has the milliseconds of single look-ups at the same server, alone and while another process reads
a snapshot. `change` has those from Kafka's acknowledgement until a mapping has a record, with a real job.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import multiprocessing
import random
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import stage
import state
from bench_freshness import KafkaWriter
from confluent_kafka import Consumer, TopicPartition
from fill import fill
from harness import ResultRow, latency, parse, report

from keylane import routing
from keylane.model.records import Layout
from keylane_client import Absent, Client, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TOPIC, PARTITIONS = "snapshot", 9
AT_ONCE = 10_000
ALONE_S = 5.0
WARM_UP = 60


def main() -> None:
    """Measure, print a table for each number of updates, and write the results."""
    options = argparse.ArgumentParser(description="whole topics, beside a consumer and SCAN")
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--updates", type=int, nargs="+", default=[1, 10])
    options.add_argument("--value-bytes", type=int, default=150)
    options.add_argument("--changes", type=int, default=400)
    chosen = parse(options)
    for updates in chosen.updates:
        settings = vars(chosen) | {"updates": updates}
        whole, single = measure(chosen.keys, updates, chosen.value_bytes)
        report(f"snapshot-{updates}", "rows per second", whole, reference="scan", settings=settings)
        unit = "milliseconds of a look-up"
        report(f"snapshot-{updates}-beside", unit, single, reference="alone", settings=settings)
    if chosen.changes:
        rows = [ResultRow("change", latency(changes(chosen.changes)))]
        report("snapshot-change", "ms", rows, reference="change", settings=vars(chosen), aim="p50 50 ms")


def measure(keys: int, updates: int, value_bytes: int) -> tuple[list[ResultRow], list[ResultRow]]:
    """Return the rows of one topic, and those of look-ups beside. Its servers end with it."""
    with stage.cluster(appendonly=False, replicas=0) as nodes, stage.broker(TOPIC, PARTITIONS) as kafka:
        stage.write_all(kafka.bootstrap, TOPIC, all_records(keys, updates, value_bytes))
        fill(nodes, Layout(TOPIC, PARTITIONS), last_records(keys, value_bytes))
        variables = state.environment(nodes) | {
            "KEYLANE_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "KEYLANE_KAFKA_SECURITY": "plaintext",
        }
        rows = [
            ResultRow("scan", {"rows/s": keys / timed(lambda: scan(nodes), keys)}),
            ResultRow(
                "consumer", {"rows/s": keys / timed(lambda: consume(kafka.bootstrap, keys * updates), keys)}
            ),
        ]
        with stage.standing_server(variables, 1) as server:
            for coding in ("identity", "gzip", "zstd"):
                took_s = timed(lambda: snapshot(server.url, coding), keys)  # noqa: B023 (called at once)
                rows.append(ResultRow(f"snapshot, {coding}", {"rows/s": keys / took_s}))
            took_s = timed(lambda: sync(server.url), keys)
            rows.append(ResultRow("sync", {"rows/s": keys / took_s}))
            with spark_session() as spark:
                took_s = timed(lambda: count_by_spark(spark, server.url), keys)
            rows.append(ResultRow("spark", {"rows/s": keys / took_s}))
            return rows, [ResultRow(name, figures) for name, figures in look_ups(server.url, keys)]


def key_of(number: int) -> bytes:
    return b"key-%09d" % number


def last_records(keys: int, value_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(keys):
        yield key_of(number), state.value_of(number, value_bytes)


def all_records(keys: int, updates: int, value_bytes: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield all records with their partitions, the updates of a key far from one another."""
    partitions = [routing.partition_for(key_of(number), PARTITIONS) for number in range(keys)]
    for _ in range(updates):
        for number, partition in enumerate(partitions):
            yield key_of(number), state.value_of(number, value_bytes), partition


def timed(read: object, keys: int) -> float:
    """Return how long it takes to read all keys."""
    begun_s = time.perf_counter()
    found = read()  # type: ignore[operator]
    took_s = time.perf_counter() - begun_s
    if found != keys:
        raise SystemExit(f"{found} keys were found, {keys} are there")
    return took_s


def snapshot(url: str, coding: str) -> int:
    """Read a snapshot; return the number of its rows, as its keys have one each."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
    connection.request("GET", f"/topics/{TOPIC}/snapshot", headers={"Accept-Encoding": coding})
    answer = connection.getresponse()
    decompress = decompressor(coding)
    lines, tail = 0, b""
    while data := answer.read(1 << 18):
        plain = decompress(data)
        lines += plain.count(b"\n")
        tail = (tail + plain)[-200:]
    connection.close()
    if b'{"end": ' not in tail:
        raise SystemExit(f"the snapshot ended early: {tail!r}")
    return lines - PARTITIONS - 2


def decompressor(coding: str):
    """Return what undoes a content coding, piece by piece."""
    if coding == "gzip":
        import zlib  # noqa: PLC0415 (one of three)

        return zlib.decompressobj(31).decompress
    if coding == "zstd":
        import zstandard  # noqa: PLC0415 (as above)

        return zstandard.ZstdDecompressor().decompressobj().decompress
    return bytes


def consume(bootstrap: str, records: int) -> int:
    """Read the log into a dict; return how many keys it has."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    rows: dict[bytes, bytes | None] = {}
    read = 0
    while read < records:
        messages = consumer.consume(AT_ONCE, 1.0)
        for message in messages:
            rows[message.key()] = message.value()
        read += len(messages)
    consumer.close()
    return len(rows)


def scan(nodes: str) -> int:
    """Read all values by SCAN and MGET; return how many there are."""
    found = 0
    with state.node_clients(nodes) as clients:
        for client in clients:
            cursor = 0
            while True:
                cursor, names = client.scan(cursor, match=f"{{*}}:{TOPIC}:1:v:*", count=1_000)
                by_tag: dict[bytes, list[bytes]] = {}
                for name in names:
                    by_tag.setdefault(name.partition(b"}")[0], []).append(name)
                found += sum(len(client.mget(own)) for own in by_tag.values())
                if not cursor:
                    break
    return found


def sync(url: str) -> int:
    """Keep the topic in a mapping; return how many records it has at first."""
    with Client(url) as client, client.topic(TOPIC).sync() as records:
        return len(records)


@contextlib.contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Yield a session with the data source, which has run a first query."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (its import takes long)

    from keylane_client.spark import register  # noqa: PLC0415

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    spark.range(1).count()
    yield spark
    spark.stop()


def count_by_spark(spark: SparkSession, url: str) -> int:
    """Count the rows of a table of Spark."""
    return spark.read.format("keylane").options(url=url, topic=TOPIC).load().count()


def changes(count: int) -> list[float]:
    """Return the milliseconds from the acknowledgement of so many records, one by one, to a mapping."""
    config = f"[topics.{TOPIC}]\npartitions = {PARTITIONS}\n"
    arrived = threading.Event()
    arrived_s = 0.0

    def note(_: Record | Absent) -> None:
        nonlocal arrived_s
        arrived_s = time.perf_counter()
        arrived.set()

    samples = []
    with stage.whole_stack(config) as stack, Client(stack.http_url) as client:
        writer = KafkaWriter(stack.kafka_bootstrap)
        with client.topic(TOPIC).sync(on_change=note):
            for number in range(count + WARM_UP):
                arrived.clear()
                acknowledged_s, _ = writer.write(TOPIC, b"change-%d" % number, b'{"n":%d}' % number)
                if not arrived.wait(60):
                    raise SystemExit("a change has not reached the mapping")
                samples.append((arrived_s - acknowledged_s) * 1000)
                time.sleep(0.02 + 0.001 * (number * 37 % 83))
    return samples[WARM_UP:]


def look_ups(url: str, keys: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the milliseconds of look-ups alone, and beside a snapshot."""
    is_over = threading.Event()
    threading.Timer(ALONE_S, is_over.set).start()
    yield "alone", latency(look_up_until(url, keys, is_over))
    is_over = threading.Event()
    # A process: what reads the lines must not compete with what looks up for the interpreter.
    reading = multiprocessing.get_context("spawn").Process(target=snapshot, args=(url, "identity"))
    reading.start()

    def wait() -> None:
        reading.join()
        is_over.set()

    threading.Thread(target=wait, daemon=True).start()
    yield "beside a snapshot", latency(look_up_until(url, keys, is_over))


def look_up_until(url: str, keys: int, is_over: threading.Event) -> list[float]:
    """Return the milliseconds of look-ups, one after the other."""
    parts, source = urlsplit(url), random.Random(1)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    samples = []
    while not is_over.is_set():
        path = f"/topics/{TOPIC}/keys/{key_of(source.randrange(keys)).decode()}"
        begun_s = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        samples.append((time.perf_counter() - begun_s) * 1000)
    connection.close()
    return samples


if __name__ == "__main__":
    main()
