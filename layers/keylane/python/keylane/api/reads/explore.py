"""Kafka's topics: their placements, offsets, schemas; the requests, and the responses."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from keylane.api.http.common_parameters import KEY_FORMAT, MOST_PAGE_RECORDS, PAGE_RECORDS, has_base64_keys
from keylane.api.http.json_response import render_json
from keylane.api.http.parameters import TIME_PATTERN, Parameter, choice, integer, read_moment, switch, text
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, FLAG, MAYBE_COUNT, MAYBE_TEXT, TEXT, Schema, an_array, an_object
from keylane.api.reads.topics import SUMMARY_SCHEMA, render_summary
from keylane.errors import BadRequest
from keylane.explore.schemas import SubjectSchemas
from keylane.explore.topics import (
    KEPT,
    NOT_CONFIGURED,
    NOT_KEPT,
    UNAVAILABLE,
    TopicList,
    TopicPlacement,
    TopicsRequest,
)
from keylane.model.kafka import (
    EARLIEST,
    ISOLATIONS,
    LATEST,
    MAX,
    At,
    KafkaPartition,
    LogRange,
    OffsetFound,
    OffsetQuery,
)
from keylane.query.summaries import TopicSummary

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
LIMIT = integer("limit", "how many records at most", 1, MOST_PAGE_RECORDS, PAGE_RECORDS)
MAX_BYTES = integer(
    "max_bytes", "how many bytes of keys, values and headers; one record in any case", 1, 4 << 20, 1 << 20
)
SUMMARY = switch("summary", "how each topic is, too, if Keylane has state of it: keys, memory, lag, age")
PAGE_OF_TOPICS = (PREFIX, AFTER, TOPICS_LIMIT)
TOPICS = (*PAGE_OF_TOPICS, SUMMARY)
OFFSETS = (AT, ISOLATION)
RANGE = (OFFSET, LIMIT, MAX_BYTES, ISOLATION)
RECORDS = (*RANGE, KEY_FORMAT)


class OffsetRequest(NamedTuple):
    """A GET of an offset."""

    query: OffsetQuery
    isolation: str


class RecordsRequest(NamedTuple):
    """A GET of raw records; from `begin` (EARLIEST or LATEST), or `wanted.offset` if that is None.

    `raw_keys`: keys are shown as they are in Kafka, also those of topics with typed keys.
    """

    wanted: LogRange
    max_bytes: int
    begin: str | None
    raw_keys: bool


def parse_topics(request: Request) -> TopicsRequest:
    """Parse a GET of a page of topics. Raises BadRequest."""
    return TopicsRequest(*(each.of(request) for each in PAGE_OF_TOPICS))


def wants_summary(request: Request) -> bool:
    """Return whether a GET of topics asks how each is. Raises BadRequest."""
    return bool(SUMMARY.of(request))


def parse_partition(raw: str) -> int:
    """Parse the partition number in a path. Raises BadRequest."""
    given = unquote_to_bytes(raw).decode(errors="replace")
    if not (given.isascii() and _NUMBER.fullmatch(given)) or int(given) > LAST_PARTITION:
        fault = f"partition is {given[:50]!r}, which is not an integer from 0 to {LAST_PARTITION}"
        raise BadRequest(fault, "partition")
    return int(given)


def parse_offset(request: Request, topic: str, partition: str) -> OffsetRequest:
    """Parse a GET of an offset. Raises BadRequest."""
    name, number = topic_of(topic), parse_partition(partition)
    return OffsetRequest(OffsetQuery(name, number, AT.of(request)), ISOLATION.of(request))


def parse_records(request: Request, topic: str, partition: str) -> RecordsRequest:
    """Parse a GET of raw records. Raises BadRequest."""
    offset, limit, max_bytes, isolation = (each.of(request) for each in RANGE)
    begin = offset if isinstance(offset, str) else None
    name, number = topic_of(topic), parse_partition(partition)
    first = 0 if begin else offset
    wanted = LogRange(name, number, first, end=0, limit=limit, isolation=isolation)
    return RecordsRequest(wanted, max_bytes, begin, has_base64_keys(request))


TOPICS_SCHEMA = Schema.of(
    "Topics",
    optional=("next",),
    topics=an_array(an_object(optional=("summary",), topic=TEXT, partitions=COUNT, summary=SUMMARY_SCHEMA)),
    next={"type": "string", "description": "value of `after` for the next page; absent on the last page"},
)


def render_topics(
    found: TopicList, summaries: Mapping[str, TopicSummary | None] | None, now_ms: int
) -> Response[str]:
    """`{"topics": [{"topic": "flights", "partitions": 9}], "next": "flights"}`, with `summaries` if any."""
    topics: list[dict[str, Any]] = [{"topic": name, "partitions": count} for name, count in found.topics]
    if summaries is not None:
        for each in topics:
            if (summary := summaries[each["topic"]]) is not None:
                each["summary"] = render_summary(summary, now_ms)
    return render_json({"topics": topics} | ({"next": found.next_after} if found.next_after else {}))


_IN_STATE = {
    "description": "whether Keylane keeps the topic's state",
    "enum": [KEPT, NOT_KEPT, UNAVAILABLE, NOT_CONFIGURED],
}
_PARTITION: dict[str, Any] = {
    "partition": COUNT,
    "leader": {**MAYBE_COUNT, "description": "the broker's id"},
    "replicas": an_array(COUNT),
    "in_sync": an_array(COUNT),
    "slot": {
        **MAYBE_COUNT,
        "maximum": 16383,
        "description": "Redis Cluster slot of the partition's first stripe",
    },
    "shard": {**MAYBE_TEXT, "description": "host:port of that slot's primary"},
}
KAFKA_TOPIC_SCHEMA = Schema.of(
    "KafkaTopic",
    topic=TEXT,
    topic_id=TEXT,
    internal=FLAG,
    state=_IN_STATE,
    partitions=an_array(an_object(**_PARTITION)),
)
KAFKA_PARTITION_SCHEMA = Schema.of("KafkaPartition", topic=TEXT, state=_IN_STATE, **_PARTITION)


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


OFFSET_SCHEMA = Schema.of(
    "Offset",
    topic=TEXT,
    partition=COUNT,
    at=TEXT,
    isolation={"enum": list(ISOLATIONS)},
    offset={**MAYBE_COUNT, "description": "null if there is no such record"},
    timestamp={**MAYBE_COUNT, "description": "timestamp of the record, if it was looked up by time"},
)


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


SCHEMAS_SCHEMA = Schema.of(
    "Schemas",
    topic=TEXT,
    subjects=an_array(
        an_object(
            subject=TEXT,
            versions=an_array(
                an_object(version=COUNT, id=COUNT, type={"enum": ["AVRO", "JSON", "PROTOBUF"]}, schema=TEXT)
            ),
        )
    ),
)


def render_schemas(topic: str, subjects: Sequence[SubjectSchemas]) -> Response[str]:
    """`{"topic": ..., "subjects": [{"subject": ..., "versions": [{"version": 2, "id": 7, ...}]}]}`."""
    found = [
        {
            "subject": each.subject,
            "versions": [
                {"version": one.version, "id": one.schema_id, "type": one.kind, "schema": one.schema}
                for one in each.versions
            ],
        }
        for each in subjects
    ]
    return render_json({"topic": topic, "subjects": found})
