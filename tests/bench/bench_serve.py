"""The standing server under load, beside bare clients of the same servers in the same run.

`serve-lookup`: GETs of random keys over kept connections, beside a plain loop that does the least for each
(plain_loop.py), and beside pipelined `MGET`s of bare sockets.
`serve-put`: one PUT after the other, beside a bare producer that produces and flushes.
`serve-push`: pushes of one record of 4 KiB over many connections, beside a plain loop, and a bare producer
that never waits.

The load comes from `wrk` (Debian's package wrk): a load generator in Python would be the bottleneck. All runs
on the same cores: the servers, the load, and Redis or Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import sys
import time
from typing import TYPE_CHECKING

import bench_write
import psutil
import stage
import state
from confluent_kafka import Producer
from harness import ResultRow, latency, parse, report
from peers import UNIT, Contender, Load, load, measured, require_wrk
from plain_loop import plain_loop

from keylane.adapters.redis.resp import encode_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.servers.standing import StandingServer

SERVER = "keylane serve"
BARE_READS = "bare sockets, pipelined MGET"
BARE_PUT = "bare produce + flush"
STREAM = "bare producer that never waits"
RECORD_BYTES = 4096
WARM_UP_S = 2
PATH = f"/topics/{state.LAYOUT.topic}/keys/{{key}}"
LOOKUP = """
math.randomseed({seed})
request = function()
  return wrk.format("GET", string.format("{path}", math.random(0, {last})))
end
"""
PUSHES = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [[{body}]]
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keys", type=int, default=20_000)
    options.add_argument("--seconds", type=int, default=10)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--connections", type=int, default=48, help="of lookups")
    options.add_argument("--push-connections", type=int, default=256)
    options.add_argument("--puts", type=int, default=1_000)
    options.add_argument("--value-bytes", type=int, default=184)
    chosen = parse(options)
    require_wrk()
    with stage.redis_cluster() as redis:
        nodes = redis.addresses
        state.fill(nodes, chosen.keys, chosen.value_bytes)
        with stage.standing_server(state.environment(nodes), chosen.workers) as running:
            behind = {"Redis": [node.program.process for node in redis.nodes]}
            lookups(nodes, contender(running, behind), chosen, floor("lookups", nodes, behind, chosen))
    with stage.broker(bench_write.TOPIC, bench_write.PARTITIONS) as kafka, stage.cluster() as nodes:
        bootstrap = kafka.bootstrap
        variables = {**state.environment(nodes), "KEYLANE_KAFKA_BOOTSTRAP": bootstrap}
        with stage.standing_server(variables, chosen.workers) as running:
            puts(bootstrap, running.url, chosen)
            behind = {"Kafka": [kafka.program.process]}
            pushes(bootstrap, contender(running, behind), chosen, floor("pushes", bootstrap, behind, chosen))


def floor(
    work: str, where: str, behind: Mapping[str, Sequence[psutil.Process]], chosen: argparse.Namespace
) -> ResultRow:
    """Return the figures of a plain loop over the same servers."""
    script, connections, path = lookup_script(chosen.keys), chosen.connections, ""
    if work == "pushes":
        script, connections, path = PUSHES.format(body=push_body()), chosen.push_connections, "/push"
    with plain_loop(work, where, behind) as running:
        load(f"{running.url}{path}", script, connections, WARM_UP_S)
        _, found = measured(running, Load(path, script, connections, chosen.seconds))
    return ResultRow(running.name, found)


def contender(
    running: StandingServer, behind: Mapping[str, Sequence[psutil.Process]], name: str = SERVER
) -> Contender:
    """Return the server as what is measured, with the processes of the servers behind it."""
    return Contender(name, running.url, psutil.Process(running.process.pid), behind)


def lookup_script(keys: int, path: str = PATH) -> str:
    """Return wrk's script of GETs of random keys of `state.fill`; the path has {key} for the key."""
    pattern = path.replace("%", "%%").replace("{key}", "N%05dAA")
    return LOOKUP.format(path=pattern, seed=random.randrange(1 << 30), last=keys - 1)


def push_body(**fields: object) -> str:
    """Return a push of one record of 4 KiB, with further fields."""
    record = {"topic": bench_write.TOPIC, "key": "k", "data": "x" * RECORD_BYTES}
    return json.dumps({"records": [record], **fields})


