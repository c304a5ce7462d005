"""Raw records of a partition as one JSON document."""

import json
from collections.abc import Callable, Iterator

from keylane.api.http.rendering import JSON
from keylane.api.http.response import ANSWER_LIMIT_BYTES, Response
from keylane.api.http.schemas import COUNT, KEY, TEXT, VALUE, Schema, an_array, an_object
from keylane.api.reads.envelope import render_headers, render_shown_key, render_value
from keylane.errors import TooLarge
from keylane.explore.log import RecordPage
from keylane.model.kafka import ISOLATIONS, LogRange, LogRecord
from keylane.model.records import Record, ValueForm

ShowKey = Callable[[bytes], str | None]
"""Returns the JSON that a key is asked for by; None where it is shown as it is."""


def show_none(_: bytes) -> None:
    """Show keys as they are: a `ShowKey`."""


LOG_RECORD_SCHEMA = Schema.of(
    "LogRecord",
    optional=("timestamp_type", "value", "value_bytes"),
    partition=COUNT,
    offset=COUNT,
    position=TEXT,
    timestamp={"type": ["integer", "null"]},
    timestamp_type={"enum": ["CreateTime", "LogAppendTime", None]},
    key=KEY["key"],
    key_format={"enum": [*KEY["key_format"]["enum"], "null"]},
    headers={**VALUE["headers"], "type": ["array", "null"]},
    value=VALUE["value"],
    value_format={"enum": ["json", "text", "base64", "left-in-kafka", "null"]},
    value_bytes=COUNT,
)
LOG_RECORDS_SCHEMA = Schema.of(
    "LogRecords",
    topic=TEXT,
    partition=COUNT,
    isolation={"enum": list(ISOLATIONS)},
    records=an_array(LOG_RECORD_SCHEMA),
    next_offset={**COUNT, "description": "offset at which to continue"},
    watermarks={
        "description": "the partition's first offset, and the offset of its next record",
        **an_object(low=COUNT, high=COUNT),
    },
)


def render_records(wanted: LogRange, page: RecordPage, show_key: ShowKey) -> Response[str]:
    """`{"topic": ..., "partition": 3, "records": [...], "next_offset": 1043, "watermarks": {...}}`.

    `watermarks`: the partition's first offset, and its next one. A record has position, timestamp, key, value
    and headers as in an envelope; a null key or value has the format `null`; headers are null if a name is
    not valid UTF-8. Raises TooLarge for a record whose key and headers exceed a response.
    """
    rows: list[str] = []
    size_bytes, next_offset = 0, page.batch.next_offset
    for record in page.batch.records:
        row, row_bytes = _render_fitting(wanted.partition, record, show_key)
        size_bytes += row_bytes
        if size_bytes > ANSWER_LIMIT_BYTES:
            next_offset = record.offset
            break
        rows.append(row)
    head = {"topic": wanted.topic, "partition": wanted.partition, "isolation": wanted.isolation}
    tail = {"next_offset": next_offset, "watermarks": {"low": page.low, "high": page.high}}
    body = f'{json.dumps(head)[:-1]}, "records": [{", ".join(rows)}], {json.dumps(tail)[1:]}'
    return Response(200, JSON, body, {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"})


def _render_fitting(partition: int, record: LogRecord, show_key: ShowKey) -> tuple[str, int]:
    """The first rendering that fits into a response, and its size there. Raises TooLarge."""
    row_bytes = 0
    key = '"key": null, "key_format": "null"'
    if record.key is not None:
        key = render_shown_key(record.key, show_key(record.key))
    for shown in _renderings(partition, record):
        row = _render_record(record, shown, key)
        row_bytes = len(json.dumps(row)) + 2
        if row_bytes <= ANSWER_LIMIT_BYTES:
            return row, row_bytes
    raise TooLarge("answer", row_bytes, ANSWER_LIMIT_BYTES)


def _renderings(partition: int, record: LogRecord) -> Iterator[Record]:
    """The record as it is, with its value in base64, and with its value left in Kafka."""
    key, value = record.key or b"", record.value or b""
    shown = Record(key, value, partition, record.offset, record.timestamp_ms or 0, record.headers or ())
    yield shown
    yield shown._replace(form=ValueForm("base64"))
    yield shown._replace(value=b"", left_in_kafka_bytes=len(value))


def _render_record(record: LogRecord, shown: Record, key: str) -> str:
    position = {
        "partition": shown.partition,
        "offset": record.offset,
        "position": str(shown.position),
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
    }
    headers = json.dumps(None if record.headers is None else render_headers(shown))
    value = '"value_format": "null", "value": null' if record.value is None else render_value(shown, None)
    return f'{json.dumps(position)[:-1]}, {key}, "headers": {headers}, {value}}}'
