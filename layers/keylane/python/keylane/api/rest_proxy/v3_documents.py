"""What Confluent's REST Proxy v3 answers of a Kafka cluster, as a table of resources: see `v3_resources`.

Of a setting's synonyms librdkafka reports one for each name. A group's lags are those of topics that may be
read here. Errors have REST Proxy's `error_code` and `message`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keylane import errors
from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, FLAG, MAYBE_TEXT, TEXT, an_array, an_object
from keylane.api.rest_proxy.v2_answers import render_failure
from keylane.api.rest_proxy.v3_resources import Links, ResourceKind, ResourceRow
from keylane.model.kafka import Broker, KafkaCluster, KafkaPartition, KafkaTopic
from keylane.model.kafka_groups import ConsumerGroup, GroupLag, GroupMember, KafkaSetting

Above = Mapping[str, Any]

CODES = {errors.UnknownTopic: 40403, errors.UnknownPartition: 404}
"""Where they differ from those of v2."""


def render_v3_error(request: Request, error: Exception) -> Response[str]:
    """Render an error of a read of v3."""
    return render_failure(request, error, CODES)


def render_clusters(links: Links, clusters: Sequence[KafkaCluster]) -> Response[str]:
    """Render all clusters: the list is above them."""
    data = [CLUSTER.document(links, each.cluster_id, each) for each in clusters]
    return CLUSTER.render_documents(links, (), data)


def _cluster(cluster: KafkaCluster, _: Above) -> ResourceRow:
    number = cluster.controller
    return ResourceRow({}, {} if number is None else {"controller": ("brokers", number)})


def _topic(topic: KafkaTopic, _: Above) -> ResourceRow:
    return ResourceRow(
        {
            "topic_name": topic.name,
            "is_internal": topic.internal,
            "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
            "partitions_count": len(topic.partitions),
        }
    )


def _partition(partition: KafkaPartition, above: Above) -> ResourceRow:
    number, leader = partition.number, partition.leader
    path = ("topics", above["topic_name"], "partitions", number, "replicas")
    return ResourceRow({"partition_id": number}, {} if leader is None else {"leader": (*path, leader)})


def _offsets(ends: tuple[int, int], _: Above) -> ResourceRow:
    return ResourceRow({"earliest_offset": ends[0], "latest_offset": ends[1]})


def _broker(broker: Broker, _: Above) -> ResourceRow:
    own = {"broker_id": broker.number, "host": broker.host, "port": broker.port, "rack": broker.rack}
    return ResourceRow(own)


def _replica(found: tuple[KafkaPartition, int], _: Above) -> ResourceRow:
    partition, broker = found
    is_leader, is_in_sync = broker == partition.leader, broker in partition.in_sync
    values = {"broker_id": broker, "is_leader": is_leader, "is_in_sync": is_in_sync}
    return ResourceRow(values, {"broker": ("brokers", broker)})


def _setting(setting: KafkaSetting, _: Above) -> ResourceRow:
    return ResourceRow({**setting._asdict(), "synonyms": [each._asdict() for each in setting.synonyms]})


def _group(group: ConsumerGroup, _: Above) -> ResourceRow:
    values = {
        "consumer_group_id": group.group_id,
        "is_simple": group.is_simple,
        "partition_assignor": group.assignor,
        "state": group.state,
    }
    return ResourceRow(values, {"coordinator": ("brokers", group.coordinator)})


def _consumer(member: GroupMember | None, _: Above) -> ResourceRow:
    """A member's names; empty ones where none reads the partition, as REST Proxy answers."""
    own = (member.member_id, member.instance_id, member.client_id) if member else ("", None, "")
    return ResourceRow(dict(zip(_MEMBER, own, strict=True)))


def _lag(lag: GroupLag, above: Above) -> ResourceRow:
    topic, number = lag.partition
    values = {"topic_name": topic, "partition_id": number, **_consumer(lag.member, above).values}
    return ResourceRow({**values, "current_offset": lag.committed, "log_end_offset": lag.end, "lag": lag.lag})


def _lag_summary(lags: Sequence[GroupLag], above: Above) -> ResourceRow:
    """A group's largest lag, and their sum. `lags`: the largest first, one at least."""
    topic, number = lags[0].partition
    member = _consumer(lags[0].member, above).values
    values = {
        **{f"max_lag_{name}": value for name, value in member.items()},
        "max_lag_topic_name": topic,
        "max_lag_partition_id": number,
        "max_lag": lags[0].lag,
        "total_lag": sum(each.lag for each in lags),
    }
    consumer = ("consumer-groups", above["consumer_group_id"], "consumers", member["consumer_id"])
    partition = ("topics", topic, "partitions", number)
    return ResourceRow(values, {"max_lag_consumer": consumer, "max_lag_partition": partition})


