"""Kafka itself: clusters, topics, partitions, offsets, raw records; and the health of Kafka and Redis."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from keylane.api import explore as explore_api
from keylane.api import rest_proxy_reads as v2
from keylane.api import rest_proxy_v3_reads as v3
from keylane.api import router
from keylane.api import topics as topics_api
from keylane.api.event import Event, cluster_of, topic_of
from keylane.api.log_records import render_records
from keylane.api.rest_proxy_answers import JSON as V2
from keylane.explore.clusters import find_cluster, list_clusters, topic_of_cluster, topics_of_cluster
from keylane.explore.health import check_health
from keylane.explore.log import find_ends, find_offset, read_records
from keylane.explore.topics import (
    check_partition,
    describe_api_versions,
    describe_clusters,
    describe_kafka_topic,
    find_partition,
    list_names,
    list_topics,
    locate_topic,
)
from keylane.query.topics import describe_topic
from keylane.wiring.api import read_api_settings
from keylane.wiring.explore import ExploreParts, build_explore
from keylane.wiring.metrics import build_meter

if TYPE_CHECKING:
    from keylane.api.response import Response
    from keylane.explore.topics import TopicPlacement
    from keylane.model.kafka import KafkaTopic

meter = build_meter()
app = router.Resolver("explore", meter, cache(read_api_settings))


@cache
def parts() -> ExploreParts:
    """Build what the function works with, at its first request."""
    return build_explore(meter)


@app.operation(
    parameters=explore_api.TOPICS,
    answer="Topics",
    other_answers={V2: "TopicNames"},
    refusals=(403, 502),
    render_error=v2.render_read_error,
)
def get_topics(event: Event) -> Response[str]:
    """Answer with a page of Kafka's topics, by name."""
    explore = parts()
    if v2.wants_rest_proxy(event):
        return v2.render_names(list_names(explore.metadata, app.settings().topics, explore.deadline))
    request = explore_api.parse_topics(event)
    found = list_topics(explore.metadata, app.settings().topics, request, explore.deadline)
    return explore_api.render_topics(found)


@app.operation(
    answer="Topic",
    other_answers={V2: "TopicWithConfigs"},
    refusals=(502,),
    render_error=v2.render_read_error,
)
def get_topic(event: Event, topic: str) -> Response[str]:
    """Answer with a topic's layout, and with each lane's node and progress."""
    explore, name = parts(), topic_of(topic)
    if v2.wants_rest_proxy(event):
        return v2.render_topic(describe_kafka_topic(explore.metadata, name, explore.deadline))
    found = describe_topic(explore.state_store, name, explore.settings.state_timeout_ms)
    return topics_api.render_topic(found, explore.clock.now_ms())


@app.operation(
    answer="KafkaTopic",
    other_answers={V2: "PartitionsWithReplicas"},
    refusals=(403, 502),
    render_error=v2.render_read_error,
)
def get_kafka_topic(event: Event, topic: str) -> Response[str]:
    """Answer with a topic's partitions: their brokers, slots and shards."""
    explore, name = parts(), topic_of(topic)
    if v2.wants_rest_proxy(event):
        return v2.render_partitions(explore.metadata.topic(name, explore.deadline))
    return explore_api.render_topic_placement(_placement(explore, name))


