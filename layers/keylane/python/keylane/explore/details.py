"""What one Kafka cluster knows of its brokers' and topics' settings, and of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import NotInKafka, UnknownTopic
from keylane.explore.clusters import find_cluster
from keylane.explore.topics import check_partition
from keylane.model.kafka_groups import BROKER, TOPIC, ConsumerGroup, GroupLag, KafkaSetting, SettingOwner

if TYPE_CHECKING:
    from keylane.explore.clusters import ClusterDirectory
    from keylane.explore.ports import ClusterMetadata
    from keylane.model.kafka import Broker, KafkaTopic
    from keylane.model.served_topics import ServedTopics
    from keylane.ports import Deadline


def list_brokers(directory: ClusterDirectory, cluster_id: str, deadline: Deadline) -> tuple[Broker, ...]:
    """The cluster's brokers, by number. Raises UnknownCluster, LogUnavailable, LogRefused."""
    return find_cluster(directory, cluster_id, deadline)[1].brokers


def find_broker(directory: ClusterDirectory, cluster_id: str, number: str, deadline: Deadline) -> Broker:
    """One broker. Raises UnknownCluster, NotInKafka, LogUnavailable, LogRefused."""
    for broker in list_brokers(directory, cluster_id, deadline):
        if str(broker.number) == number:
            return broker
    raise NotInKafka("broker", number)


def find_replica(topic: KafkaTopic, partition: int, broker: str) -> int:
    """The number of the broker, which has a replica of the partition. Raises UnknownPartition, NotInKafka."""
    check_partition(topic, partition)
    for number in topic.partitions[partition].replicas:
        if str(number) == broker:
            return number
    raise NotInKafka("replica of the partition at broker", broker)


def list_settings(
    directory: ClusterDirectory, cluster_id: str, owner: SettingOwner, deadline: Deadline
) -> list[KafkaSetting]:
    """The settings of a topic or a broker, by name.

    Raises UnknownCluster, UnknownTopic, NotInKafka, LogUnavailable, LogRefused.
    """
    name, cluster = find_cluster(directory, cluster_id, deadline)
    if owner.kind == TOPIC and directory.name_of(owner.name) != name:
        raise UnknownTopic(owner.name, "the cluster has no topic of this name")
    # Kafka answers for a broker that does not exist, after a while, that it cannot be reached.
    if owner.kind == BROKER and owner.name not in {str(each.number) for each in cluster.brokers}:
        raise NotInKafka("broker", owner.name)
    return directory.clusters[name].all_settings(owner, deadline)


def find_setting(settings: list[KafkaSetting], name: str) -> KafkaSetting:
    """One of the settings. Raises NotInKafka."""
    for setting in settings:
        if setting.name == name:
            return setting
    raise NotInKafka("setting", name)


def list_groups(directory: ClusterDirectory, cluster_id: str, deadline: Deadline) -> list[ConsumerGroup]:
    """The cluster's consumer groups, by id. Raises UnknownCluster, LogUnavailable, LogRefused."""
    metadata = directory.clusters[find_cluster(directory, cluster_id, deadline)[0]]
    return sorted(metadata.describe_groups(metadata.groups(deadline), deadline))


def find_group(
    directory: ClusterDirectory, cluster_id: str, group_id: str, deadline: Deadline
) -> ConsumerGroup:
    """One consumer group. Raises UnknownCluster, NotInKafka, LogUnavailable, LogRefused."""
    name, _ = find_cluster(directory, cluster_id, deadline)
    return _describe(directory.clusters[name], group_id, deadline)


def list_lags(
    directory: ClusterDirectory,
    served: ServedTopics,
    cluster_id: str,
    group_id: str,
    deadline: Deadline,
) -> list[GroupLag]:
    """How far a group is behind in each partition of which it has committed an offset, the furthest first.

    Of topics that may be read here alone. Raises UnknownCluster, NotInKafka if there is none,
    LogUnavailable, LogRefused.
    """
    name, _ = find_cluster(directory, cluster_id, deadline)
    metadata = directory.clusters[name]
    group = _describe(metadata, group_id, deadline)
    committed = metadata.committed(group_id, deadline)
    shown = [each for each in committed if served.is_served(each[0]) and directory.name_of(each[0]) == name]
    ends = metadata.ends(shown, deadline)
    readers = {partition: member for member in group.members for partition in member.partitions}
    lags = [GroupLag(each, committed[each], end, readers.get(each)) for each, end in ends.items()]
    if not lags:
        raise NotInKafka("committed offset of consumer group", group_id)
    return sorted(lags, key=lambda found: (-found.lag, found.partition))


def _describe(metadata: ClusterMetadata, group_id: str, deadline: Deadline) -> ConsumerGroup:
    for group in metadata.describe_groups([group_id], deadline):
        return group
    raise NotInKafka("consumer group", group_id)
