"""Kafka itself: clusters, topics, partitions, offsets, raw records; and the health of Kafka and Redis."""

from collections.abc import Mapping
from functools import partial

from keylane.api.http.request import Request, id_of, topic_of
from keylane.api.http.response import Response
from keylane.api.http.router import Application, Operations
from keylane.api.reads import clusters, explore, log_records, topics
from keylane.api.rest_proxy import v2_documents as v2
from keylane.api.rest_proxy import v3_documents as v3
from keylane.api.rest_proxy.compatibility import COMPATIBLE
from keylane.api.rest_proxy.v2_answers import JSON as V2
from keylane.api.rest_proxy.v3_resources import Links, ResourceKind
from keylane.app import build_application
from keylane.explore.clusters import find_cluster, list_clusters, topic_of_cluster, topics_of_cluster
from keylane.explore.details import (
    find_broker,
    find_group,
    find_replica,
    find_setting,
    list_brokers,
    list_groups,
    list_lags,
    list_settings,
)
from keylane.explore.health import check_health
from keylane.explore.log import find_ends, find_offset, read_records
from keylane.explore.topics import (
    TopicPlacement,
    check_partition,
    describe_api_versions,
    describe_clusters,
    describe_kafka_topic,
    find_partition,
    list_names,
    list_topics,
    locate_topic,
)
from keylane.model.kafka import KafkaTopic
from keylane.model.kafka_groups import BROKER, TOPIC, GroupLag, SettingOwner
from keylane.model.routes import EXPLORE
from keylane.query.topics import describe_topic
from keylane.wiring.explore import ExploreParts, build_explore
from keylane.wiring.runtime import Runtime

ExploreApp = Application[ExploreParts]

OPERATIONS = Operations(EXPLORE)


def build(runtime: Runtime, environment: Mapping[str, str]) -> ExploreApp:
    """Return the application that asks Kafka. Its parts are built by the first request."""
    return build_application(OPERATIONS, build_explore, runtime, environment)


_V2 = {"refusals": (403, 502), "render_error": v2.render_read_error, "compatible": COMPATIBLE}
_V3 = {"refusals": (403, 502), "render_error": v3.render_v3_error}


@OPERATIONS.operation(
    explore.TOPICS_SCHEMA, parameters=explore.TOPICS, other_answers={V2: v2.NAMES_SCHEMA}, **_V2
)
def get_topics(app: ExploreApp, request: Request) -> Response[str]:
    """Answer with a page of Kafka's topics, by name."""
    use = app.parts()
    if v2.wants_rest_proxy(request):
        return v2.render_names(list_names(use.metadata, app.settings().topics, use.deadline))
    wanted, has_summaries = explore.parse_topics(request), explore.wants_summary(request)
    found = list_topics(use.metadata, app.settings().topics, wanted, use.deadline)
    summaries = use.summaries_of([name for name, _ in found.topics]) if has_summaries else None
    page = found if summaries is None else found.first(len(summaries))
    return explore.render_topics(page, summaries, use.clock.now_ms())


@OPERATIONS.operation(
    topics.TOPIC_SCHEMA,
    other_answers={V2: v2.TOPIC_SCHEMA},
    refusals=(502,),
    render_error=v2.render_read_error,
    compatible=COMPATIBLE,
)
def get_topic(app: ExploreApp, request: Request, topic: str) -> Response[str]:
    """Answer with a topic's layout, and with each lane's node and progress."""
    use = app.parts()
    name = topic_of(topic)
    if v2.wants_rest_proxy(request):
        return v2.render_topic(describe_kafka_topic(use.metadata, name, use.deadline))
    found = describe_topic(use.state_store, name, use.settings.state_timeout_ms)
    return topics.render_topic(found, use.clock.now_ms())


