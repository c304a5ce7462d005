"""The servers of a benchmark, in a folder of their own; they stop with the block."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness  # noqa: F401 (gets the project's folder on the path)
from tests.servers.own import create_topic, own_cluster, own_kafka
from tests.servers.standing import StandingServer, standing

from keylane_local.process.guard import guarded
from keylane_local.stack.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """Yield a broker with a topic."""
    with own_folder() as folder, own_kafka(folder) as server:
        create_topic(server.bootstrap, topic, partitions)
        yield server


@contextlib.contextmanager
def standing_server(variables: dict[str, str], workers: int, *more: str) -> Iterator[StandingServer]:
    """Yield a standing server that is ready. `more`: options of `keylane serve`."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        options = "--workers", str(workers), *more
        with standing(Path(folder) / "log", variables, *options, workers=workers) as running:
            yield running
