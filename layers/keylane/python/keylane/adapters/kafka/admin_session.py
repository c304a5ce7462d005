"""The requests of one of confluent-kafka's admin clients, and what its answers are as ours."""

import ctypes
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    TopicCollection,
    TopicPartition,
    Uuid,
    cimpl,
)
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ConfigSource, OffsetSpec  # type: ignore[attr-defined]

from keylane.adapters.kafka.clients import RejectionListener, fetch_metadata, wait_for_result
from keylane.adapters.kafka.errors import translate_kafka_errors
from keylane.errors import LogRefused, UnknownTopic
from keylane.model.kafka import (
    EARLIEST,
    LATEST,
    MAX,
    READ_COMMITTED,
    At,
    Broker,
    KafkaCluster,
    KafkaPartition,
    KafkaTopic,
    NewTopic,
    OffsetFound,
    OffsetQuery,
)
from keylane.model.kafka import TopicPartition as TopicAndNumber
from keylane.model.kafka_groups import (
    BROKER,
    TOPIC,
    ConsumerGroup,
    GroupMember,
    KafkaSetting,
    SettingOwner,
    SettingSource,
)
from keylane.ports import Deadline

_RESOURCES = {TOPIC: ConfigResource.Type.TOPIC, BROKER: ConfigResource.Type.BROKER}
_SPECS: dict[At, Any] = {
    EARLIEST: OffsetSpec.earliest,
    LATEST: OffsetSpec.latest,
    MAX: OffsetSpec.max_timestamp,
}


class AdminSession:
    """The requests of one admin client, all within one deadline.

    Each raises UnknownTopic, LogUnavailable, LogRefused.
    """

    def __init__(self, client: AdminClient, listener: RejectionListener, deadline: Deadline) -> None:
        self._client = client
        self._listener = listener
        self._deadline = deadline

    def describe_cluster(self) -> KafkaCluster:
        """The cluster and its brokers."""
        future = self._client.describe_cluster(request_timeout=self._deadline.remaining_s)
        found = self._result(future)
        brokers = [Broker(each.id, each.host, each.port, each.rack or None) for each in found.nodes]
        brokers.sort(key=lambda broker: broker.number)
        controller = found.controller.id if found.controller is not None else None
        return KafkaCluster(found.cluster_id or "", controller, tuple(brokers))

    def count_partitions(self) -> dict[str, int]:
        """All topics: name -> partition count."""
        found = fetch_metadata(self._client, None, self._deadline, self._listener).topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def describe_topics(self, topics: Iterable[str]) -> dict[str, KafkaTopic]:
        """The topics that exist, by name. Unlike `list_topics(topic)` this never creates one."""
        collection = TopicCollection(list(topics))
        futures = self._client.describe_topics(collection, request_timeout=self._deadline.remaining_s)
        found = {}
        for topic, future in futures.items():
            try:
                found[topic] = _topic(self._result(future, topic))
            except UnknownTopic:
                continue
        return found

    def topic_settings(self, topic: str) -> dict[str, str | None]:
        """The topic's settings, as Kafka names them, those of the broker that apply to it included."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        futures = self._client.describe_configs([resource], request_timeout=self._deadline.remaining_s)
        return {name: each.value for name, each in self._result(futures[resource], topic).items()}

    def all_settings(self, owner: SettingOwner) -> list[KafkaSetting]:
        """The settings of a topic or a broker, by name."""
        resource = ConfigResource(_RESOURCES[owner.kind], owner.name)
        futures = self._client.describe_configs([resource], request_timeout=self._deadline.remaining_s)
        found = self._result(futures[resource], owner.name)
        return [_setting(found[name]) for name in sorted(found)]

    def groups(self) -> list[str]:
        """The ids of the consumer groups of all brokers that answer."""
        found = self._result(self._client.list_consumer_groups(request_timeout=self._deadline.remaining_s))
        with translate_kafka_errors():
            if found.errors and not found.valid:
                raise found.errors[0]
        return sorted(each.group_id for each in found.valid)

    def describe_groups(self, groups: Sequence[str]) -> list[ConsumerGroup]:
        """The groups that exist."""
        options = {"request_timeout": self._deadline.remaining_s}
        futures = self._client.describe_consumer_groups(list(groups), **options)
        found = []
        for future in futures.values():
            try:
                described = self._result(future)
            except LogRefused as error:
                if error.code != "GROUP_ID_NOT_FOUND":
                    raise
            else:
                # Brokers before 4.0 describe a group that does not exist as a dead one.
                if described.state is not ConsumerGroupState.DEAD:
                    found.append(_group(described))
        return found

    def committed(self, group: str) -> dict[TopicAndNumber, int]:
        """The offsets that a group has committed."""
        futures = self._client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=self._deadline.remaining_s
        )
        found = self._result(futures[group])
        return {
            (each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0
        }

    def ends(self, partitions: Sequence[TopicAndNumber]) -> dict[TopicAndNumber, int]:
        """The last stable offsets of the partitions that exist."""
        futures = self._client.list_offsets(
            {TopicPartition(*each): _spec(LATEST) for each in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._deadline.remaining_s,
        )
        found = {}
        for partition, future in futures.items():
            with suppress(UnknownTopic):
                found[partition.topic, partition.partition] = self._result(future, partition.topic).offset
        return found

    def create_topics(self, topics: Mapping[str, NewTopic]) -> None:
        """Create topics; one that exists by now stays as it is."""
        wanted = [
            cimpl.NewTopic(name, each.partition_count, -1, config=dict(each.settings))
            for name, each in topics.items()
        ]
        futures = self._client.create_topics(wanted, request_timeout=self._deadline.remaining_s)
        for name, future in futures.items():
            try:
                self._result(future, name)
            except LogRefused as error:
                if error.code != "TOPIC_ALREADY_EXISTS":
                    raise

    def list_offsets(self, queries: Sequence[OffsetQuery], isolation: str) -> list[OffsetFound | None]:
        """The offset of each query, None where the partition has no such record."""
        level = (
            IsolationLevel.READ_COMMITTED if isolation == READ_COMMITTED else IsolationLevel.READ_UNCOMMITTED
        )
        # A call takes one query of each partition; all calls are sent before the first one is waited for.
        futures = {
            at: self._client.list_offsets(
                {TopicPartition(each.topic, each.partition): _spec(at) for each in queries if each.at == at},
                isolation_level=level,
                request_timeout=self._deadline.remaining_s,
            )
            for at in dict.fromkeys(each.at for each in queries)
        }
        return [
            _offset(self._result(futures[at][TopicPartition(topic, partition)], topic))
            for topic, partition, at in queries
        ]

    def _result(self, future: Future[Any], topic: str = "") -> Any:
        with translate_kafka_errors(topic):
            return wait_for_result(self._client, future, self._deadline.remaining_s, self._listener)


def _setting(found: ConfigEntry) -> KafkaSetting:
    synonyms = [SettingSource(each.name, each.value, _source(each)) for each in found.synonyms.values()]
    flags = found.is_default, found.is_read_only, found.is_sensitive
    return KafkaSetting(found.name, found.value, _source(found), *flags, tuple(synonyms))


def _source(found: ConfigEntry) -> str:
    """Kafka's name of a setting's source; librdkafka's has a suffix where there is none."""
    return ConfigSource(found.source).name.replace("UNKNOWN_CONFIG", "UNKNOWN")