@OPERATIONS.operation(explore.KAFKA_TOPIC_SCHEMA, other_answers={V2: v2.PARTITIONS_SCHEMA}, **_V2)
def get_kafka_topic(app: ExploreApp, request: Request, topic: str) -> Response[str]:
    """Answer with a topic's partitions: their brokers, slots and shards."""
    use = app.parts()
    name = topic_of(topic)
    if v2.wants_rest_proxy(request):
        return v2.render_partitions(use.metadata.topic(name, use.deadline))
    return explore.render_topic_placement(_placement(use, name))


@OPERATIONS.operation(explore.KAFKA_PARTITION_SCHEMA, other_answers={V2: v2.PARTITION_SCHEMA}, **_V2)
def get_kafka_partition(app: ExploreApp, request: Request, topic: str, partition: str) -> Response[str]:
    """Answer with one partition's brokers, slot and shard."""
    use = app.parts()
    name, number = topic_of(topic), explore.parse_partition(partition)
    if v2.wants_rest_proxy(request):
        return v2.render_partition(find_partition(use.metadata, name, number, use.deadline), number)
    placement = _placement(use, name)
    check_partition(placement.topic, number)
    return explore.render_partition_placement(placement, number)


@OPERATIONS.operation(explore.SCHEMAS_SCHEMA)
def get_schemas(app: ExploreApp, request: Request, topic: str) -> Response[str]:
    """Answer with the newest schemas that a Schema Registry has for a topic."""
    name = topic_of(topic)
    return explore.render_schemas(name, app.parts().schemas_of(name))


@OPERATIONS.operation(
    explore.OFFSET_SCHEMA, parameters=explore.OFFSETS, other_answers={V2: v2.ENDS_SCHEMA}, **_V2
)
def get_offset(app: ExploreApp, request: Request, topic: str, partition: str) -> Response[str]:
    """Answer with an offset: earliest, latest, max, or at a time."""
    use = app.parts()
    if v2.wants_rest_proxy(request):
        name, number, deadline = topic_of(topic), explore.parse_partition(partition), use.deadline
        found_topic = use.metadata.topic(name, deadline)
        return v2.render_ends(find_ends(use.reader, found_topic, number, deadline))
    wanted = explore.parse_offset(request, topic, partition)
    return explore.render_offset(wanted, find_offset(use.metadata, use.reader, *wanted, use.deadline))


@OPERATIONS.operation(v2.BROKERS_SCHEMA, answer_type=V2, **_V2)
def get_brokers(app: ExploreApp, request: Request) -> Response[str]:
    """Answer with the numbers of the brokers, as REST Proxy v2 does."""
    use = app.parts()
    return v2.render_brokers(use.metadata.cluster(use.deadline))


@OPERATIONS.operation(log_records.LOG_RECORDS_SCHEMA, parameters=explore.RECORDS, refusals=(403, 413, 502))
def get_records(app: ExploreApp, request: Request, topic: str, partition: str) -> Response[str]:
    """Answer with a page of raw records, by offset."""
    use = app.parts()
    wanted, max_bytes, begin, raw_keys = explore.parse_records(request, topic, partition)
    page = read_records(use.metadata, use.reader, wanted, max_bytes, begin, use.deadline)
    layout = None if raw_keys else use.find_layout(wanted.topic)
    show_key = partial(use.decoder().show_key, layout) if layout else log_records.show_none
    return log_records.render_records(wanted, page, show_key)


@OPERATIONS.operation(clusters.CLUSTERS_SCHEMA, parameters=clusters.CLUSTERS, refusals=(403, 502))
def get_clusters(app: ExploreApp, request: Request) -> Response[str]:
    """Answer with the Kafka clusters and their brokers."""
    use = app.parts()
    has_versions, deadline = clusters.parse_clusters(request), use.deadline
    found = describe_clusters(use.clusters, deadline)
    versions = describe_api_versions(use.clusters, found, deadline) if has_versions else None
    return clusters.render_clusters(found, versions)


