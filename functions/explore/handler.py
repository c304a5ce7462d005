"""Kafka itself: clusters, topics, partitions, offsets, raw records; and the health of Kafka and Redis."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from keylane.api import explore as explore_api
from keylane.api import router
from keylane.api.event import Event, topic_of
from keylane.api.log_records import render_records
from keylane.explore.health import check_health
from keylane.explore.log import find_offset, read_records
from keylane.explore.topics import check_partition, describe_clusters, list_topics, locate_topic
from keylane.wiring.api import read_api_settings
from keylane.wiring.explore import ExploreParts, build_explore
from keylane.wiring.metrics import build_meter

if TYPE_CHECKING:
    from keylane.api.response import Response

meter = build_meter()
app = router.Resolver("explore", meter, cache(read_api_settings))


@cache
def parts() -> ExploreParts:
    """Build what the function works with, at its first request."""
    return build_explore(meter)


@app.operation(parameters=explore_api.TOPICS, answer="Topics", refusals=(403, 502))
def get_topics(event: Event) -> Response[str]:
    """Answer with a page of Kafka's topics, by name."""
    explore = parts()
    request = explore_api.parse_topics(event)
    found = list_topics(explore.metadata, app.settings().topics, request, explore.deadline)
    return explore_api.render_topics(found)


@app.operation(answer="KafkaTopic", refusals=(403, 502))
def get_kafka_topic(event: Event, topic: str) -> Response[str]:
    """Answer with a topic's partitions: their brokers, slots and shards."""
    explore = parts()
    placement = locate_topic(
        explore.metadata, explore.store, topic_of(topic), explore.deadline, explore.settings.state_timeout_ms
    )
    return explore_api.render_topic_placement(placement)


@app.operation(answer="KafkaPartition", refusals=(403, 502))
def get_kafka_partition(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with one partition's brokers, slot and shard."""
    explore = parts()
    name, number = topic_of(topic), explore_api.parse_partition(partition)
    placement = locate_topic(
        explore.metadata, explore.store, name, explore.deadline, explore.settings.state_timeout_ms
    )
    check_partition(placement.topic, number)
    return explore_api.render_partition_placement(placement, number)


@app.operation(parameters=explore_api.OFFSETS, answer="Offset", refusals=(403, 502))
def get_offset(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with an offset: earliest, latest, max, or at a time."""
    explore = parts()
    request = explore_api.parse_offset(event, topic, partition)
    found = find_offset(explore.metadata, explore.reader, *request, explore.deadline)
    return explore_api.render_offset(request, found)


@app.operation(parameters=explore_api.RECORDS, answer="LogRecords", refusals=(403, 413, 502))
def get_records(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with a page of raw records, by offset."""
    explore = parts()
    request = explore_api.parse_records(event, topic, partition)
    page = read_records(explore.metadata, explore.reader, *request, explore.deadline)
    return render_records(request.wanted, page)


@app.operation(answer="Clusters", refusals=(403, 502))
def get_clusters(event: Event) -> Response[str]:
    """Answer with the Kafka clusters and their brokers."""
    explore = parts()
    found = describe_clusters(explore.clusters, explore.deadline)
    return explore_api.render_clusters(found)


@app.operation(answer="Health")
def get_health(event: Event) -> Response[str]:
    """Answer whether Kafka and the state can be reached, and why not."""
    explore = parts()
    state = explore.store.state if explore.store else None
    timeouts_ms = explore.settings.health_timeout_ms, explore.settings.state_timeout_ms
    return explore_api.render_health(check_health(explore.clusters, state, explore.clock, *timeouts_ms))


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return router.serve(app, event, context)