_OF_PARTITION = {"topic_name": TEXT, "partition_id": COUNT}
_MEMBER = {"consumer_id": TEXT, "instance_id": MAYBE_TEXT, "client_id": TEXT}
_OF_GROUP = {"consumer_group_id": TEXT}
_CONFIG = {
    "name": TEXT,
    "value": MAYBE_TEXT,
    "is_default": FLAG,
    "is_read_only": FLAG,
    "is_sensitive": FLAG,
    "source": TEXT,
    "synonyms": an_array(an_object(name=TEXT, value=MAYBE_TEXT, source=TEXT)),
}
CLUSTER = ResourceKind(
    *("KafkaCluster", _cluster, "", ""),
    optional=("controller",),
    links={
        "acls": "acls",
        "brokers": "brokers",
        "broker_configs": "broker-configs",
        "consumer_groups": "consumer-groups",
        "topics": "topics",
        "partition_reassignments": "topics/-/partitions/-/reassignment",
    },
)
TOPIC = ResourceKind(
    *("KafkaTopic", _topic, "topics", "{topic_name}"),
    {"topic_name": TEXT, "is_internal": FLAG, "replication_factor": COUNT, "partitions_count": COUNT},
    links={
        "partitions": "partitions",
        "configs": "configs",
        "partition_reassignments": "partitions/-/reassignment",
    },
)
PARTITION = ResourceKind(
    *("KafkaPartition", _partition, "topics/{topic_name}/partitions", "{partition_id}"),
    _OF_PARTITION,
    optional=("leader",),
    links={"replicas": "replicas", "reassignment": "reassignment"},
)
OFFSETS = ResourceKind(
    *("KafkaPartitionWithOffsets", _offsets, "topics/{topic_name}/partitions/{partition_id}", "offset"),
    {**_OF_PARTITION, "earliest_offset": COUNT, "latest_offset": COUNT},
    name="V3Offsets",
    ending="offset_type=earliest_and_latest",
)
BROKER = ResourceKind(
    *("KafkaBroker", _broker, "brokers", "{broker_id}"),
    {"broker_id": COUNT, "host": MAYBE_TEXT, "port": {"type": ["integer", "null"]}, "rack": MAYBE_TEXT},
    links={"configs": "configs", "partition_replicas": "partition-replicas"},
)
REPLICA = ResourceKind(
    *("KafkaReplica", _replica, "topics/{topic_name}/partitions/{partition_id}/replicas", "{broker_id}"),
    {**_OF_PARTITION, "broker_id": COUNT, "is_leader": FLAG, "is_in_sync": FLAG},
    others=("broker",),
)
BROKER_CONFIG = ResourceKind(
    *("KafkaBrokerConfig", _setting, "brokers/{broker_id}/configs", "{name}"), {"broker_id": COUNT, **_CONFIG}
)
TOPIC_CONFIG = ResourceKind(
    *("KafkaTopicConfig", _setting, "topics/{topic_name}/configs", "{name}"), {"topic_name": TEXT, **_CONFIG}
)
GROUP = ResourceKind(
    *("KafkaConsumerGroup", _group, "consumer-groups", "{consumer_group_id}"),
    {**_OF_GROUP, "is_simple": FLAG, "partition_assignor": TEXT, "state": TEXT},
    others=("coordinator",),
    links={"consumers": "consumers", "lag_summary": "lag-summary"},
)
CONSUMER = ResourceKind(
    *("KafkaConsumer", _consumer, "consumer-groups/{consumer_group_id}/consumers", "{consumer_id}"),
    {**_OF_GROUP, **_MEMBER},
    links={"assignments": "assignments"},
)
LAG = ResourceKind(
    "KafkaConsumerLag",
    _lag,
    "consumer-groups/{consumer_group_id}/lags",
    "{topic_name}/partitions/{partition_id}",
    {
        **(_OF_GROUP | _OF_PARTITION),
        "current_offset": COUNT,
        "log_end_offset": COUNT,
        "lag": COUNT,
        **_MEMBER,
    },
)
LAG_SUMMARY = ResourceKind(
    *("KafkaConsumerGroupLagSummary", _lag_summary, "consumer-groups/{consumer_group_id}", "lag-summary"),
    {
        **_OF_GROUP,
        **{f"max_lag_{name}": each for name, each in (_MEMBER | _OF_PARTITION).items()},
        "max_lag": COUNT,
        "total_lag": COUNT,
    },
    others=("max_lag_consumer", "max_lag_partition"),
    name="V3LagSummary",
)
