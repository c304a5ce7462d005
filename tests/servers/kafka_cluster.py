"""Several Kafka brokers and a controller: to kill brokers, and to elect leaders that are not in sync."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.servers.own import PATIENCE_S, READY_WITHIN_S, eventually, guarded, wait_writable

from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.kafka import Kafka
from keylane_local.servers.kafka_format import new_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from confluent_kafka.admin import PartitionMetadata

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
"""Configuration of a topic whose records a replica may lose that was not in sync, and is elected."""

NEAR_REPLICAS = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_CONTROLLER_ID = 100
_COMMON = """\
controller.quorum.voters={controller_id}@{host}:{controller_port}
default.replication.factor={brokers}
offsets.topic.replication.factor={brokers}
transaction.state.log.replication.factor={brokers}
share.coordinator.state.topic.replication.factor={brokers}
# Elections happen only where a test causes one.
auto.leader.rebalance.enable=false
# A replica that was killed leaves the set of those in sync as soon as its session is over.
replica.lag.time.max.ms=4000
unclean.leader.election.interval.ms=500
"""


class KafkaNode(Kafka):
    """A broker of a cluster, or its controller. `number` is its node id; brokers have 1, 2 and so on."""

    def __init__(self, cluster: KafkaCluster, number: int, port: int) -> None:
        home = cluster.data / f"node-{number}"
        super().__init__(
            home, run=home / "run", log=home / "kafka.log", port=port, controller_port=cluster.controller_port
        )
        self.number = self.node_id = number
        self.cluster_id = cluster.cluster_id
        self._cluster = cluster

    @property
    def is_controller(self) -> bool:
        return self.number == _CONTROLLER_ID

    def more_settings(self) -> str:
        common = _COMMON.format(
            controller_id=_CONTROLLER_ID,
            host=HOST,
            controller_port=self.controller_port,
            brokers=self._cluster.broker_count,
        )
        rack = "" if self.is_controller else self._cluster.racks.get(self.number, "")
        if rack:
            common += f"broker.rack={rack}\nreplica.selector.class={NEAR_REPLICAS}\n"
        role, listener = ("controller", "CONTROLLER") if self.is_controller else ("broker", "PLAINTEXT")
        port = self.controller_port if self.is_controller else self.port
        address = f"{listener}://{HOST}:{port}"
        return f"{common}process.roles={role}\nlisteners={address}\nadvertised.listeners={address}\n"


class KafkaCluster:
    """Brokers 1 to `broker_count`, and a controller in a process of its own, which no test stops."""

    def __init__(
        self,
        data: Path,
        broker_count: int = 3,
        node: type[KafkaNode] = KafkaNode,
        *,
        racks: Mapping[int, str] | None = None,
    ) -> None:
        """`racks`: by broker; with them consumers that name one of them read from a replica there."""
        ports = Ports()
        self.data = data
        self.racks = racks or {}
        self.broker_count = broker_count
        self.controller_port = ports.any()
        self.cluster_id = new_id()
        self.controller = node(self, _CONTROLLER_ID, ports.any())
        self.brokers = {number: node(self, number, ports.any()) for number in range(1, broker_count + 1)}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for clients."""
        return ",".join(node.bootstrap for node in self.brokers.values())

    def start(self) -> None:
        """Start what does not run."""
        for node in (self.controller, *self.brokers.values()):
            node.start()

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        """Wait until all brokers answer and know each other. Raises PartFailed."""
        for node in self.brokers.values():
            node.wait_ready(within_s)
        eventually(lambda: all(self._knows_all(node) for node in self.brokers.values()), within_s)

    def stop(self) -> None:
        """Stop all nodes at once, as a crash would: nothing of a test's cluster is kept."""
        for node in (*self.brokers.values(), self.controller):
            node.kill()

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; -1: none."""
        return int(self.partition(topic, partition).leader)

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """The brokers whose replicas of a partition are in sync."""
        return set(self.partition(topic, partition).isrs)

    def partition(self, topic: str, partition: int = 0) -> PartitionMetadata:
        """A partition as the running brokers report it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return admin.list_topics(topic, 60).topics[topic].partitions[partition]

    def elect(self, number: int, topic: str, partition: int = 0, within_s: float = PATIENCE_S) -> None:
        """Make a broker the leader, in sync or not: kill all others, start it, and wait until it leads.

        The others stay down. A replica that was not in sync is elected if the topic has `UNCLEAN`; what it
        lacks is lost.
        """
        for node in self.brokers.values():
            if node.number != number:
                node.kill()
        self.brokers[number].start()
        self.brokers[number].wait_ready(READY_WITHIN_S)
        eventually(lambda: self.leader(topic, partition) == number, within_s)

    def _knows_all(self, node: Kafka) -> bool:
        with contextlib.suppress(KafkaException):
            admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
            return len(admin.list_topics(timeout=2).brokers) == self.broker_count
        return False


@contextlib.contextmanager
def own_kafka_cluster(
    data: Path,
    broker_count: int = 3,
    node: type[KafkaNode] = KafkaNode,
    *,
    racks: Mapping[int, str] | None = None,
) -> Iterator[KafkaCluster]:
    """Yield a cluster that accepts writes; its nodes are killed in the end."""
    with guarded(data):
        cluster = KafkaCluster(data / "kafka", broker_count, node, racks=racks)
        cluster.start()
        try:
            cluster.wait_ready()
            wait_writable(cluster.brokers[1])
            yield cluster
        finally:
            cluster.stop()