@app.operation(
    answer="KafkaPartition",
    other_answers={V2: "PartitionWithReplicas"},
    refusals=(403, 502),
    render_error=v2.render_read_error,
)
def get_kafka_partition(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with one partition's brokers, slot and shard."""
    explore = parts()
    name, number = topic_of(topic), explore_api.parse_partition(partition)
    if v2.wants_rest_proxy(event):
        return v2.render_partition(find_partition(explore.metadata, name, number, explore.deadline), number)
    placement = _placement(explore, name)
    check_partition(placement.topic, number)
    return explore_api.render_partition_placement(placement, number)


@app.operation(
    parameters=explore_api.OFFSETS,
    answer="Offset",
    other_answers={V2: "PartitionEnds"},
    refusals=(403, 502),
    render_error=v2.render_read_error,
)
def get_offset(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with an offset: earliest, latest, max, or at a time."""
    explore = parts()
    if v2.wants_rest_proxy(event):
        name, number, deadline = topic_of(topic), explore_api.parse_partition(partition), explore.deadline
        found_topic = explore.metadata.topic(name, deadline)
        return v2.render_ends(find_ends(explore.reader, found_topic, number, deadline))
    request = explore_api.parse_offset(event, topic, partition)
    found = find_offset(explore.metadata, explore.reader, *request, explore.deadline)
    return explore_api.render_offset(request, found)


@app.operation(answer="BrokerNumbers", answer_type=V2, refusals=(403, 502), render_error=v2.render_read_error)
def get_brokers(event: Event) -> Response[str]:
    """Answer with the numbers of the brokers, as REST Proxy v2 does."""
    explore = parts()
    return v2.render_brokers(explore.metadata.cluster(explore.deadline))


@app.operation(parameters=explore_api.RECORDS, answer="LogRecords", refusals=(403, 413, 502))
def get_records(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with a page of raw records, by offset."""
    explore = parts()
    request = explore_api.parse_records(event, topic, partition)
    page = read_records(explore.metadata, explore.reader, *request, explore.deadline)
    return render_records(request.wanted, page)


@app.operation(parameters=explore_api.CLUSTERS, answer="Clusters", refusals=(403, 502))
def get_clusters(event: Event) -> Response[str]:
    """Answer with the Kafka clusters and their brokers."""
    explore = parts()
    has_versions, deadline = explore_api.parse_clusters(event), explore.deadline
    found = describe_clusters(explore.clusters, deadline)
    versions = describe_api_versions(explore.clusters, found, deadline) if has_versions else None
    return explore_api.render_clusters(found, versions)


_v3 = {"refusals": (403, 502), "render_error": v3.render_v3_error}


@app.operation(answer="V3Clusters", **_v3)
def get_v3_clusters(event: Event) -> Response[str]:
    """Answer with the Kafka clusters, as REST Proxy v3 does."""
    explore = parts()
    return v3.render_clusters(v3.Links.of(event), list_clusters(explore.directory, explore.deadline))


@app.operation(answer="V3Cluster", **_v3)
def get_v3_cluster(event: Event, cluster: str) -> Response[str]:
    """Answer with a Kafka cluster, as REST Proxy v3 does."""
    explore = parts()
    _, found = find_cluster(explore.directory, cluster_of(cluster), explore.deadline)
    return v3.render_cluster(v3.Links.of(event), found)


@app.operation(answer="V3Topics", **_v3)
def get_v3_topics(event: Event, cluster: str) -> Response[str]:
    """Answer with a cluster's topics, as REST Proxy v3 does."""
    explore, cluster_id = parts(), cluster_of(cluster)
    found = topics_of_cluster(explore.directory, app.settings().topics, cluster_id, explore.deadline)
    return v3.render_topics(v3.Links.of(event), cluster_id, found)


@app.operation(answer="V3Topic", **_v3)
def get_v3_topic(event: Event, cluster: str, topic: str) -> Response[str]:
    """Answer with a topic, as REST Proxy v3 does."""
    cluster_id = cluster_of(cluster)
    return v3.render_topic(v3.Links.of(event), cluster_id, _topic_of_cluster(cluster_id, topic))


@app.operation(answer="V3Partitions", **_v3)
def get_v3_partitions(event: Event, cluster: str, topic: str) -> Response[str]:
    """Answer with a topic's partitions, as REST Proxy v3 does."""
    cluster_id = cluster_of(cluster)
    return v3.render_partitions(v3.Links.of(event), cluster_id, _topic_of_cluster(cluster_id, topic))


@app.operation(answer="V3Partition", **_v3)
def get_v3_partition(event: Event, cluster: str, topic: str, partition: str) -> Response[str]:
    """Answer with a partition, as REST Proxy v3 does."""
    cluster_id, number = cluster_of(cluster), explore_api.parse_partition(partition)
    found = _topic_of_cluster(cluster_id, topic)
    check_partition(found, number)
    return v3.render_partition(v3.Links.of(event), cluster_id, found, number)


@app.operation(answer="V3Offsets", **_v3)
def get_v3_offsets(event: Event, cluster: str, topic: str, partition: str) -> Response[str]:
    """Answer with a partition's first and next offset, as REST Proxy v3 does."""
    explore, cluster_id = parts(), cluster_of(cluster)
    number, found = explore_api.parse_partition(partition), _topic_of_cluster(cluster_id, topic)
    ends = find_ends(explore.reader, found, number, explore.deadline)
    return v3.render_offsets(v3.Links.of(event), cluster_id, found.name, number, ends)


@app.operation(answer="Health")
def get_health(event: Event) -> Response[str]:
    """Answer whether Kafka and the state can be reached, and why not."""
    explore = parts()
    state = explore.store.state if explore.store else None
    timeouts_ms = explore.settings.health_timeout_ms, explore.settings.state_timeout_ms
    return explore_api.render_health(check_health(explore.clusters, state, explore.clock, *timeouts_ms))


def _placement(explore: ExploreParts, topic: str) -> TopicPlacement:
    return locate_topic(
        explore.metadata, explore.store, topic, explore.deadline, explore.settings.state_timeout_ms
    )


def _topic_of_cluster(cluster_id: str, topic: str) -> KafkaTopic:
    explore = parts()
    return topic_of_cluster(explore.directory, cluster_id, topic_of(topic), explore.deadline)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return router.serve(app, event, context)
