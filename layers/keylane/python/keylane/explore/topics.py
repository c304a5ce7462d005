"""Kafka's clusters and topics, and the placement of a topic's partitions in Keylane's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from keylane import routing
from keylane.errors import CorruptState, KeylaneError, StateUnavailable, UnknownPartition, UnknownTopic
from keylane.explore.ports import DetailedMetadata, Metadata
from keylane.model.kafka import ApiVersion, KafkaCluster, KafkaTopic
from keylane.model.records import MAX_LANES, Layout
from keylane.model.served_topics import ServedTopics
from keylane.ports import Deadline
from keylane.query.store import Store
from keylane.state import lanes

KEPT, NOT_KEPT, UNAVAILABLE, NOT_CONFIGURED = "kept", "not-kept", "unavailable", "not-configured"


class TopicsRequest(NamedTuple):
    """A page of Kafka's topics: at most `limit` whose names begin with `prefix` and come after `after`."""

    prefix: str
    after: str
    limit: int


class TopicList(NamedTuple):
    """Names and partition counts, by name; `next_after`: the name to continue after, None at the end."""

    topics: list[tuple[str, int]]
    next_after: str | None

    def first(self, count: int) -> TopicList:
        """Return the page that ends after so many topics; itself where it has no more."""
        if count >= len(self.topics):
            return self
        return TopicList(self.topics[:count], self.topics[count - 1][0])


class DescribedTopic(NamedTuple):
    """A topic, and its settings by Kafka's names."""

    topic: KafkaTopic
    settings: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class TopicPlacement:
    """A topic's partitions, and the slot and shard of each in Keylane's state, in partition order.

    `state`: KEPT; NOT_KEPT if the topic has no layout; UNAVAILABLE if Redis did not answer; NOT_CONFIGURED.
    `slots`: the slot of a partition's first stripe or, unless KEPT, its slot in a topic with one stripe; None
    if the topic has more partitions than there are slots. `shards`: "host:port", None unless KEPT.
    """

    topic: KafkaTopic
    state: str
    slots: Sequence[int | None]
    shards: Sequence[str | None]


def describe_clusters(
    clusters: Mapping[str, Metadata], deadline: Deadline
) -> dict[str, KafkaCluster | KeylaneError]:
    """Each cluster and its brokers by name, or the error of one that does not answer.

    Raises LogUnavailable, LogRefused if no cluster answers.
    """
    found: dict[str, KafkaCluster | KeylaneError] = {}
    for index, (name, metadata) in enumerate(clusters.items()):
        # A cluster that does not answer leaves the later ones their share of the time.
        share_ms = deadline.remaining_s * 1000 / (len(clusters) - index)
        try:
            found[name] = metadata.cluster(Deadline.after_ms(share_ms, deadline.clock))
        except KeylaneError as error:
            found[name] = error
    errors = [each for each in found.values() if isinstance(each, KeylaneError)]
    if len(errors) == len(found):
        raise errors[0]
    return found


def describe_api_versions(
    clusters: Mapping[str, Metadata], found: Mapping[str, KafkaCluster | KeylaneError], deadline: Deadline
) -> dict[tuple[str, int], Sequence[ApiVersion] | KeylaneError]:
    """What each broker supports, by the cluster's name and the broker's number; or why it does not answer."""
    versions: dict[tuple[str, int], Sequence[ApiVersion] | KeylaneError] = {}
    asked = [
        (name, broker)
        for name, cluster in found.items()
        if not isinstance(cluster, KeylaneError)
        for broker in cluster.brokers
    ]
    for index, (name, broker) in enumerate(asked):
        share_ms = deadline.remaining_s * 1000 / (len(asked) - index)
        try:
            own = Deadline.after_ms(share_ms, deadline.clock)
            versions[name, broker.number] = clusters[name].api_versions(broker, own)
        except KeylaneError as error:
            versions[name, broker.number] = error
    return versions


def list_topics(
    metadata: Metadata, served: ServedTopics, request: TopicsRequest, deadline: Deadline
) -> TopicList:
    """A page of the topics that may be read here, in order of their names.

    Raises LogUnavailable, LogRefused.
    """
    counts = metadata.topics(deadline)
    names = [
        name
        for name in _served_names(counts, served)
        if name.startswith(request.prefix) and name > request.after
    ]
    page = [(name, counts[name]) for name in names[: request.limit]]
    return TopicList(page, page[-1][0] if len(names) > request.limit else None)


def list_names(metadata: Metadata, served: ServedTopics, deadline: Deadline) -> list[str]:
    """The names of all topics that may be read here, in order. Raises LogUnavailable, LogRefused."""
    return _served_names(metadata.topics(deadline), served)


def _served_names(names: Iterable[str], served: ServedTopics) -> list[str]:
    return sorted(name for name in names if served.is_served(name))


def describe_kafka_topic(metadata: DetailedMetadata, topic: str, deadline: Deadline) -> DescribedTopic:
    """A topic as Kafka knows it. Raises UnknownTopic, LogUnavailable, LogRefused."""
    return DescribedTopic(metadata.topic(topic, deadline), metadata.settings(topic, deadline))


def locate_topic(
    metadata: Metadata, store: Store | None, topic: str, deadline: Deadline, state_timeout_ms: float
) -> TopicPlacement:
    """A topic's placement; Kafka's part is returned without Redis too. `store`: None if none is configured.

    Raises UnknownTopic, LogUnavailable, LogRefused.
    """
    found = metadata.topic(topic, deadline)
    count = len(found.partitions)
    slots = [routing.slot_for(number, 0, count, 1) if count <= MAX_LANES else None for number in range(count)]
    unplaced = TopicPlacement(found, NOT_CONFIGURED, slots, [None] * count)
    if store is None:
        return unplaced
    state_deadline = Deadline.after_ms(state_timeout_ms, store.clock)
    try:
        layout = store.layouts.refresh(topic, state_deadline)
        kept = [lanes.lane_at(layout, number, 0).slot for number in range(count)]
        return TopicPlacement(found, KEPT, kept, store.state.hosts(kept, state_deadline))
    except UnknownTopic:
        return replace(unplaced, state=NOT_KEPT)
    except (StateUnavailable, CorruptState):
        return replace(unplaced, state=UNAVAILABLE)


def find_layout(store: Store | None, topic: str, state_timeout_ms: float) -> Layout | None:
    """The topic's layout; None where the state has none, or does not answer. `store`: see `locate_topic`."""
    if store is None:
        return None
    try:
        return store.layouts.get(topic, Deadline.after_ms(state_timeout_ms, store.clock))
    except (UnknownTopic, StateUnavailable, CorruptState):
        return None


def find_partition(metadata: Metadata, topic: str, partition: int, deadline: Deadline) -> KafkaTopic:
    """The partition's topic. Raises UnknownTopic, UnknownPartition, LogUnavailable, LogRefused."""
    found = metadata.topic(topic, deadline)
    check_partition(found, partition)
    return found


def check_partition(topic: KafkaTopic, partition: int) -> None:
    """Raise UnknownPartition if the topic does not have the partition."""
    if partition >= len(topic.partitions):
        raise UnknownPartition(topic.name, partition)
