"""Brokers, replicas, settings and consumer groups as Confluent's REST Proxy v3 answers them.

The resources are of the form that `v3_documents` describes. Of a setting's synonyms librdkafka reports one
for each name. A group's lags are those of topics that may be read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keylane.api.http.json_response import render_json
from keylane.api.http.schemas import COUNT, FLAG, MAYBE_TEXT, TEXT, an_array, an_object
from keylane.api.rest_proxy.v3_documents import Links, list_schema, render_list, resource, resource_schema
from keylane.model.kafka_groups import BROKER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.http.response import Response
    from keylane.model.kafka import Broker, KafkaPartition, KafkaTopic
    from keylane.model.kafka_groups import ConsumerGroup, GroupLag, GroupMember, KafkaSetting, SettingOwner

BROKER_SCHEMA = resource_schema(
    "V3Broker",
    "KafkaBroker",
    ("configs", "partition_replicas"),
    broker_id=COUNT,
    host=MAYBE_TEXT,
    port={"type": ["integer", "null"]},
    rack=MAYBE_TEXT,
)
REPLICA_SCHEMA = resource_schema(
    "V3Replica",
    "KafkaReplica",
    ("broker",),
    topic_name=TEXT,
    partition_id=COUNT,
    broker_id=COUNT,
    is_leader=FLAG,
    is_in_sync=FLAG,
)
_CONFIG: dict[str, Any] = {
    "name": TEXT,
    "value": MAYBE_TEXT,
    "is_default": FLAG,
    "is_read_only": FLAG,
    "is_sensitive": FLAG,
    "source": TEXT,
    "synonyms": an_array(an_object(name=TEXT, value=MAYBE_TEXT, source=TEXT)),
}
BROKER_CONFIG_SCHEMA = resource_schema("V3BrokerConfig", "KafkaBrokerConfig", (), broker_id=COUNT, **_CONFIG)
TOPIC_CONFIG_SCHEMA = resource_schema("V3TopicConfig", "KafkaTopicConfig", (), topic_name=TEXT, **_CONFIG)
GROUP_SCHEMA = resource_schema(
    "V3ConsumerGroup",
    "KafkaConsumerGroup",
    ("coordinator", "consumers", "lag_summary"),
    consumer_group_id=TEXT,
    is_simple=FLAG,
    partition_assignor=TEXT,
    state=TEXT,
)
_MEMBER: dict[str, Any] = {"consumer_id": TEXT, "instance_id": MAYBE_TEXT, "client_id": TEXT}
CONSUMER_SCHEMA = resource_schema(
    "V3Consumer", "KafkaConsumer", ("assignments",), consumer_group_id=TEXT, **_MEMBER
)
LAG_SCHEMA = resource_schema(
    "V3ConsumerLag",
    "KafkaConsumerLag",
    (),
    consumer_group_id=TEXT,
    topic_name=TEXT,
    partition_id=COUNT,
    current_offset=COUNT,
    log_end_offset=COUNT,
    lag=COUNT,
    **_MEMBER,
)
LAG_SUMMARY_SCHEMA = resource_schema(
    "V3LagSummary",
    "KafkaConsumerGroupLagSummary",
    ("max_lag_consumer", "max_lag_partition"),
    consumer_group_id=TEXT,
    max_lag_consumer_id=TEXT,
    max_lag_instance_id=MAYBE_TEXT,
    max_lag_client_id=TEXT,
    max_lag_topic_name=TEXT,
    max_lag_partition_id=COUNT,
    max_lag=COUNT,
    total_lag=COUNT,
)
BROKERS_SCHEMA = list_schema("V3Brokers", "KafkaBrokerList", BROKER_SCHEMA)
REPLICAS_SCHEMA = list_schema("V3Replicas", "KafkaReplicaList", REPLICA_SCHEMA)
BROKER_CONFIGS_SCHEMA = list_schema("V3BrokerConfigs", "KafkaBrokerConfigList", BROKER_CONFIG_SCHEMA)
TOPIC_CONFIGS_SCHEMA = list_schema("V3TopicConfigs", "KafkaTopicConfigList", TOPIC_CONFIG_SCHEMA)
GROUPS_SCHEMA = list_schema("V3ConsumerGroups", "KafkaConsumerGroupList", GROUP_SCHEMA)
CONSUMERS_SCHEMA = list_schema("V3Consumers", "KafkaConsumerList", CONSUMER_SCHEMA)
LAGS_SCHEMA = list_schema("V3ConsumerLags", "KafkaConsumerLagList", LAG_SCHEMA)


def render_brokers(links: Links, cluster_id: str, brokers: Sequence[Broker]) -> Response[str]:
    """Render a cluster's brokers."""
    data = [_broker(links, cluster_id, each) for each in brokers]
    return render_list(links, "KafkaBrokerList", (cluster_id, "brokers"), data)


def render_broker(links: Links, cluster_id: str, broker: Broker) -> Response[str]:
    """Render one broker."""
    return render_json(_broker(links, cluster_id, broker))


def render_replicas(links: Links, cluster_id: str, topic: KafkaTopic, partition: int) -> Response[str]:
    """Render a partition's replicas, in the order in which Kafka prefers them as leaders."""
    found = topic.partitions[partition]
    data = [_replica(links, cluster_id, topic.name, found, number) for number in found.replicas]
    path = (cluster_id, "topics", topic.name, "partitions", partition, "replicas")
    return render_list(links, "KafkaReplicaList", path, data)


def render_replica(
    links: Links, cluster_id: str, topic: KafkaTopic, partition: int, broker: int
) -> Response[str]:
    """Render the replica that a broker has of a partition."""
    return render_json(_replica(links, cluster_id, topic.name, topic.partitions[partition], broker))


