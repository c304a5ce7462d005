"""Kafka itself: clusters, topics, placements, offsets, health; the requests, and the responses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

from keylane.api.event import Event, query_of, topic_of
from keylane.api.json_response import render_json
from keylane.api.parameters import TIME_PATTERN, Parameter, choice, integer, read_moment, switch, text
from keylane.errors import BadRequest, KeylaneError
from keylane.explore.topics import TopicsRequest
from keylane.model.kafka import EARLIEST, ISOLATIONS, LATEST, MAX, LogRange, OffsetQuery

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane.api.response import Response
    from keylane.explore.health import PartHealth
    from keylane.explore.topics import TopicList, TopicPlacement
    from keylane.model.kafka import ApiVersion, At, KafkaCluster, KafkaPartition, OffsetFound

_NUMBER = re.compile(r"\d{1,10}")
LAST_PARTITION = 2**31 - 1
_OFFSET = re.compile(r"\d{1,18}")


def _parse_at(given: str) -> At:
    if given in {EARLIEST, LATEST, MAX}:
        return given
    try:
        return read_moment(given)
    except ValueError as error:
        raise ValueError(f"neither {EARLIEST} nor {LATEST} nor {MAX}, {error}") from error


def _parse_offset_or_end(given: str) -> str | int:
    if given in {EARLIEST, LATEST}:
        return given
    if not (given.isascii() and _OFFSET.fullmatch(given)):
        raise ValueError(f"neither an integer of up to 18 digits nor {EARLIEST} nor {LATEST}")
    return int(given)


PREFIX = text("prefix", "topics whose names begin with it", 249, default="")
AFTER = text("after", "topics whose names come after it: `next` of the page before", 249, default="")
TOPICS_LIMIT = integer("limit", "how many topics at most", 1, 10_000, 1_000)
AT = Parameter(
    "at",
    "which offset: earliest, latest, max (of the highest timestamp), or the first at or after a time "
    "(ms since 1970 or ISO 8601)",
    {
        "type": "string",
        "pattern": f"^({EARLIEST}|{LATEST}|{MAX}|{TIME_PATTERN})$",
        "examples": [EARLIEST, LATEST, MAX, "1795257709908"],
        "default": LATEST,
    },
    _parse_at,
    LATEST,
)
ISOLATION = choice("isolation", "what of transactions is seen", ISOLATIONS)
OFFSET = Parameter(
    "offset",
    "the first offset to read, or earliest or latest",
    {"type": "string", "pattern": f"^({EARLIEST}|{LATEST}|[0-9]{{1,18}})$", "default": EARLIEST},
    _parse_offset_or_end,
    EARLIEST,
)
LIMIT = integer("limit", "how many records at most", 1, 1_000, 100)
MAX_BYTES = integer(
    "max_bytes", "how many bytes of keys, values and headers; one record in any case", 1, 4 << 20, 1 << 20
)
TOPICS = (PREFIX, AFTER, TOPICS_LIMIT)
OFFSETS = (AT, ISOLATION)
RECORDS = (OFFSET, LIMIT, MAX_BYTES, ISOLATION)
API_VERSIONS = switch("api_versions", "ask each broker which versions of Kafka's APIs it supports")
CLUSTERS = (API_VERSIONS,)


class OffsetRequest(NamedTuple):
    """A GET of an offset."""

    query: OffsetQuery
    isolation: str


class RecordsRequest(NamedTuple):
    """A GET of raw records; from `begin` (EARLIEST or LATEST), or `wanted.offset` if that is None."""

    wanted: LogRange
    begin: str | None


def parse_topics(event: Event) -> TopicsRequest:
    """Parse a GET of a page of topics. Raises BadRequest."""
    query = query_of(event)
    return TopicsRequest(*(each.of(query) for each in TOPICS))


def parse_partition(raw: str) -> int:
    """Parse the partition number in a path. Raises BadRequest."""
    given = unquote_to_bytes(raw).decode(errors="replace")
    if not (given.isascii() and _NUMBER.fullmatch(given)) or int(given) > LAST_PARTITION:
        fault = f"partition is {given[:50]!r}, which is not an integer from 0 to {LAST_PARTITION}"
        raise BadRequest(fault, "partition")
    return int(given)


def parse_offset(event: Event, topic: str, partition: str) -> OffsetRequest:
    """Parse a GET of an offset. Raises BadRequest."""
    name, number = topic_of(topic), parse_partition(partition)
    query = query_of(event)
    return OffsetRequest(OffsetQuery(name, number, AT.of(query)), ISOLATION.of(query))


def parse_records(event: Event, topic: str, partition: str) -> RecordsRequest:
    """Parse a GET of raw records. Raises BadRequest."""
    query = query_of(event)
    offset, limit, max_bytes, isolation = (each.of(query) for each in RECORDS)
    begin = offset if isinstance(offset, str) else None
    name, number = topic_of(topic), parse_partition(partition)
    first = 0 if begin else offset
    wanted = LogRange(name, number, first, end=0, limit=limit, max_bytes=max_bytes, isolation=isolation)
    return RecordsRequest(wanted, begin)


def render_topics(found: TopicList) -> Response[str]:
    """`{"topics": [{"topic": "flights", "partitions": 9}], "next": "flights"}`."""
    topics: dict[str, Any] = {
        "topics": [{"topic": name, "partitions": count} for name, count in found.topics]
    }
    return render_json(topics | ({"next": found.next_after} if found.next_after else {}))


def render_topic_placement(placement: TopicPlacement) -> Response[str]:
    """Render a topic with all its partitions."""
    topic = placement.topic
    return render_json(
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "internal": topic.internal,
            "state": placement.state,
            "partitions": [_render_partition(placement, each) for each in topic.partitions],
        }
    )


def render_partition_placement(placement: TopicPlacement, partition: int) -> Response[str]:
    """Render one partition of a topic."""
    head = {"topic": placement.topic.name, "state": placement.state}
    return render_json(head | _render_partition(placement, placement.topic.partitions[partition]))


def _render_partition(placement: TopicPlacement, partition: KafkaPartition) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync),
        "slot": placement.slots[partition.number],
        "shard": placement.shards[partition.number],
    }


def render_offset(request: OffsetRequest, found: OffsetFound | None) -> Response[str]:
    """`{"topic": ..., "partition": 3, "at": "latest", "isolation": ..., "offset": 42, "timestamp": null}`."""
    topic, partition, at = request.query
    return render_json(
        {
            "topic": topic,
            "partition": partition,
            "at": str(at),
            "isolation": request.isolation,
            "offset": found.offset if found else None,
            "timestamp": found.timestamp_ms if found else None,
        }
    )


def parse_clusters(event: Event) -> bool:
    """Return whether a GET of the clusters asks for the versions of APIs. Raises BadRequest."""
    return bool(API_VERSIONS.of(query_of(event)))


def render_clusters(
    clusters: Mapping[str, KafkaCluster | KeylaneError],
    versions: Mapping[tuple[str, int], Sequence[ApiVersion] | KeylaneError] | None = None,
) -> Response[str]:
    """`{"clusters": [{"name": "default", "cluster_id": ..., "controller": 1, "brokers": [{"id": 1, ...}]}]}`.

    A cluster that does not answer has no id, no brokers, and `why`. With `versions` each broker has
    `"api_versions": [{"api_key": 0, "min_version": 0, "max_version": 11}, ...]`, or null and `why`.
    """
    found = [_render_cluster(name, each, versions) for name, each in clusters.items()]
    return render_json({"clusters": found})


def _render_cluster(
    name: str,
    cluster: KafkaCluster | KeylaneError,
    versions: Mapping[tuple[str, int], Sequence[ApiVersion] | KeylaneError] | None,
) -> dict[str, Any]:
    if isinstance(cluster, KeylaneError):
        return {"name": name, "cluster_id": None, "controller": None, "brokers": [], "why": str(cluster)}
    return {
        "name": name,
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller,
        "brokers": [
            {"id": broker.number, "host": broker.host, "port": broker.port, "rack": broker.rack}
            | ({} if versions is None else _render_versions(versions[name, broker.number]))
            for broker in cluster.brokers
        ],
    }


def _render_versions(found: Sequence[ApiVersion] | KeylaneError) -> dict[str, Any]:
    if isinstance(found, KeylaneError):
        return {"api_versions": None, "why": str(found)}
    return {"api_versions": [each._asdict() for each in found]}


def render_health(parts: Mapping[str, PartHealth]) -> Response[str]:
    """200 if all parts are ready, else 503; `live` is true whenever the function answers."""
    rendered = {
        name: {"ready": part.why is None, "took_ms": part.took_ms, **({"why": part.why} if part.why else {})}
        for name, part in parts.items()
    }
    ready = all(part.why is None for part in parts.values())
    response = render_json({"live": True, "ready": ready, "parts": rendered})
    response.status_code = 200 if ready else 503
    response.headers["Cache-Control"] = "no-store"
    return response
