"""A record as a JSON document: the value with its position, key, headers and watermark."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring_ascii as spell
from typing import TYPE_CHECKING

from keylane.api import rendering

if TYPE_CHECKING:
    from keylane.formats.projection import Fields
    from keylane.model.records import Answer, Record, Watermark
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keylane.formats.projection import Fields
    from keylane.model.records import Answer


class Envelopes:
    """The JSON documents of one request's records; `fields` as in `with_value`.

    Spelled by hand: a page has up to a thousand of these, and json.dumps takes three times as long. What the
    records of a lane have in common is spelled once.
    """

    def __init__(self, now_ms: int, fields: Fields | None) -> None:
        self._now_ms = now_ms
        self._fields = fields
        self._common: dict[int, tuple[Watermark, str, str]] = {}

    def of(self, answer: Answer, record: Record) -> str:
        """The document of one record."""
        # By identity: to hash a watermark takes as long as to spell it. It is kept, so that its id is too.
        common = self._common.get(id(answer.watermark))
        if common is None:
            common = answer.watermark, spell(answer.layout.topic), self._freshness(answer)
            self._common[id(answer.watermark)] = common
        _, topic, freshness = common
        key, key_format = _key(record.key)
        partition, offset = record.partition, record.offset
        head = (
            f'{{"topic": {topic}, "partition": {partition}, "offset": {offset}, '
            f'"position": "{partition}:{offset}", "timestamp": {record.timestamp_ms}, '
            f'"key": {spell(key)}, "key_format": "{key_format}", {freshness}'
        )
        if answer.layout.options.headers:
            head += f', "headers": {json.dumps(headers_of(record))}'
        return with_value(head, record, self._fields)

    def _freshness(self, answer: Answer) -> str:
        text = f'"watermark": "{_watermark(answer)}", '
        text += '"building": true' if answer.is_building else f'"age_ms": {answer.age_ms(self._now_ms)}'
        return text + ', "incomplete": true' if answer.watermark.incomplete else text


def key_of(key: bytes) -> dict[str, str]:
    """A key and its format."""
    text, key_format = _key(key)
    return {"key": text, "key_format": key_format}


def with_value(head: str, record: Record, fields: Fields | None) -> str:
    """A JSON object, given without its last brace, with the value or its `fields` added.

    Where it has none of these, `no_fields` and the value as it is.
    """
    if fields is None and record.form is None and record.left_in_kafka_bytes is None:
        value, value_format = rendering.as_json(record)
        return f'{head}, "value_format": "{value_format}", "value": {value}}}'
    if record.left_in_kafka_bytes is not None:
        left = {"value": None, "value_format": "left-in-kafka", "value_bytes": record.left_in_kafka_bytes}
        return f"{head}, {json.dumps(left)[1:]}"
    picked = rendering.picked(record, fields)
    if picked is not None:
        value, value_format = picked, "json"
    else:
        value, value_format = rendering.as_json(record)
        if fields is not None:
            head += ', "no_fields": true'
    if record.form is not None:
        for name in ("schema_id", "schema_type", "undecoded"):
            if (found := getattr(record.form, name)) is not None:
                head += f', "{name}": {json.dumps(found)}'
    return f'{head}, "value_format": "{value_format}", "value": {value}}}'


def headers_of(record: Record) -> list[dict[str, str | None]]:
    """The record's own headers."""
    return [_header(name, value) for name, value in record.headers]


def _header(name: str, value: bytes | None) -> dict[str, str | None]:
    """Headers are text by custom: none is taken for JSON, whatever it looks like."""
    if value is None:
        return {"name": name, "value": None, "value_format": "null"}
    text, value_format = _key(value)
    return {"name": name, "value": text, "value_format": value_format}


def _watermark(answer: Answer) -> str:
    return f"{answer.partition}:{answer.watermark.next_offset}"


def _key(key: bytes) -> tuple[str, str]:
    try:
        return key.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(key).decode(), "base64"


def _row(envelopes: Envelopes, key: bytes, answer: Answer) -> str:
    """One record's envelope, or that there is none."""
    if answer.record is None:
        return json.dumps({**key_of(key), "absent": True})
    return envelopes.of(answer, answer.record)