@OPERATIONS.operation(v3.CLUSTER.list_schema, **_V3)
def get_v3_clusters(app: ExploreApp, request: Request) -> Response[str]:
    """Answer with the Kafka clusters, as REST Proxy v3 does."""
    use = app.parts()
    return v3.render_clusters(Links.of(request), list_clusters(use.directory, use.deadline))


@OPERATIONS.operation(v3.CLUSTER.schema, **_V3)
def get_v3_cluster(app: ExploreApp, request: Request, cluster: str) -> Response[str]:
    """Answer with a Kafka cluster, as REST Proxy v3 does."""
    use = app.parts()
    _, found = find_cluster(use.directory, id_of(cluster), use.deadline)
    return v3.CLUSTER.render(Links.of(request), found.cluster_id, found)


@OPERATIONS.operation(v3.TOPIC.list_schema, **_V3)
def get_v3_topics(app: ExploreApp, request: Request, cluster: str) -> Response[str]:
    """Answer with a cluster's topics, as REST Proxy v3 does."""
    use = app.parts()
    cluster_id = id_of(cluster)
    found = topics_of_cluster(use.directory, app.settings().topics, cluster_id, use.deadline)
    return v3.TOPIC.render_list(Links.of(request), cluster_id, found)


@OPERATIONS.operation(v3.TOPIC.schema, **_V3)
def get_v3_topic(app: ExploreApp, request: Request, cluster: str, topic: str) -> Response[str]:
    """Answer with a topic, as REST Proxy v3 does."""
    use = app.parts()
    cluster_id = id_of(cluster)
    return v3.TOPIC.render(Links.of(request), cluster_id, _topic_of_cluster(use, cluster_id, topic))


@OPERATIONS.operation(v3.PARTITION.list_schema, **_V3)
def get_v3_partitions(app: ExploreApp, request: Request, cluster: str, topic: str) -> Response[str]:
    """Answer with a topic's partitions, as REST Proxy v3 does."""
    use = app.parts()
    cluster_id = id_of(cluster)
    found = _topic_of_cluster(use, cluster_id, topic)
    return v3.PARTITION.render_list(Links.of(request), cluster_id, found.partitions, topic_name=found.name)


@OPERATIONS.operation(v3.PARTITION.schema, **_V3)
def get_v3_partition(
    app: ExploreApp, request: Request, cluster: str, topic: str, partition: str
) -> Response[str]:
    """Answer with a partition, as REST Proxy v3 does."""
    use = app.parts()
    cluster_id, number = id_of(cluster), explore.parse_partition(partition)
    found = _topic_of_cluster(use, cluster_id, topic)
    check_partition(found, number)
    one = found.partitions[number]
    return v3.PARTITION.render(Links.of(request), cluster_id, one, topic_name=found.name)


@OPERATIONS.operation(v3.OFFSETS.schema, **_V3)
def get_v3_offsets(
    app: ExploreApp, request: Request, cluster: str, topic: str, partition: str
) -> Response[str]:
    """Answer with a partition's first and next offset, as REST Proxy v3 does."""
    use = app.parts()
    cluster_id, number = id_of(cluster), explore.parse_partition(partition)
    found = _topic_of_cluster(use, cluster_id, topic)
    ends = find_ends(use.reader, found, number, use.deadline)
    above = {"topic_name": found.name, "partition_id": number}
    return v3.OFFSETS.render(Links.of(request), cluster_id, ends, **above)


@OPERATIONS.operation(v3.BROKER.list_schema, **_V3)
def get_v3_brokers(app: ExploreApp, request: Request, cluster: str) -> Response[str]:
    """Answer with a cluster's brokers, as REST Proxy v3 does."""
    use, cluster_id = app.parts(), id_of(cluster)
    found = list_brokers(use.directory, cluster_id, use.deadline)
    return v3.BROKER.render_list(Links.of(request), cluster_id, found)


