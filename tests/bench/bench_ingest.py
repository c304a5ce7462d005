"""A backlog of records from Kafka into the lanes of a warm job, beside `redis-cli --pipe` of the same SETs.

The job writes a first backlog and is then suspended (SIGSTOP). The measured backlog is produced, and the
clock runs from SIGCONT until every lane's watermark has reached the end of its partition: once with new keys,
then with the same keys again. The reference does not read Kafka, route or guard: it sends the same keys and
payloads as SET commands, from one file per shard, with three `redis-cli --pipe` in parallel. Both have
primaries only, and Redis writes nothing to disk.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import redis
from confluent_kafka import Producer
from harness import ResultRow, add_settings, configured, parse, report
from parts import cpu_seconds, memory_bytes

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.config.functions import redis_settings
from keylane.model.records import Layout
from keylane.ports import Clock, Deadline
from keylane.state import codec
from keylane_local.process.guard import guarded
from keylane_local.stack.plan import StackOptions
from keylane_local.stack.stack import Stack
from keylane_local.stack.watching import Lanes
from keylane_spark.adapters.lane import LaneTarget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from keylane.adapters.redis.cluster import Node

TOPIC = "ingest"
LAYOUT = Layout(TOPIC, 9)
CONFIG = f"[topics.{TOPIC}]\npartitions = {{partitions}}\nstripes = {{stripes}}\n"
NEW, KNOWN = "the job: new keys", "the job: the same keys again"
PIPE, PIPE_KNOWN = "redis-cli --pipe: new keys", "redis-cli --pipe: the same keys again"
TIMEOUT_S = 300


def key_of(number: int) -> bytes:
    return b"key-%010d" % number


def value_of(size: int) -> bytes:
    """Return a JSON object of this many bytes."""
    return b'{"v":"' + b"x" * (size - 8) + b'"}'


def produce(bootstrap: str, first: int, count: int, value: bytes | Sequence[bytes]) -> None:
    """Write records with keys from `first` on; several values are taken in turn."""
    values = [value] if isinstance(value, bytes) else value
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number in range(first, first + count):
        while True:
            try:
                producer.produce(TOPIC, key=key_of(number), value=values[number % len(values)])
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("Kafka did not take all records")


def wait_until_whole(lanes: Lanes) -> float:
    """Return the time (perf_counter) at which all lanes have reached Kafka's current end offsets."""
    ends = lanes.end_offsets()
    until = time.perf_counter() + TIMEOUT_S
    while time.perf_counter() < until:
        reached = lanes.next_offsets()
        if all(reached[partition] >= end for partition, end in ends.items()):
            return time.perf_counter()
        time.sleep(0.02)
    raise SystemExit(f"the lanes did not reach {ends} within {TIMEOUT_S} s")


@contextlib.contextmanager
def running(folder: Path, config: str, **variables: str) -> Iterator[tuple[Stack, Lanes]]:
    """Run a stack of primaries that write nothing to disk, with the job of this keylane.toml.

    `variables`: of its environment, beside the stack's own.
    """
    file = folder / "keylane.toml"
    file.write_text(config)
    options = StackOptions(replicas=0, appendonly=False)
    with (
        guarded(folder / "data") as data,
        Stack(data, file, options=options, variables=variables) as stack,
        Lanes(stack, TOPIC) as lanes,
    ):
        yield stack, lanes


