"""Several brokers, for the torture: the same faults as of one, each of another broker; and the password with
which functions and server log in to them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.servers.aws import REGION
from tests.servers.kafka_cluster import KafkaCluster, KafkaNode, own_kafka_cluster
from tests.servers.own import create_topic, eventually, own_kafka
from tests.servers.secure_kafka import set_password
from tests.torture.links import Links, Mode

from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.servers.aws import Aws

    from keylane_local.process.program import Program


MECHANISM = "SCRAM-SHA-512"
_USER = "writers"


class WritersPassword:
    """Changes in the brokers and in the store, one after the other, as rotations do."""

    def __init__(self, kafka: TortureKafka | Brokers, aws: Aws) -> None:
        self._kafka = kafka
        self._aws = aws
        self._secret = f"kafka-{uuid.uuid4().hex}"
        with aws.client("secretsmanager") as store:
            store.create_secret(Name=self._secret, SecretString="{}")
        first = new_password()
        self.change_in_store(first)
        self.change_in_kafka(first)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a host that logs in with it."""
        return {
            **self._aws.environment,
            "AWS_DEFAULT_REGION": REGION,
            "KEYLANE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "KEYLANE_KAFKA_SASL_MECHANISM": MECHANISM,
            "KEYLANE_KAFKA_SASL_USERNAME": _USER,
            "KEYLANE_KAFKA_SASL_PASSWORD": f"secretsmanager:{self._secret}#password",
        }

    def change_in_store(self, password: str) -> None:
        """What hosts find that read their settings from now on, or reuse for some seconds what they have."""
        with self._aws.client("secretsmanager") as store:
            store.put_secret_value(SecretId=self._secret, SecretString=json.dumps({"password": password}))

    def change_in_kafka(self, password: str) -> None:
        """What brokers want from new connections, a moment later. Those that are open stay."""
        set_password(self._kafka.bootstrap, _USER, MECHANISM, password)


def new_password() -> str:
    """A password that nobody has had."""
    return uuid.uuid4().hex


JOB, WRITERS = "JOB", "WRITERS"
"""Names of listeners."""
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_REPAIRED_WITHIN_S = 90
_FORGETS_SOON = """\
log.cleaner.backoff.ms=100
log.retention.check.interval.ms=300
log.initial.task.delay.ms=300
"""
"""What topics allow to remove is removed within a second: by default retention looks every five minutes."""


class LinkedListener:
    """A broker's listener for some clients alone, which reach it over a link."""

    def __init__(self, name: str, rest: Mode = Mode.OPEN, delay_s: float = 0.0) -> None:
        """`rest`, `delay_s`: see `Links`."""
        self.name = name
        self._port = Ports().any()
        self.links = Links([self._port], rest, delay_s)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.links.ports[self._port]}"

    @property
    def own(self) -> str:
        """Where the broker listens, as server.properties has it."""
        return f"{self.name}://{HOST}:{self._port}"

    @property
    def advertised(self) -> str:
        """The link, which clients are sent to."""
        return f"{self.name}://{self.bootstrap}"

    def set(self, mode: Mode, delay_s: float = 0.0) -> AbstractContextManager[None]:
        return self.links.set(self._port, mode, delay_s)


def _listeners(linked: Iterable[LinkedListener], listener: str, *others: str) -> str:
    """Lines of server.properties. Besides those with links only `listener` is advertised to clients."""
    linked = list(linked)
    own = (listener, *others, *(each.own for each in linked))
    advertised = (listener, *(each.advertised for each in linked))
    protocols = dict.fromkeys(("PLAINTEXT", "CONTROLLER", JOB), "PLAINTEXT") | {WRITERS: "SASL_PLAINTEXT"}
    sasl = f"listener.name.{WRITERS.lower()}"
    return (
        f"listeners={','.join(own)}\nadvertised.listeners={','.join(advertised)}\n"
        f"listener.security.protocol.map={','.join(map(':'.join, protocols.items()))}\n"
        f"{sasl}.sasl.enabled.mechanisms={MECHANISM}\n"
        f"{sasl}.{MECHANISM.lower()}.sasl.jaas.config={_SCRAM} required;\n"
    )


