"""Kafka as it is: cluster, topics, partitions, offsets, raw records; and the health of what stands behind."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from keylane.api import explore as requests
from keylane.api import router
from keylane.api.event import Event, topic_of
from keylane.explore import explore
from keylane.wiring.explore import ExploreParts, build_explore
from keylane.wiring.metrics import build_meter

if TYPE_CHECKING:
    from keylane.api.response import Response

meter = build_meter()
app = router.Resolver("explore", meter)


@cache
def parts() -> ExploreParts:
    """Build what the function works with, at its first request."""
    return build_explore(meter)


@app.operation(parameters=requests.TOPICS, answer="Topics", refusals=(403, 502))
def get_topics(event: Event) -> Response[str]:
    """Answer with a page of Kafka's topics, by name."""
    use = parts()
    asked = requests.topics_request(event)
    found = explore.topics(use.metadata, use.clock, **asked._asdict(), timeout_ms=use.settings.timeout_ms)
    return requests.of_topics(*found)


def _places(use: ExploreParts, topic: str) -> explore.Places:
    return explore.places(
        use.metadata,
        use.state,
        use.layouts,
        use.clock,
        topic,
        timeout_ms=use.settings.timeout_ms,
        state_timeout_ms=use.settings.state_timeout_ms,
    )


@app.operation(answer="KafkaTopic", refusals=(403, 502))
def get_kafka_topic(event: Event, topic: str) -> Response[str]:
    """Answer with a topic's partitions: their brokers, slots and shards."""
    use = parts()
    return requests.of_places(_places(use, topic_of(topic)))


@app.operation(answer="KafkaPartition", refusals=(403, 502))
def get_kafka_partition(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with one partition's brokers, slot and shard."""
    use = parts()
    name, number = topic_of(topic), requests.partition_of(partition)
    places = _places(use, name)
    explore.check_partition(places.topic, number)
    return requests.of_place(places, number)


@app.operation(parameters=requests.OFFSETS, answer="Offset", refusals=(403, 502))
def get_offset(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with the offset at a place or time."""
    use = parts()
    name, number = topic_of(topic), requests.partition_of(partition)
    at, isolation = requests.offset_request(event)
    found = explore.offset(
        *(use.metadata, use.reader, use.clock, name, number),
        at=at,
        isolation=isolation,
        timeout_ms=use.settings.timeout_ms,
    )
    return requests.of_offset(name, number, at, isolation, found)


@app.operation(parameters=requests.RECORDS, answer="LogRecords", refusals=(403, 413, 502))
def get_records(event: Event, topic: str, partition: str) -> Response[str]:
    """Answer with a page of raw records, by offset."""
    use = parts()
    wanted, begin = requests.records_request(event, topic, partition)
    page = explore.records(
        use.metadata, use.reader, use.clock, wanted, begin=begin, timeout_ms=use.settings.timeout_ms
    )
    return requests.of_records(wanted, page)


@app.operation(answer="Clusters", refusals=(403, 502))
def get_clusters(event: Event) -> Response[str]:
    """Answer with the Kafka clusters and their brokers."""
    use = parts()
    found = explore.clusters(use.metadata_by_cluster, use.clock, timeout_ms=use.settings.timeout_ms)
    return requests.of_clusters(found)


@app.operation(answer="Health")
def get_health(event: Event) -> Response[str]:
    """Answer whether Kafka and the state can be reached, and why not."""
    use = parts()
    found = explore.health(
        use.metadata_by_cluster,
        use.state,
        use.clock,
        timeout_ms=use.settings.health_timeout_ms,
        state_timeout_ms=use.settings.state_timeout_ms,
    )
    return requests.of_health(found)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one API Gateway REST proxy event."""
    return router.serve(app, event, context)
