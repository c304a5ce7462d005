"""The port Metadata over confluent-kafka's admin client, which is kept between requests."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from keylane.adapters.kafka_errors import translate_read_errors
from keylane.errors import LogRefused, LogUnavailable
from keylane.kafka import Broker, KafkaCluster, KafkaPartition, KafkaTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.ports import Deadline

_log = logging.getLogger(__name__)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """How to reach the brokers (`bootstrap`: "host:port,host:port"); `timeout_ms` bounds one request.

    `options`: librdkafka's own, secrets among them, which no repr shows.
    """

    bootstrap: str
    timeout_ms: int = 5_000
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def configuration(self) -> dict[str, Any]:
        """What all clients that only read have in common."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "keylane-explore",
            "allow.auto.create.topics": False,
            # A connection that died while the function was frozen is given up in time for another.
            "socket.timeout.ms": max(2_000, self.timeout_ms // 2),
            "socket.keepalive.enable": True,
            "socket.nagle.disable": True,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 20,
            **self.options,
        }


class KafkaAdmin:
    """One request at a time. A client that failed is replaced: its leaders may be out of date."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._client: AdminClient | None = None

    def ask(self, topic: str, question: Callable[[AdminClient, float], Found], deadline: Deadline) -> Found:
        """What `question` finds, given the client and the seconds that are left.

        Where the client fails before the deadline, a new one is asked. Raises UnknownTopic, LogUnavailable,
        LogRefused.
        """
        while True:
            if not deadline.remaining_s:
                raise LogUnavailable("Kafka did not answer in time")
            is_new = self._client is None
            try:
                with translate_read_errors(topic):
                    if self._client is None:
                        self._client = AdminClient(self._settings.configuration(), logger=_log)
                    return question(self._client, deadline.remaining_s)
            except (LogUnavailable, LogRefused) as error:
                self._client = None
                if is_new or (isinstance(error, LogRefused) and not error.retriable):
                    raise

    def close(self) -> None:
        """Forget the client; the next request makes another one."""
        self._client = None


class KafkaMetadata:
    """As `Metadata` has it."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin

    def cluster(self, deadline: Deadline) -> KafkaCluster:
        """As `Metadata.cluster` has it."""

        def describe(client: AdminClient, timeout_s: float) -> Any:
            return client.describe_cluster(request_timeout=timeout_s).result(timeout_s)

        found = self._admin.ask("", describe, deadline)
        brokers = [Broker(each.id, each.host, each.port, each.rack or None) for each in found.nodes]
        brokers.sort(key=lambda broker: broker.number)
        controller = found.controller.id if found.controller is not None else None
        return KafkaCluster(found.cluster_id or "", controller, tuple(brokers))

    def topics(self, deadline: Deadline) -> dict[str, int]:
        """As `Metadata.topics` has it."""

        def list_all(client: AdminClient, timeout_s: float) -> Any:
            return client.list_topics(timeout=timeout_s).topics

        found = self._admin.ask("", list_all, deadline)
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def topic(self, topic: str, deadline: Deadline) -> KafkaTopic:
        """As `Metadata.topic` has it."""

        def describe(client: AdminClient, timeout_s: float) -> Any:
            # Unlike list_topics(topic) this never creates one, whatever the brokers' settings.
            asked = client.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
            return asked[topic].result(timeout_s)

        found = self._admin.ask(topic, describe, deadline)
        partitions = [
            KafkaPartition(
                each.id,
                None if each.leader is None or each.leader.id < 0 else each.leader.id,
                tuple(node.id for node in each.replicas),
                tuple(sorted(node.id for node in each.isr)),
            )
            for each in found.partitions
        ]
        partitions.sort(key=lambda partition: partition.number)
        return KafkaTopic(found.name, str(found.topic_id), bool(found.is_internal), tuple(partitions))