@OPERATIONS.operation(v3.BROKER.schema, **_V3)
def get_v3_broker(app: ExploreApp, request: Request, cluster: str, broker: str) -> Response[str]:
    """Answer with a broker, as REST Proxy v3 does."""
    use, cluster_id = app.parts(), id_of(cluster)
    found = find_broker(use.directory, cluster_id, id_of(broker), use.deadline)
    return v3.BROKER.render(Links.of(request), cluster_id, found)


@OPERATIONS.operation(v3.BROKER_CONFIG.list_schema, **_V3)
def get_v3_broker_configs(app: ExploreApp, request: Request, cluster: str, broker: str) -> Response[str]:
    """Answer with a broker's settings, as REST Proxy v3 does."""
    return _settings(app, request, id_of(cluster), SettingOwner(BROKER, id_of(broker)))


@OPERATIONS.operation(v3.BROKER_CONFIG.schema, **_V3)
def get_v3_broker_config(
    app: ExploreApp, request: Request, cluster: str, broker: str, name: str
) -> Response[str]:
    """Answer with one of a broker's settings, as REST Proxy v3 does."""
    return _setting(app, request, id_of(cluster), SettingOwner(BROKER, id_of(broker)), id_of(name))


@OPERATIONS.operation(v3.TOPIC_CONFIG.list_schema, **_V3)
def get_v3_topic_configs(app: ExploreApp, request: Request, cluster: str, topic: str) -> Response[str]:
    """Answer with a topic's settings, as REST Proxy v3 does."""
    return _settings(app, request, id_of(cluster), SettingOwner(TOPIC, topic_of(topic)))


@OPERATIONS.operation(v3.TOPIC_CONFIG.schema, **_V3)
def get_v3_topic_config(
    app: ExploreApp, request: Request, cluster: str, topic: str, name: str
) -> Response[str]:
    """Answer with one of a topic's settings, as REST Proxy v3 does."""
    return _setting(app, request, id_of(cluster), SettingOwner(TOPIC, topic_of(topic)), id_of(name))


@OPERATIONS.operation(v3.REPLICA.list_schema, **_V3)
def get_v3_replicas(
    app: ExploreApp, request: Request, cluster: str, topic: str, partition: str
) -> Response[str]:
    """Answer with a partition's replicas, as REST Proxy v3 does."""
    use = app.parts()
    cluster_id, number = id_of(cluster), explore.parse_partition(partition)
    found = _topic_of_cluster(use, cluster_id, topic)
    check_partition(found, number)
    above, one = {"topic_name": found.name, "partition_id": number}, found.partitions[number]
    replicas = [(one, broker) for broker in one.replicas]  # as Kafka prefers them as leaders
    return v3.REPLICA.render_list(Links.of(request), cluster_id, replicas, **above)


@OPERATIONS.operation(v3.REPLICA.schema, **_V3)
def get_v3_replica(
    app: ExploreApp, request: Request, cluster: str, topic: str, partition: str, broker: str
) -> Response[str]:
    """Answer with the replica that a broker has of a partition, as REST Proxy v3 does."""
    use = app.parts()
    cluster_id, number = id_of(cluster), explore.parse_partition(partition)
    found = _topic_of_cluster(use, cluster_id, topic)
    replica = find_replica(found, number, id_of(broker))
    above = {"topic_name": found.name, "partition_id": number}
    one = found.partitions[number], replica
    return v3.REPLICA.render(Links.of(request), cluster_id, one, **above)


@OPERATIONS.operation(v3.GROUP.list_schema, **_V3)
def get_v3_groups(app: ExploreApp, request: Request, cluster: str) -> Response[str]:
    """Answer with a cluster's consumer groups, as REST Proxy v3 does."""
    use, cluster_id = app.parts(), id_of(cluster)
    found = list_groups(use.directory, cluster_id, use.deadline)
    return v3.GROUP.render_list(Links.of(request), cluster_id, found)