def render_settings(
    links: Links, cluster_id: str, owner: SettingOwner, settings: Sequence[KafkaSetting]
) -> Response[str]:
    """Render all settings of a topic or broker."""
    data = [_setting(links, cluster_id, owner, each) for each in settings]
    path = (cluster_id, f"{owner.kind}s", owner.name, "configs")
    return render_list(links, f"Kafka{owner.kind.title()}ConfigList", path, data)


def render_setting(
    links: Links, cluster_id: str, owner: SettingOwner, setting: KafkaSetting
) -> Response[str]:
    """Render one setting."""
    return render_json(_setting(links, cluster_id, owner, setting))


def render_groups(links: Links, cluster_id: str, groups: Sequence[ConsumerGroup]) -> Response[str]:
    """Render a cluster's consumer groups."""
    data = [_group(links, cluster_id, each) for each in groups]
    return render_list(links, "KafkaConsumerGroupList", (cluster_id, "consumer-groups"), data)


def render_group(links: Links, cluster_id: str, group: ConsumerGroup) -> Response[str]:
    """Render one consumer group."""
    return render_json(_group(links, cluster_id, group))


def render_consumers(links: Links, cluster_id: str, group: ConsumerGroup) -> Response[str]:
    """Render a group's members."""
    path = (cluster_id, "consumer-groups", group.group_id, "consumers")
    data = [
        {
            **resource(links, "KafkaConsumer", (*path, each.member_id)),
            "consumer_group_id": group.group_id,
            **_member(each),
            "assignments": links.related(*path, each.member_id, "assignments"),
        }
        for each in group.members
    ]
    return render_list(links, "KafkaConsumerList", path, data)


def render_lags(links: Links, cluster_id: str, group_id: str, lags: Sequence[GroupLag]) -> Response[str]:
    """Render how far a group is behind in each partition."""
    path = (cluster_id, "consumer-groups", group_id, "lags")
    data = [
        {
            **resource(links, "KafkaConsumerLag", (*path, topic, "partitions", number)),
            "consumer_group_id": group_id,
            "topic_name": topic,
            "partition_id": number,
            **_member(each.member),
            "current_offset": each.committed,
            "log_end_offset": each.end,
            "lag": each.lag,
        }
        for each in lags
        for topic, number in [each.partition]
    ]
    return render_list(links, "KafkaConsumerLagList", path, data)


def render_lag_summary(
    links: Links, cluster_id: str, group_id: str, lags: Sequence[GroupLag]
) -> Response[str]:
    """Render a group's largest lag, and their sum. `lags`: the largest first, one at least."""
    largest = lags[0]
    path = (cluster_id, "consumer-groups", group_id)
    topic, number = largest.partition
    member = _member(largest.member)
    return render_json(
        {
            **resource(links, "KafkaConsumerGroupLagSummary", (*path, "lag-summary")),
            "consumer_group_id": group_id,
            **{f"max_lag_{name}": value for name, value in member.items()},
            "max_lag_topic_name": topic,
            "max_lag_partition_id": number,
            "max_lag": largest.lag,
            "total_lag": sum(each.lag for each in lags),
            "max_lag_consumer": links.related(*path, "consumers", member["consumer_id"] or ""),
            "max_lag_partition": links.related(cluster_id, "topics", topic, "partitions", number),
        }
    )


def _broker(links: Links, cluster_id: str, broker: Broker) -> dict[str, Any]:
    path = (cluster_id, "brokers", broker.number)
    return {
        **resource(links, "KafkaBroker", path),
        "broker_id": broker.number,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "configs": links.related(*path, "configs"),
        "partition_replicas": links.related(*path, "partition-replicas"),
    }


def _replica(
    links: Links, cluster_id: str, topic: str, partition: KafkaPartition, broker: int
) -> dict[str, Any]:
    path = (cluster_id, "topics", topic, "partitions", partition.number, "replicas", broker)
    return {
        **resource(links, "KafkaReplica", path),
        "topic_name": topic,
        "partition_id": partition.number,
        "broker_id": broker,
        "is_leader": broker == partition.leader,
        "is_in_sync": broker in partition.in_sync,
        "broker": links.related(cluster_id, "brokers", broker),
    }


def _setting(links: Links, cluster_id: str, owner: SettingOwner, setting: KafkaSetting) -> dict[str, Any]:
    own = {"broker_id": int(owner.name)} if owner.kind == BROKER else {"topic_name": owner.name}
    kind = f"Kafka{owner.kind.title()}Config"
    path = (cluster_id, f"{owner.kind}s", owner.name, "configs", setting.name)
    return {
        **resource(links, kind, path),
        **own,
        **setting._asdict(),
        "synonyms": [each._asdict() for each in setting.synonyms],
    }


def _group(links: Links, cluster_id: str, group: ConsumerGroup) -> dict[str, Any]:
    path = (cluster_id, "consumer-groups", group.group_id)
    return {
        **resource(links, "KafkaConsumerGroup", path),
        "consumer_group_id": group.group_id,
        "is_simple": group.is_simple,
        "partition_assignor": group.assignor,
        "state": group.state,
        "coordinator": links.related(cluster_id, "brokers", group.coordinator),
        "consumers": links.related(*path, "consumers"),
        "lag_summary": links.related(*path, "lag-summary"),
    }


def _member(member: GroupMember | None) -> dict[str, str | None]:
    """A member's names; empty ones where none reads the partition, as REST Proxy answers."""
    if member is None:
        return {"consumer_id": "", "instance_id": None, "client_id": ""}
    return {
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
    }
