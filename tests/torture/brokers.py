"""Several brokers, for the torture: the same faults as of one, each of another broker."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from tests.servers.kafka_cluster import UNCLEAN, KafkaCluster, own_kafka_cluster
from tests.servers.own import create_topic, eventually, own_kafka

from keylane_local.servers.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keylane_local.process.program import Program

_REPAIRED_WITHIN_S = 90


class TortureKafka(Kafka):
    """A broker that soon aborts a transaction whose time is over."""

    def more_settings(self) -> str:
        return "transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n"


class Brokers:
    """The interface of one broker over a cluster; each kill is of the next one, so leaders change."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self._turns = itertools.cycle(cluster.brokers.values())
        self._current = next(self._turns)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def program(self) -> Program:
        """The broker whose turn it is."""
        return self._current.program

    def kill(self) -> None:
        self._current = next(self._turns)
        self._current.kill()

    def start(self) -> None:
        self.cluster.start()

    def wait_ready(self) -> None:
        self.cluster.wait_ready()

    def stop(self) -> None:
        self.cluster.stop()

    def truncate(
        self, topic: str, partitions: list[int], write: Callable[[], None], write_again: Callable[[], None]
    ) -> None:
        """Elect a leader that lacks what `write` wrote, and `write_again` before the other brokers are back.

        All brokers run in the end, but may not be in sync yet.
        """
        leader = self.cluster.leader(topic)
        others = sorted(self.cluster.brokers.keys() - {leader})
        for number in others:
            self.cluster.brokers[number].stop()
        eventually(
            lambda: all(self.cluster.in_sync(topic, partition) == {leader} for partition in partitions),
            _REPAIRED_WITHIN_S,
        )
        write()
        self.cluster.elect(others[0], topic, within_s=_REPAIRED_WITHIN_S)
        write_again()
        self.cluster.start()
        self.cluster.wait_ready()


@contextlib.contextmanager
def running_brokers(data: Path, count: int) -> Iterator[Kafka | Brokers]:
    """One broker, or a cluster."""
    if count == 1:
        with own_kafka(data, TortureKafka) as kafka:
            try:
                yield kafka
            finally:
                kafka.stop()
        return
    with own_kafka_cluster(data, count) as cluster:
        yield Brokers(cluster)


def create_replicated(kafka: Kafka | Brokers, topic: str, partitions: int, *, unclean: bool = False) -> None:
    """Create a topic with a replica on each broker."""
    replication = kafka.cluster.broker_count if isinstance(kafka, Brokers) else 1
    config = UNCLEAN if unclean else None
    create_topic(kafka.bootstrap, topic, partitions, replication=replication, config=config)
