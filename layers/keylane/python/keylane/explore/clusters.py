"""One of several Kafka clusters by its id, and the topics that belong to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from keylane.errors import KeylaneError, UnknownCluster, UnknownTopic
from keylane.explore.ports import ClusterMetadata, DetailedMetadata
from keylane.explore.topics import describe_clusters, list_names
from keylane.model.kafka import KafkaCluster, KafkaTopic
from keylane.model.served_topics import ServedTopics
from keylane.ports import Deadline


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    """The clusters by name, and which of them a topic belongs to."""

    clusters: Mapping[str, ClusterMetadata]
    name_of: Callable[[str], str]
    metadata: DetailedMetadata


def find_cluster(
    directory: ClusterDirectory, cluster_id: str, deadline: Deadline
) -> tuple[str, KafkaCluster]:
    """The name of the cluster with this id, and the cluster.

    Raises UnknownCluster; LogUnavailable, LogRefused if it may be one that does not answer.
    """
    found = describe_clusters(directory.clusters, deadline)
    for name, cluster in found.items():
        if not isinstance(cluster, KeylaneError) and cluster.cluster_id == cluster_id:
            return name, cluster
    raise next(
        (each for each in found.values() if isinstance(each, KeylaneError)), UnknownCluster(cluster_id)
    )


def list_clusters(directory: ClusterDirectory, deadline: Deadline) -> list[KafkaCluster]:
    """All clusters that answer. Raises LogUnavailable, LogRefused if none does."""
    found = describe_clusters(directory.clusters, deadline).values()
    return [each for each in found if not isinstance(each, KeylaneError)]


def topics_of_cluster(
    directory: ClusterDirectory, served: ServedTopics, cluster_id: str, deadline: Deadline
) -> list[KafkaTopic]:
    """The cluster's topics that may be read here, by name.

    Raises UnknownCluster, LogUnavailable, LogRefused.
    """
    name, _ = find_cluster(directory, cluster_id, deadline)
    names = list_names(directory.clusters[name], served, deadline)
    found = directory.metadata.describe([each for each in names if directory.name_of(each) == name], deadline)
    return [found[each] for each in sorted(found)]


def topic_of_cluster(
    directory: ClusterDirectory, cluster_id: str, topic: str, deadline: Deadline
) -> KafkaTopic:
    """A topic of the cluster. Raises UnknownCluster, UnknownTopic, LogUnavailable, LogRefused."""
    name, _ = find_cluster(directory, cluster_id, deadline)
    if directory.name_of(topic) != name:
        raise UnknownTopic(topic, "the cluster has no topic of this name")
    return directory.metadata.topic(topic, deadline)
