"""What `explore` needs of Kafka beside the ports of all. The fake is in tests/support/fakes.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model.kafka import ApiVersion, Broker, KafkaCluster, KafkaTopic, TopicPartition
    from keylane.model.kafka_groups import ConsumerGroup, KafkaSetting, SettingOwner
    from keylane.ports import Deadline


class Metadata(Protocol):
    """Kafka's cluster as its brokers describe it. No method creates a topic.

    All methods raise LogUnavailable, and LogRefused with Kafka's name of the error.
    """

    def cluster(self, deadline: Deadline) -> KafkaCluster:
        """Return the cluster and its brokers."""

    def api_versions(self, broker: Broker, deadline: Deadline) -> tuple[ApiVersion, ...]:
        """Return what a broker of the cluster supports, in the order of the APIs' keys."""

    def topics(self, deadline: Deadline) -> dict[str, int]:
        """Return all topics: name -> partition count."""

    def topic(self, topic: str, deadline: Deadline) -> KafkaTopic:
        """Return one topic. Raises UnknownTopic."""


class TopicDetails(Protocol):
    """What Kafka's brokers know of topics. Both methods raise LogUnavailable and LogRefused."""

    def describe(self, topics: Sequence[str], deadline: Deadline) -> dict[str, KafkaTopic]:
        """Return the topics that exist, by name."""

    def settings(self, topic: str, deadline: Deadline) -> dict[str, str | None]:
        """Return a topic's settings by Kafka's names, the brokers' for it too. Raises UnknownTopic."""


class DetailedMetadata(Metadata, TopicDetails, Protocol):
    """Both in one: Kafka's cluster, and all that it knows of topics."""


class ClusterMetadata(DetailedMetadata, Protocol):
    """All of that, and the settings and consumer groups of one cluster.

    All methods raise LogUnavailable and LogRefused.
    """

    def all_settings(self, owner: SettingOwner, deadline: Deadline) -> list[KafkaSetting]:
        """Return the settings of a topic or broker, by name. Raises UnknownTopic."""

    def groups(self, deadline: Deadline) -> list[str]:
        """Return the ids of the consumer groups."""

    def describe_groups(self, groups: Sequence[str], deadline: Deadline) -> list[ConsumerGroup]:
        """Return those groups that exist."""

    def committed(self, group: str, deadline: Deadline) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed."""

    def ends(self, partitions: Sequence[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        """Return the end of each partition that exists, below which all transactions have ended."""
