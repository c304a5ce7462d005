"""Records as JSON documents: the value with its position, key, headers and watermark."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING

from keylane.api import rendering

if TYPE_CHECKING:
    from keylane.formats.projection import Fields
    from keylane.model.records import Answer, HistoryEntry, Layout, Record, Watermark
    from keylane.query.decoding import ValueDecoder


class Envelopes:
    """Renders the records of one request; `fields` as `render_value` takes them.

    Documents are put together by hand: a page has up to a thousand of them, and json.dumps takes three times
    as long. What the records of a lane have in common is rendered once.
    """

    def __init__(self, now_ms: int, fields: Fields | None, decoder: ValueDecoder) -> None:
        self.now_ms = now_ms
        self._fields = fields
        self._decoder = decoder
        self._common: dict[int, tuple[Watermark, str, str]] = {}

    def render_row(self, key: bytes, answer: Answer) -> str:
        """Render what was found under a key: its record, or that there is none."""
        if answer.record is None:
            return json.dumps({**render_key(key), "absent": True})
        return self.render(answer, self._decoder.decode_or_explain(answer.layout, answer.record))

    def render_absence(self, key: bytes, answer: Answer) -> str:
        """Render that there is no record under a key, with the topic and the freshness of that."""
        head = json.dumps({"topic": answer.layout.topic, **render_key(key), "absent": True})
        return f"{head[:-1]}, {self._freshness(answer)}}}"

    def render(self, answer: Answer, record: Record, picked: str | None = None) -> str:
        """Render a record whose value is decoded; `picked`: its fields, if they are rendered already."""
        # By identity: to hash a watermark takes as long as to render it. It is kept, so its id stays its own.
        common = self._common.get(id(answer.watermark))
        if common is None:
            common = answer.watermark, quote(answer.layout.topic), self._freshness(answer)
            self._common[id(answer.watermark)] = common
        _, topic, freshness = common
        key, key_format = _as_text(record.key)
        partition, offset = record.partition, record.offset
        head = (
            f'{{"topic": {topic}, "partition": {partition}, "offset": {offset}, '
            f'"position": "{partition}:{offset}", "timestamp": {record.timestamp_ms}, '
            f'"key": {quote(key)}, "key_format": "{key_format}", {freshness}'
        )
        if answer.layout.options.headers:
            head += f', "headers": {json.dumps(render_headers(record))}'
        return render_value(head, record, self._fields, picked)

    def render_entry(self, layout: Layout, entry: HistoryEntry) -> str:
        """Render a record of a history; a tombstone has `"deleted": true` instead of a value."""
        at = entry.position
        head = (
            f'{{"partition": {at.partition}, "offset": {at.offset}, "position": "{at}", '
            f'"timestamp": {entry.timestamp_ms}'
        )
        if entry.record is None:
            return f'{head}, "deleted": true}}'
        if layout.options.headers:
            head += f', "headers": {json.dumps(render_headers(entry.record))}'
        return render_value(head, self._decoder.decode_or_explain(layout, entry.record), self._fields)

    def _freshness(self, answer: Answer) -> str:
        text = f'"watermark": "{render_watermark(answer)}", '
        text += '"building": true' if answer.is_building else f'"age_ms": {answer.age_ms(self.now_ms)}'
        return text + ', "incomplete": true' if answer.watermark.incomplete else text


def render_key(key: bytes) -> dict[str, str]:
    """Return a key and its format."""
    text, key_format = _as_text(key)
    return {"key": text, "key_format": key_format}


def render_value(head: str, record: Record, fields: Fields | None, picked: str | None = None) -> str:
    """Complete a JSON object, given without its last brace, with the value or with these fields of it.

    Where the value has no fields, `no_fields` and the value as it is. `picked`: the fields' JSON, if known.
    """
    if fields is None and record.form is None and record.left_in_kafka_bytes is None:
        value, value_format = rendering.as_json(record)
        return f'{head}, "value_format": "{value_format}", "value": {value}}}'
    if record.left_in_kafka_bytes is not None:
        left = {"value": None, "value_format": "left-in-kafka", "value_bytes": record.left_in_kafka_bytes}
        return f"{head}, {json.dumps(left)[1:]}"
    picked = rendering.pick_fields(record, fields) if picked is None else picked
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


def render_headers(record: Record) -> list[dict[str, str | None]]:
    """Return the record's own headers. They are text by custom: none is taken for JSON."""
    return [_render_header(name, value) for name, value in record.headers]


def _render_header(name: str, value: bytes | None) -> dict[str, str | None]:
    text, value_format = (None, "null") if value is None else _as_text(value)
    return {"name": name, "value": text, "value_format": value_format}


def render_watermark(answer: Answer) -> str:
    """Return `partition:next_offset` of the lane."""
    return f"{answer.partition}:{answer.watermark.next_offset}"


def _as_text(data: bytes) -> tuple[str, str]:
    """Return bytes as text and its format: base64 where they are not UTF-8."""
    try:
        return data.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