def lookups(nodes: str, ours: Contender, chosen: argparse.Namespace, plain: ResultRow) -> None:
    script = lookup_script(chosen.keys)
    load(ours.url, script, chosen.connections, WARM_UP_S)
    _, served = measured(ours, Load("", script, chosen.connections, chosen.seconds))
    bare = asyncio.run(bare_reads(nodes, chosen))
    rows = [ResultRow(SERVER, served), plain, ResultRow(BARE_READS, bare)]
    aim = "as many lookups/s as a plain loop, p99 at most 3 ms"
    report("serve-lookup", UNIT, rows, reference=plain.name, settings=vars(chosen), aim=aim)


async def bare_reads(nodes: str, chosen: argparse.Namespace) -> dict[str, float]:
    """Read by one socket per primary, as many commands in flight as there are connections."""
    commands: dict[tuple[str, int], list[bytes]] = {}
    with state.client(nodes) as client:
        for number in range(chosen.keys):
            slot, value_key, watermark_key = state.redis_keys(b"N%05dAA" % number)
            node = client.nodes_manager.get_node_from_slot(slot)
            packed = encode_command(b"MGET", value_key, watermark_key)
            commands.setdefault((node.host, node.port), []).append(packed)
    in_flight = chosen.connections // len(commands)
    until_s = time.monotonic() + chosen.seconds
    taken: list[float] = []

    async def read(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        while time.monotonic() < until_s:
            begun_s = time.perf_counter()
            writer.write(b"".join(random.choices(commands[address], k=in_flight)))
            found = 0
            while found < in_flight:
                found += (await reader.read(1 << 20)).count(b"*2\r\n")
            taken.extend([(time.perf_counter() - begun_s) * 1000] * in_flight)
        writer.close()

    await asyncio.gather(*map(read, commands))
    found = latency(taken)
    return {"per_s": len(taken) / chosen.seconds, "p50": found["p50"], "p99": found["p99"]}


def puts(bootstrap: str, url: str, chosen: argparse.Namespace) -> None:
    """PUTs and bare writes take turns."""
    value = state.value_of(1, chosen.value_bytes)
    producer = Producer({"bootstrap.servers": bootstrap, **bench_write.SETTINGS})
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    served, bare = [], []
    for number in range(chosen.puts + 100):
        begun_s = time.perf_counter()
        connection.request("PUT", f"/topics/{bench_write.TOPIC}/keys/k{number}", value)
        answer = connection.getresponse()
        answer.read()
        served.append((time.perf_counter() - begun_s) * 1000)
        if answer.status != http.client.CREATED:
            sys.exit(f"a PUT was answered with {answer.status}")
        begun_s = time.perf_counter()
        producer.produce(bench_write.TOPIC, value, b"k%d" % number)
        producer.flush()
        bare.append((time.perf_counter() - begun_s) * 1000)
    connection.close()
    rows = [ResultRow(SERVER, latency(served[100:])), ResultRow(BARE_PUT, latency(bare[100:]))]
    report("serve-put", "ms", rows, reference=BARE_PUT, settings=vars(chosen))


def pushes(bootstrap: str, ours: Contender, chosen: argparse.Namespace, plain: ResultRow) -> None:
    script = PUSHES.format(body=push_body())
    load(f"{ours.url}/push", script, chosen.push_connections, WARM_UP_S)
    _, served = measured(ours, Load("/push", script, chosen.push_connections, chosen.seconds))
    stream = ResultRow(STREAM, {"per_s": bare_stream(bootstrap, chosen.seconds)})
    rows = [ResultRow(SERVER, served), plain, stream]
    aim = "as many synchronous pushes/s as a plain loop, p99 at most 60 ms"
    report("serve-push", UNIT, rows, reference=plain.name, settings=vars(chosen), aim=aim)


def bare_stream(bootstrap: str, seconds: float) -> float:
    """Return how many records a second a bare producer writes."""
    producer = Producer({"bootstrap.servers": bootstrap, **bench_write.SETTINGS, "linger.ms": 5})
    value, written, begun_s = b"x" * RECORD_BYTES, 0, time.perf_counter()
    while time.perf_counter() - begun_s < seconds:
        try:
            producer.produce(bench_write.TOPIC, value, b"k%d" % written)
            written += 1
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    return written / (time.perf_counter() - begun_s)


if __name__ == "__main__":
    main()
