"""The servers of a benchmark, in a folder of their own, which stop with the block; and what they cost."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import redis
from confluent_kafka import Producer
from tests.servers.own import create_topic, own_cluster, own_kafka
from tests.servers.standing import StandingServer, standing

from keylane_local.process.guard import guarded
from keylane_local.stack.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from keylane_local.servers.kafka import Kafka
    from keylane_local.servers.redis_cluster import RedisCluster


PREFIX = "keylane-bench-"


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Yield a folder; the processes that have files in it end with the block."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder, guarded(Path(folder)) as data:
        yield data


@contextlib.contextmanager
def whole_stack(config: str, **more: Any) -> Iterator[Stack]:
    """Yield a whole stack, with the job of this keylane.toml. `more`: as of `Stack`."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        file = Path(folder) / "keylane.toml"
        file.write_text(config)
        with guarded(Path(folder) / "data") as data, Stack(data, file, **more) as stack:
            yield stack


@contextlib.contextmanager
def redis_cluster(replicas: int = 1, *, appendonly: bool = True) -> Iterator[RedisCluster]:
    """Yield a cluster of 3 primaries, each with so many replicas."""
    with own_folder() as folder, own_cluster(folder, appendonly=appendonly, replicas=replicas) as servers:
        yield servers


@contextlib.contextmanager
def cluster(replicas: int = 1, *, appendonly: bool = True) -> Iterator[str]:
    """Yield the nodes of such a cluster ("host:port,host:port")."""
    with redis_cluster(replicas, appendonly=appendonly) as servers:
        yield servers.addresses


@contextlib.contextmanager
def broker(topic: str, partitions: int) -> Iterator[Kafka]:
    with own_folder() as folder, own_kafka(folder) as server:
        create_topic(server.bootstrap, topic, partitions)
        yield server


def write_all(bootstrap: str, topic: str, records: Iterable[tuple[Any, ...]]) -> None:
    """Write records (key, value, and the partition unless it is the key's) as fast as Kafka takes them."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number, (key, value, *partition) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key, *partition)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("Kafka did not take all records")


@contextlib.contextmanager
def standing_server(variables: dict[str, str], workers: int, *more: str) -> Iterator[StandingServer]:
    """Yield a standing server that is ready. `more`: options of `keylane serve`."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        options = "--workers", str(workers), *more
        with standing(Path(folder) / "log", variables, *options, workers=workers) as running:
            yield running


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """Return the seconds that Spark's JVM, the job's Python, Redis and Kafka have computed so far."""
    job = stack.job.program.process
    family = [job, *job.children(recursive=True)] if job else []
    java = [process for process in family if process.name() == "java"]
    parts = {
        "JVM": java,
        "Python": [process for process in family if process not in java],
        "Redis": [node.program.process for node in stack.redis.nodes],
        "Kafka": [stack.kafka.program.process],
    }
    seconds = {}
    for part, processes in parts.items():
        seconds[part] = sum(map(_cpu_seconds, processes))
    return seconds


def family_seconds(process: psutil.Process) -> float:
    """Return the seconds that a process and its children have computed so far."""
    return sum(map(_cpu_seconds, [process, *process.children(recursive=True)]))


def _cpu_seconds(process: psutil.Process) -> float:
    """Of a process that has ended since it was listed (Hadoop forks a `chmod` for each file): 0."""
    try:
        found = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(found.user + found.system)


def memory_bytes(stack: Stack) -> int:
    """Return how much memory the primaries use."""
    total = 0
    for node in stack.redis.primaries():
        with redis.Redis(port=node.port) as client:
            total += client.info("memory")["used_memory"]
    return total
