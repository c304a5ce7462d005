"""confluent-kafka's admin client for functions and the job, and the port Metadata over it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from confluent_kafka.admin import AdminClient

from keylane.adapters.kafka.admin_session import AdminSession
from keylane.adapters.kafka.api_versions import fetch_api_versions
from keylane.adapters.kafka.clients import RejectionListener, make_client, reload_settings
from keylane.adapters.kafka.errors import translate_kafka_errors
from keylane.adapters.kafka.options import ClientOptions, Connection, Security
from keylane.errors import ConnectionRejected, LogRefused, LogUnavailable, UnknownTopic
from keylane.model.kafka import ApiVersion, Broker, KafkaCluster, KafkaTopic
from keylane.model.kafka import TopicPartition as TopicAndNumber
from keylane.model.kafka_groups import ConsumerGroup, KafkaSetting, SettingOwner
from keylane.ports import Deadline

Found = TypeVar("Found")
Settings = TypeVar("Settings", bound="ReaderSettings | Connection")
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """How to reach the brokers (`bootstrap`: "host:port,host:port"); `timeout_ms` bounds one request."""

    bootstrap: str
    timeout_ms: int
    security: Security = field(default_factory=Security)
    client: ClientOptions = field(default_factory=ClientOptions)

    def configuration(self) -> dict[str, Any]:
        """Return librdkafka's options of a client that only reads, without the options of `security`."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "keylane-explore",
            "allow.auto.create.topics": False,
            # A connection that died while the function was frozen must fail early enough to open another.
            "socket.timeout.ms": max(2_000, self.timeout_ms // 2),
            "socket.keepalive.enable": True,
            "socket.nagle.disable": True,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 20,
            **self.client.configuration(),
        }


class KafkaAdmin(Generic[Settings]):
    """An admin client, kept between requests and replaced when it fails: its leaders may be out of date.

    Several threads may use it.
    """

    def __init__(self, settings: Settings, renewed: Callable[[], Settings] | None = None) -> None:
        """`renewed` returns the settings with current secrets: called when a broker rejects the old ones."""
        self.settings = settings
        self._renewed = renewed
        self._client: tuple[AdminClient, RejectionListener] | None = None

    def request(
        self,
        deadline: Deadline,
        method: Callable[Concatenate[AdminSession, Arguments], Found],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Found:
        """Call a method of `AdminSession`; while there is time, a new client replaces a kept one that fails.

        Raises UnknownTopic, LogUnavailable, LogRefused, BadConfig.
        """
        while True:
            if not deadline.remaining_s:
                raise LogUnavailable("Kafka did not answer in time")
            is_new = self._client is None
            try:
                return self.request_once(deadline, method, *arguments, **options)
            except ConnectionRejected:
                if not self.renew() and is_new:
                    raise
            except LogUnavailable:
                if is_new:
                    raise
            except LogRefused as error:
                if is_new or not error.retriable:
                    raise

    def request_once(
        self,
        deadline: Deadline,
        method: Callable[Concatenate[AdminSession, Arguments], Found],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Found:
        """As `request`, with one attempt; the next request uses a new client if this one fails."""
        client, listener = self._client = self._client or self._make_client()
        try:
            with translate_kafka_errors():
                return method(AdminSession(client, listener, deadline), *arguments, **options)
        except (LogUnavailable, LogRefused):
            self._client = None
            raise

    def _make_client(self) -> tuple[AdminClient, RejectionListener]:
        security = self.settings.security
        listener = RejectionListener(security)
        return make_client(AdminClient, self.settings.configuration(), security, listener), listener

    def renew(self) -> bool:
        """Read the settings again; return whether they differ. Later requests use them."""
        before = self.settings
        if self._renewed is not None:
            self.settings = reload_settings(self._renewed, before)
        if self.settings == before:
            return False
        self._client = None
        return True

    def close(self) -> None:
        """Drop the client; the next request makes another one."""
        self._client = None


class KafkaMetadata:
    """See `ports.Metadata` and `ports.TopicDetails`."""

    def __init__(self, admin: KafkaAdmin[ReaderSettings]) -> None:
        self._admin = admin

    def cluster(self, deadline: Deadline) -> KafkaCluster:
        """See `ports.Metadata`."""
        return self._admin.request(deadline, AdminSession.describe_cluster)

    def api_versions(self, broker: Broker, deadline: Deadline) -> tuple[ApiVersion, ...]:
        """See `ports.Metadata`."""
        return fetch_api_versions(broker, self._admin.settings.security, deadline)

    def topics(self, deadline: Deadline) -> dict[str, int]:
        """See `ports.Metadata`."""
        return self._admin.request(deadline, AdminSession.count_partitions)

    def topic(self, topic: str, deadline: Deadline) -> KafkaTopic:
        """See `ports.Metadata`."""
        found = self._admin.request(deadline, AdminSession.describe_topics, [topic])
        if topic not in found:
            raise UnknownTopic(topic, "Kafka has no topic of this name")
        return found[topic]

    def describe(self, topics: Sequence[str], deadline: Deadline) -> dict[str, KafkaTopic]:
        """See `ports.TopicDetails`."""
        return self._admin.request(deadline, AdminSession.describe_topics, topics) if topics else {}

    def settings(self, topic: str, deadline: Deadline) -> dict[str, str | None]:
        """See `ports.TopicDetails`."""
        return self._admin.request(deadline, AdminSession.topic_settings, topic)

    def all_settings(self, owner: SettingOwner, deadline: Deadline) -> list[KafkaSetting]:
        """See `ports.ClusterMetadata`."""
        return self._admin.request(deadline, AdminSession.all_settings, owner)

    def groups(self, deadline: Deadline) -> list[str]:
        """See `ports.ClusterMetadata`."""
        return self._admin.request(deadline, AdminSession.groups)

    def describe_groups(self, groups: Sequence[str], deadline: Deadline) -> list[ConsumerGroup]:
        """See `ports.ClusterMetadata`."""
        # librdkafka's texts end at a NUL: it would ask for another group, or for one without a name.
        asked = [each for each in groups if "\0" not in each]
        return self._admin.request(deadline, AdminSession.describe_groups, asked) if asked else []

    def committed(self, group: str, deadline: Deadline) -> dict[TopicAndNumber, int]:
        """See `ports.ClusterMetadata`."""
        return self._admin.request(deadline, AdminSession.committed, group)

    def ends(self, partitions: Sequence[TopicAndNumber], deadline: Deadline) -> dict[TopicAndNumber, int]:
        """See `ports.ClusterMetadata`."""
        return self._admin.request(deadline, AdminSession.ends, partitions) if partitions else {}