@OPERATIONS.operation(v3.GROUP.schema, **_V3)
def get_v3_group(app: ExploreApp, request: Request, cluster: str, group: str) -> Response[str]:
    """Answer with a consumer group, as REST Proxy v3 does."""
    use, cluster_id = app.parts(), id_of(cluster)
    found = find_group(use.directory, cluster_id, id_of(group), use.deadline)
    return v3.GROUP.render(Links.of(request), cluster_id, found)


@OPERATIONS.operation(v3.CONSUMER.list_schema, **_V3)
def get_v3_consumers(app: ExploreApp, request: Request, cluster: str, group: str) -> Response[str]:
    """Answer with the members of a consumer group, as REST Proxy v3 does."""
    use, cluster_id = app.parts(), id_of(cluster)
    found = find_group(use.directory, cluster_id, id_of(group), use.deadline)
    above = {"consumer_group_id": found.group_id}
    return v3.CONSUMER.render_list(Links.of(request), cluster_id, found.members, **above)


@OPERATIONS.operation(v3.LAG_SUMMARY.schema, **_V3)
def get_v3_lag_summary(app: ExploreApp, request: Request, cluster: str, group: str) -> Response[str]:
    """Answer with the largest and the total lag of a consumer group, as REST Proxy v3 does."""
    cluster_id, group_id = id_of(cluster), id_of(group)
    lags = _lags(app, cluster_id, group_id)
    return v3.LAG_SUMMARY.render(Links.of(request), cluster_id, lags, consumer_group_id=group_id)


@OPERATIONS.operation(v3.LAG.list_schema, **_V3)
def get_v3_lags(app: ExploreApp, request: Request, cluster: str, group: str) -> Response[str]:
    """Answer with the lag of a consumer group in each partition, as REST Proxy v3 does."""
    cluster_id, group_id = id_of(cluster), id_of(group)
    lags = _lags(app, cluster_id, group_id)
    return v3.LAG.render_list(Links.of(request), cluster_id, lags, consumer_group_id=group_id)


@OPERATIONS.operation(clusters.HEALTH_SCHEMA, also={503: "a part is not ready"})
def get_health(app: ExploreApp, request: Request) -> Response[str]:
    """Answer whether Kafka and the state can be reached, and why not."""
    use = app.parts()
    state = use.store.state if use.store else None
    timeouts_ms = use.settings.health_timeout_ms, use.settings.state_timeout_ms
    return clusters.render_health(check_health(use.clusters, state, use.clock, *timeouts_ms))


def _placement(use: ExploreParts, topic: str) -> TopicPlacement:
    return locate_topic(use.metadata, use.store, topic, use.deadline, use.settings.state_timeout_ms)


def _settings(app: ExploreApp, request: Request, cluster_id: str, owner: SettingOwner) -> Response[str]:
    use = app.parts()
    found = list_settings(use.directory, cluster_id, owner, use.deadline)
    kind, above = _kind_of_settings(owner)
    return kind.render_list(Links.of(request), cluster_id, found, **above)


def _setting(
    app: ExploreApp, request: Request, cluster_id: str, owner: SettingOwner, name: str
) -> Response[str]:
    use = app.parts()
    found = find_setting(list_settings(use.directory, cluster_id, owner, use.deadline), name)
    kind, above = _kind_of_settings(owner)
    return kind.render(Links.of(request), cluster_id, found, **above)


def _kind_of_settings(owner: SettingOwner) -> tuple[ResourceKind, dict[str, str | int]]:
    if owner.kind == BROKER:
        return v3.BROKER_CONFIG, {"broker_id": int(owner.name)}
    return v3.TOPIC_CONFIG, {"topic_name": owner.name}


def _lags(app: ExploreApp, cluster_id: str, group_id: str) -> list[GroupLag]:
    use = app.parts()
    return list_lags(use.directory, app.settings().topics, cluster_id, group_id, use.deadline)


def _topic_of_cluster(use: ExploreParts, cluster_id: str, topic: str) -> KafkaTopic:
    return topic_of_cluster(use.directory, cluster_id, topic_of(topic), use.deadline)