def _group(found: Any) -> ConsumerGroup:
    members = [
        GroupMember(
            each.member_id,
            each.client_id,
            each.group_instance_id or None,
            tuple((part.topic, part.partition) for part in each.assignment.topic_partitions),
        )
        for each in found.members
    ]
    return ConsumerGroup(
        found.group_id,
        found.state.name.replace("REBALANCING", "REBALANCE"),
        found.is_simple_consumer_group,
        found.partition_assignor,
        found.coordinator.id,
        tuple(members),
    )


def _drop_leaked_id(found: Any) -> None:
    """Drop the reference to a described topic's id that confluent-kafka leaks (2.16: 101 bytes for each).

    The job describes its topics whenever their metadata change. An id of our own, held the same way, says how
    many references there are without the leaked one: nothing is dropped once the library does it.
    """
    own = SimpleNamespace(topic_id=Uuid(0, 0))
    if isinstance(found.topic_id, Uuid) and sys.getrefcount(found.topic_id) > sys.getrefcount(own.topic_id):
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(found.topic_id))


def _topic(found: Any) -> KafkaTopic:
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
    topic = KafkaTopic(found.name, str(found.topic_id), bool(found.is_internal), tuple(partitions))
    _drop_leaked_id(found)
    return topic


def _spec(at: At) -> OffsetSpec:
    spec: OffsetSpec = _SPECS[at]() if at in _SPECS else OffsetSpec.for_timestamp(int(at))
    return spec


def _offset(found: Any) -> OffsetFound | None:
    if found.offset < 0:
        return None
    timestamp_ms = found.timestamp if found.timestamp > 0 else None
    return OffsetFound(found.offset, timestamp_ms, found.leader_epoch)