class TortureKafka(Kafka):
    """A broker that soon aborts a transaction whose time is over."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.job_listener, self.writers_listener = LinkedListener(JOB), LinkedListener(WRITERS)

    @property
    def job_bootstrap(self) -> str:
        return self.job_listener.bootstrap

    @property
    def writers_bootstrap(self) -> str:
        """The address for the functions and the server."""
        return self.writers_listener.bootstrap

    def more_settings(self) -> str:
        listener = f"PLAINTEXT://{self.host}:{self.port}"
        linked = self.job_listener, self.writers_listener
        listeners = _listeners(linked, listener, f"CONTROLLER://{HOST}:{self.controller_port}")
        return f"transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n{_FORGETS_SOON}{listeners}"

    def link_to(self, _: int) -> LinkedListener:
        """The job's link to a broker of this number."""
        return self.job_listener

    def job_listeners(self) -> list[LinkedListener]:
        """The job's links to all brokers."""
        return [self.job_listener]

    def writers_listeners(self) -> list[LinkedListener]:
        """The links of functions and server to all brokers."""
        return [self.writers_listener]

    def close(self) -> None:
        """End the links."""
        for listener in (self.job_listener, self.writers_listener):
            listener.links.close()


class TortureNode(KafkaNode):
    """A broker of a cluster, with listeners for the job and the writers, or the controller, without any."""

    @cached_property
    def job_listener(self) -> LinkedListener:
        return LinkedListener(JOB)

    @cached_property
    def writers_listener(self) -> LinkedListener:
        return LinkedListener(WRITERS)

    def more_settings(self) -> str:
        settings = super().more_settings() + _FORGETS_SOON
        if self.is_controller:
            return settings
        linked = self.job_listener, self.writers_listener
        return settings + _listeners(linked, f"PLAINTEXT://{HOST}:{self.port}")


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
    def job_bootstrap(self) -> str:
        return ",".join(listener.bootstrap for listener in self.job_listeners())

    @property
    def writers_bootstrap(self) -> str:
        """The addresses for the functions and the server."""
        return ",".join(listener.bootstrap for listener in self.writers_listeners())

    def link_to(self, number: int) -> LinkedListener:
        """The job's link to a broker of this number."""
        listeners = self.job_listeners()
        return listeners[number % len(listeners)]

    def job_listeners(self) -> list[LinkedListener]:
        return [node.job_listener for node in self._nodes()]

    def writers_listeners(self) -> list[LinkedListener]:
        """The links of functions and server to all brokers."""
        return [node.writers_listener for node in self._nodes()]

    def close(self) -> None:
        """End the links."""
        for node in self._nodes():
            for listener in (node.job_listener, node.writers_listener):
                listener.links.close()

    def _nodes(self) -> list[TortureNode]:
        return [node for node in self.cluster.brokers.values() if isinstance(node, TortureNode)]

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
def running_brokers(data: Path, count: int) -> Iterator[TortureKafka | Brokers]:
    """One broker, or a cluster."""
    if count == 1:
        with own_kafka(data, TortureKafka) as kafka:
            try:
                yield kafka
            finally:
                kafka.stop()
                kafka.close()
        return
    with own_kafka_cluster(data, count, TortureNode) as cluster:
        brokers = Brokers(cluster)
        try:
            yield brokers
        finally:
            brokers.close()


def create_replicated(
    kafka: TortureKafka | Brokers, topic: str, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    replication = kafka.cluster.broker_count if isinstance(kafka, Brokers) else 1
    create_topic(kafka.bootstrap, topic, partitions, replication=replication, config=config)