@contextlib.contextmanager
def halted(first: psutil.Process) -> Iterator[None]:
    """Suspend a process and its children within the block."""
    family = [first, *first.children(recursive=True)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # Spark ends idle workers
            process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(family):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def job_seconds(
    stack: Stack, lanes: Lanes, first: int, count: int, value: bytes | Sequence[bytes]
) -> tuple[float, dict[str, float]]:
    """Return how long the job takes, and how long each part of it and its servers computes."""
    with halted(stack.job.program.process):
        produce(stack.kafka_bootstrap, first, count, value)
        time.sleep(1)
        before = cpu_seconds(stack)
        began = time.perf_counter()
    took = wait_until_whole(lanes) - began
    after = cpu_seconds(stack)
    return took, {part: after[part] - before[part] for part in after}


def pipe_seconds(stack: Stack, folder: Path, first: int, count: int, value: bytes) -> float:
    """Write the same records with redis-cli; the files are created before the clock starts."""
    clock = Clock()
    cluster = Cluster(redis_settings(stack.environment()))
    cluster.refresh(Deadline.after_ms(5000, clock))
    shards: dict[Node, BinaryIO] = {}
    prefixes = []
    for partition in range(LAYOUT.partition_count):
        lane = LaneTarget.of(LAYOUT, partition, 0)
        node = cluster.primary(lane.slot)
        if node not in shards:
            shards[node] = (folder / f"{node.port}.resp").open("wb")
        prefixes.append((shards[node], lane.key_prefix))
    now_ms = time.time_ns() // 1_000_000
    for number in range(first, first + count):
        key = key_of(number)
        file, prefix = prefixes[routing.partition_for(key, LAYOUT.partition_count)]
        payload = codec.encode_record(value, number, now_ms)
        name = prefix + key
        file.write(
            b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(payload), payload)
        )
    for file in shards.values():
        file.close()
    began = time.perf_counter()
    pipes = []
    for node, file in shards.items():
        with Path(file.name).open("rb") as commands:
            pipes.append(
                subprocess.Popen(
                    ["redis-cli", "-h", node.host, "-p", str(node.port), "--pipe"],
                    stdin=commands,
                    stdout=subprocess.PIPE,
                )
            )
    for pipe in pipes:
        output, _ = pipe.communicate(timeout=TIMEOUT_S)
        if pipe.returncode or b"errors: 0" not in output:
            raise SystemExit(f"redis-cli --pipe: {output!r}")
    took = time.perf_counter() - began
    for file in shards.values():
        Path(file.name).unlink()
    return took


def empty(stack: Stack) -> None:
    """Delete everything, so that the reference starts empty, as the job did."""
    for node in stack.redis.nodes:
        host, _, port = node.address.rpartition(":")
        with redis.Redis(host, int(port)) as client:
            client.execute_command("FLUSHALL", "SYNC")  # Valkey would free it later, and be measured with it


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--warm-up", type=int, default=3_000_000)
    parser.add_argument("--value-bytes", type=int, default=170)
    parser.add_argument(
        "--option", action="append", default=[], metavar="LINE", help="of the topic, as 'index = true'"
    )
    add_settings(parser)
    chosen = parse(parser, arguments)
    value = value_of(chosen.value_bytes)
    with tempfile.TemporaryDirectory(prefix="keylane-bench-") as name:
        folder = Path(name)
        config = CONFIG.format(partitions=LAYOUT.partition_count, stripes=LAYOUT.stripes)
        config += "".join(f"{line}\n" for line in chosen.option)
        with running(folder, configured(config, chosen)) as (stack, lanes):
            job_seconds(stack, lanes, 0, chosen.warm_up, value)
            before = memory_bytes(stack)
            new_s, cpu_s = job_seconds(stack, lanes, chosen.warm_up, chosen.records, value)
            lane_bytes = memory_bytes(stack) - before
            known_s, _ = job_seconds(stack, lanes, chosen.warm_up, chosen.records, value)
            stack.job.stop()
            stack.kafka.stop()
            empty(stack)
            before = memory_bytes(stack)
            pipe_s = pipe_seconds(stack, folder, chosen.warm_up, chosen.records, value)
            pipe_bytes = memory_bytes(stack) - before
            pipe_known_s = pipe_seconds(stack, folder, chosen.warm_up, chosen.records, value)
    stored = len(key_of(0)) + len(value)
    seconds = {NEW: new_s, KNOWN: known_s, PIPE: pipe_s, PIPE_KNOWN: pipe_known_s}
    report(
        "ingest",
        "records/s",
        [ResultRow(name, {"records/s": chosen.records / took}) for name, took in seconds.items()],
        reference=PIPE,
        settings=vars(chosen),
        facts={
            **{
                f"CPU of {part}, us a record": round(computed / chosen.records * 1e6, 2)
                for part, computed in cpu_s.items()
            },
            "Redis memory beyond key and value, B a record": round(lane_bytes / chosen.records - stored, 1),
            "the same, of bare SETs": round(pipe_bytes / chosen.records - stored, 1),
        },
        aim="500,000 records/s of new keys and 700,000 of known ones, warm, on 2 cores",
    )


if __name__ == "__main__":
    main()
