"""Requests that look into Kafka, and their answers as JSON documents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

from keylane.api.envelope import render_headers, render_key, render_value
from keylane.api.event import Event, query_of, topic_of
from keylane.api.json_response import render_json
from keylane.api.parameters import Parameter, choice, integer, read_moment, text
from keylane.api.rendering import JSON
from keylane.api.response import ANSWER_LIMIT_BYTES, Response
from keylane.errors import BadRequest, KeylaneError, TooLarge
from keylane.model.kafka import EARLIEST, ISOLATIONS, LATEST, MAX, Wanted
from keylane.model.records import Record, ValueForm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from keylane.explore.explore import Page, Part, Places
    from keylane.model.kafka import At, Broker, KafkaCluster, KafkaPartition, LogRecord, OffsetFound

_NUMBER = re.compile(r"\d{1,10}")
LAST_PARTITION = 2**31 - 1
_OFFSET = re.compile(r"\d{1,18}")


def _read_at(given: str) -> At:
    if given in {EARLIEST, LATEST, MAX}:
        return given
    try:
        return read_moment(given)
    except ValueError as error:
        raise ValueError(f"neither {EARLIEST} nor {LATEST} nor {MAX}, {error}") from error


def _read_offset(given: str) -> str | int:
    if given in {EARLIEST, LATEST}:
        return given
    if not (given.isascii() and _OFFSET.fullmatch(given)):
        raise ValueError(f"neither a whole number of up to 18 digits nor {EARLIEST} nor {LATEST}")
    return int(given)


PREFIX = text("prefix", "topics whose names begin with it", 249, default="")
AFTER = text("after", "topics whose names come after it: `next` of the page before", 249, default="")
TOPICS_LIMIT = integer("limit", "how many topics at most", 1, 10_000, 1_000)
AT = Parameter(
    "at",
    "which offset: earliest, latest, max (of the highest timestamp), or the first at or after a time "
    "(ms since 1970 or ISO 8601)",
    {"type": "string", "examples": [EARLIEST, LATEST, MAX, "1795257709908"], "default": LATEST},
    _read_at,
    LATEST,
)
ISOLATION = choice("isolation", "what of transactions is seen", ISOLATIONS)
OFFSET = Parameter(
    "offset",
    "the first offset to read, or earliest or latest",
    {"type": "string", "pattern": f"^({EARLIEST}|{LATEST}|[0-9]{{1,18}})$", "default": EARLIEST},
    _read_offset,
    EARLIEST,
)
LIMIT = integer("limit", "how many records at most", 1, 1_000, 100)
MAX_BYTES = integer(
    "max_bytes", "how many bytes of keys, values and headers; one record in any case", 1, 4 << 20, 1 << 20
)
TOPICS = (PREFIX, AFTER, TOPICS_LIMIT)
OFFSETS = (AT, ISOLATION)
RECORDS = (OFFSET, LIMIT, MAX_BYTES, ISOLATION)


class TopicsRequest(NamedTuple):
    """A page of topics, as asked for."""

    prefix: str
    after: str
    limit: int


def topics_request(event: Event) -> TopicsRequest:
    """Raises BadRequest, as all of these do."""
    query = query_of(event)
    return TopicsRequest(*(each.of(query) for each in TOPICS))


def partition_of(raw: str) -> int:
    """Give the number of a partition in a path. Raises BadRequest."""
    given = unquote_to_bytes(raw).decode(errors="replace")
    if not (given.isascii() and _NUMBER.fullmatch(given)) or int(given) > LAST_PARTITION:
        raise BadRequest(
            f"partition is {given[:50]!r}, not a whole number of 0 to {LAST_PARTITION}", "partition"
        )
    return int(given)


def offset_request(event: Event) -> tuple[At, str]:
    """Give place and isolation."""
    query = query_of(event)
    return AT.of(query), ISOLATION.of(query)


def records_request(event: Event, topic: str, partition: str) -> tuple[Wanted, str | None]:
    """Give what is wanted, and where it begins where that is no number. `wanted.end` is still open."""
    query = query_of(event)
    offset, limit, max_bytes, isolation = (each.of(query) for each in RECORDS)
    begin = offset if isinstance(offset, str) else None
    place = (topic_of(topic), partition_of(partition), 0 if begin else offset)
    return Wanted(*place, end=0, limit=limit, max_bytes=max_bytes, isolation=isolation), begin


def of_topics(page: list[tuple[str, int]], next_after: str | None) -> Response[str]:
    """`{"topics": [{"topic": "flights", "partitions": 9}], "next": "flights"}`."""
    listed: dict[str, Any] = {"topics": [{"topic": name, "partitions": count} for name, count in page]}
    return render_json(listed | ({"next": next_after} if next_after else {}))


def of_places(places: Places) -> Response[str]:
    """All partitions."""
    topic = places.topic
    return render_json(
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "internal": topic.internal,
            "state": places.state,
            "partitions": [_partition(places, each) for each in topic.partitions],
        }
    )


def of_place(places: Places, partition: int) -> Response[str]:
    """One partition."""
    head = {"topic": places.topic.name, "state": places.state}
    return render_json(head | _partition(places, places.topic.partitions[partition]))


def _partition(places: Places, partition: KafkaPartition) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync),
        "slot": places.slots[partition.number],
        "shard": places.shards[partition.number],
    }


def of_offset(topic: str, partition: int, at: At, isolation: str, found: OffsetFound | None) -> Response[str]:
    """`{"topic": ..., "partition": 3, "at": "latest", "isolation": ..., "offset": 42, "timestamp": null}`."""
    place = {"topic": topic, "partition": partition, "at": str(at), "isolation": isolation}
    offset = {"offset": found.offset if found else None, "timestamp": found.timestamp_ms if found else None}
    return render_json(place | offset)


def of_clusters(clusters: Mapping[str, KafkaCluster | KeylaneError]) -> Response[str]:
    """`{"clusters": [{"name": "default", "cluster_id": ..., "controller": 1, "brokers": [{"id": 1, ...}]}]}`.

    One that can't be asked has no id, no brokers, and `why`.
    """
    return render_json({"clusters": [_cluster(name, each) for name, each in clusters.items()]})


def _cluster(name: str, cluster: KafkaCluster | KeylaneError) -> dict[str, Any]:
    if isinstance(cluster, KeylaneError):
        return {"name": name, "cluster_id": None, "controller": None, "brokers": [], "why": str(cluster)}
    return {
        "name": name,
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller,
        "brokers": [_broker(each) for each in cluster.brokers],
    }


def _broker(broker: Broker) -> dict[str, Any]:
    return {"id": broker.number, "host": broker.host, "port": broker.port, "rack": broker.rack}


def of_health(parts: dict[str, Part]) -> Response[str]:
    """200 where all parts are ready, else 503; whoever answers is live."""
    described = {
        name: {"ready": part.why is None, "took_ms": part.took_ms, **({"why": part.why} if part.why else {})}
        for name, part in parts.items()
    }
    ready = all(part.why is None for part in parts.values())
    response = render_json({"live": True, "ready": ready, "parts": described})
    response.status_code = 200 if ready else 503
    response.headers["Cache-Control"] = "no-store"
    return response


def of_records(wanted: Wanted, page: Page) -> Response[str]:
    """A page of records: `{"topic": ..., "partition": 3, "records": [...], "next_offset": 1043, ...}`.

    `watermarks`: the partition's first offset, and the next that it gets. A record has position, timestamp,
    key, value and headers as in an envelope; what is null has the format `null`; headers are null where the
    name of one is no UTF-8. A value that does not fit
    into an answer as text is shown in base64, and left out where that does not either: `left-in-kafka`.
    """
    rows: list[str] = []
    size_bytes, next_offset = 0, page.batch.next_offset
    for record in page.batch.records:
        row, row_bytes = _fitting(wanted.partition, record)
        size_bytes += row_bytes
        if size_bytes > ANSWER_LIMIT_BYTES:
            next_offset = record.offset
            break
        rows.append(row)
    head = {"topic": wanted.topic, "partition": wanted.partition, "isolation": wanted.isolation}
    tail = {"next_offset": next_offset, "watermarks": {"low": page.low, "high": page.high}}
    body = f'{json.dumps(head)[:-1]}, "records": [{", ".join(rows)}], {json.dumps(tail)[1:]}'
    return Response(200, JSON, body, {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"})


def _fitting(partition: int, record: LogRecord) -> tuple[str, int]:
    """A record's JSON that an answer can hold, and its size there. Raises TooLarge."""
    row_bytes = 0
    for shown in _spellings(partition, record):
        row = _row(record, shown)
        row_bytes = len(json.dumps(row)) + 2
        if row_bytes <= ANSWER_LIMIT_BYTES:
            return row, row_bytes
    raise TooLarge("answer", row_bytes, ANSWER_LIMIT_BYTES)


def _spellings(partition: int, record: LogRecord) -> Iterator[Record]:
    """The record as it is, its value in base64, and without its value."""
    key, value = record.key or b"", record.value or b""
    shown = Record(key, value, partition, record.offset, record.timestamp_ms or 0, record.headers or ())
    yield shown
    yield shown._replace(form=ValueForm("base64"))
    yield shown._replace(value=b"", left_in_kafka_bytes=len(value))


def _row(record: LogRecord, shown: Record) -> str:
    head = {
        "partition": shown.partition,
        "offset": record.offset,
        "position": str(shown.position),
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        **({"key": None, "key_format": "null"} if record.key is None else render_key(record.key)),
        "headers": None if record.headers is None else render_headers(shown),
    }
    if record.value is None:
        return json.dumps({**head, "value_format": "null", "value": None})
    return render_value(json.dumps(head)[:-1], shown, None)
