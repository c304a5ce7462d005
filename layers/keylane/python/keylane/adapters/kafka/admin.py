"""The port Metadata over confluent-kafka's admin client, which is kept between requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from keylane.adapters.kafka.clients import RejectionListener, make, metadata, renewal, result
from keylane.adapters.kafka.errors import translate_read_errors
from keylane.adapters.kafka.options import ClientOptions, Security
from keylane.errors import ConnectionRejected, LogRefused, LogUnavailable
from keylane.model.kafka import Broker, KafkaCluster, KafkaPartition, KafkaTopic

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from keylane.ports import Deadline

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """How to reach the brokers (`bootstrap`: "host:port,host:port"); `timeout_ms` bounds one request."""

    bootstrap: str
    timeout_ms: int = 5_000
    security: Security = field(default_factory=Security)
    client: ClientOptions = field(default_factory=ClientOptions)

    def configuration(self) -> dict[str, Any]:
        """What all clients that only read have in common, without what `security` says."""
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
            **self.client.configuration(),
        }


class Asked:
    """One question to the admin client: its answers are waited for as long as there is time."""

    def __init__(self, client: AdminClient, entrance: RejectionListener, deadline: Deadline) -> None:
        self.client = client
        self._entrance = entrance
        self._deadline = deadline

    @property
    def timeout_s(self) -> float:
        """Seconds left."""
        return self._deadline.remaining_s

    def result(self, future: Future[Found]) -> Found:
        """The answer. Raises KafkaException, TimeoutError, ConnectionRejected."""
        return result(self.client, future, self.timeout_s, self._entrance)

    def topics(self) -> Any:
        """What the brokers tell of all topics. Raises KafkaException, ConnectionRejected."""
        return metadata(self.client, None, self._deadline, self._entrance).topics


class KafkaAdmin:
    """One request at a time. A client that failed is replaced: its leaders may be out of date."""

    def __init__(self, settings: ReaderSettings, renewed: Callable[[], ReaderSettings] | None = None) -> None:
        """`renewed` gives the settings with secrets as they are now: asked when a broker refuses us."""
        self.settings = settings
        self._renewed = renewed
        self._client: AdminClient | None = None
        self._entrance = RejectionListener(settings.security)

    def ask(self, topic: str, question: Callable[[Asked], Found], deadline: Deadline) -> Found:
        """What `question` finds. Where the client fails before the deadline, a new one is asked.

        Raises UnknownTopic, LogUnavailable, LogRefused, BadConfig.
        """
        while True:
            if not deadline.remaining_s:
                raise LogUnavailable("Kafka did not answer in time")
            is_new = self._client is None
            try:
                with translate_read_errors(topic):
                    return question(Asked(self._made(), self._entrance, deadline))
            except ConnectionRejected:
                self._client = None
                if not self.renew() and is_new:
                    raise
            except (LogUnavailable, LogRefused) as error:
                self._client = None
                if is_new or (isinstance(error, LogRefused) and not error.retriable):
                    raise

    def _made(self) -> AdminClient:
        if self._client is None:
            security = self.settings.security
            self._entrance = RejectionListener(security)
            self._client = make(AdminClient, self.settings.configuration(), security, self._entrance)
        return self._client

    def renew(self) -> bool:
        """Take the secrets as they are now; whether they are others than those that were refused."""
        before = self.settings.security
        if self._renewed is not None:
            self.settings = renewal(self._renewed, self.settings)
        return self.settings.security != before

    def close(self) -> None:
        """Forget the client; the next request makes another one."""
        self._client = None


class KafkaMetadata:
    """As `Metadata` has it."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin

    def cluster(self, deadline: Deadline) -> KafkaCluster:
        """As `Metadata.cluster` has it."""

        def describe(asked: Asked) -> Any:
            return asked.result(asked.client.describe_cluster(request_timeout=asked.timeout_s))

        found = self._admin.ask("", describe, deadline)
        brokers = [Broker(each.id, each.host, each.port, each.rack or None) for each in found.nodes]
        brokers.sort(key=lambda broker: broker.number)
        controller = found.controller.id if found.controller is not None else None
        return KafkaCluster(found.cluster_id or "", controller, tuple(brokers))

    def topics(self, deadline: Deadline) -> dict[str, int]:
        """As `Metadata.topics` has it."""
        found = self._admin.ask("", Asked.topics, deadline)
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def topic(self, topic: str, deadline: Deadline) -> KafkaTopic:
        """As `Metadata.topic` has it."""

        def describe(asked: Asked) -> Any:
            # Unlike list_topics(topic) this never creates one, whatever the brokers' settings.
            collection = TopicCollection([topic])
            return asked.result(
                asked.client.describe_topics(collection, request_timeout=asked.timeout_s)[topic]
            )

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
