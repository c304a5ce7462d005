"""Two regions on one Kafka: each has a Redis Cluster, a job and a server of its own.

The second reaches Kafka over a link alone, `ONE_WAY_S` each way, in which nothing but the way takes time: its
bandwidth is this machine's, and a connection is there at once.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.servers.own import own_cluster, own_kafka
from tests.servers.standing import StandingServer, plain_variables, standing
from tests.support import jobs
from tests.torture.brokers import LinkedListener
from tests.torture.links import Mode

from keylane_local.process.ports import HOST
from keylane_local.servers.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.jobs import RunningJob

    from keylane_local.servers.redis_cluster import RedisCluster

ONE_WAY_S = 0.04


class RegionalKafka(Kafka):
    """A broker with a listener for the region that is far from it."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.far = LinkedListener("FAR", Mode.FAR, ONE_WAY_S)

    def more_settings(self) -> str:
        near = f"PLAINTEXT://{self.bootstrap}"
        return (
            f"listeners={near},{self.far.own},CONTROLLER://{HOST}:{self.controller_port}\n"
            f"advertised.listeners={near},{self.far.advertised}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        )


@dataclass(frozen=True, slots=True)
class Region:
    """What runs in a region."""

    redis: RedisCluster
    job: RunningJob
    server: StandingServer


@contextlib.contextmanager
def regional_kafka(folder: Path) -> Iterator[RegionalKafka]:
    """Yield the broker that both regions have."""
    with own_kafka(folder, RegionalKafka) as kafka:
        try:
            yield kafka
        finally:
            kafka.far.links.close()


@contextlib.contextmanager
def running_region(folder: Path, kafka: str, config: str) -> Iterator[Region]:
    """Yield a region over the broker at this address, once its job is ready."""
    folder.mkdir()
    with (
        own_cluster(folder, replicas=0) as redis,
        jobs.running(kafka, redis.addresses, folder, config) as job,
        standing(folder / "server.log", plain_variables(redis.addresses, kafka)) as server,
    ):
        job.wait_for("keylane: ready")
        yield Region(redis, job, server)
