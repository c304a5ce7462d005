"""Records as JSON documents: the value with its position, key, headers and watermark."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, NamedTuple

from keylane.api.http import rendering
from keylane.api.http.schemas import COUNT, FLAG, KEY, POSITION, VALUE, Schema, an_object
from keylane.model.records import Answer
from keylane.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.formats.projection import Fields
    from keylane.model.records import HistoryEntry, Layout, Record, Watermark
    from keylane.query.decoding import ValueDecoder
    from keylane.query.multi_get import LaneRecords

BYTES_OF_TURN = 64 * 1024
"""Of values that are rendered before others have a turn: some milliseconds."""
_ALONE = Clock()
ROW_SCHEMA = Schema(
    "Row",
    {
        "description": "a record, or its key only, with `absent` or `history_too_short` as the reason",
        **an_object(
            optional=(*POSITION, *VALUE, "absent", "history_too_short", "since_ms"),
            **KEY,
            **POSITION,
            **VALUE,
            absent=FLAG,
            history_too_short=FLAG,
            since_ms=COUNT,
        ),
    },
)


class _LaneText(NamedTuple):
    """What the documents of a lane's records have in common.

    `layout`, `watermark`: where it comes from. `start`: a document up to its partition. `keeps_values`: no
    value of the topic is decoded. `shows_keys`: keys may be shown as JSON.
    """

    layout: Layout
    watermark: Watermark
    start: str
    freshness: str
    keeps_values: bool
    shows_keys: bool


class Envelopes:
    """Renders the records of one request; `fields` as `render_value` takes them.

    Documents are put together by hand: a page has up to a thousand of them, and json.dumps takes three times
    as long. What the records of a lane have in common is rendered once.

    `give_way`: as of `Clock`. To decode a megabyte of values, or to choose their fields, takes up to 30 ms.
    """

    def __init__(
        self,
        now_ms: int,
        fields: Fields | None,
        decoder: ValueDecoder,
        give_way: Callable[[], None] = _ALONE.give_way,
    ) -> None:
        self.now_ms = now_ms
        self._fields = fields
        self.decoder = decoder
        self._give_way = give_way
        self._bytes_of_turn = 0
        self._common: dict[tuple[int, int, int], _LaneText] = {}

    def render_row(self, key: bytes, answer: Answer) -> str:
        """Render what was found under a key: its record, or that there is none."""
        return self._render_row(self._common_of(answer), key, answer.record)

    def render_lane(self, found: LaneRecords) -> list[str]:
        """As `render_row`, of each key of a lane."""
        layout, lane, watermark, keys, records = found
        common = self._common_of(Answer(layout, lane.partition, None, watermark))
        if common.keeps_values and None not in records:
            return self._render_all(common, records)  # type: ignore[arg-type]  # none of them is None
        return [self._render_row(common, key, record) for key, record in zip(keys, records, strict=True)]

    def _render_row(self, common: _LaneText, key: bytes, record: Record | None) -> str:
        if record is None:
            return f'{{{self.render_key(common.layout, key)}, "absent": true}}'
        if not common.keeps_values:
            record = self.decoder.decode_or_explain(common.layout, record)
        return self._render_all(common, (record,))[0]

    def render_absence(self, key: bytes, answer: Answer) -> str:
        """Render that there is no record under a key, with the topic and the freshness of that."""
        head = f'"topic": {quote(answer.layout.topic)}, {self.render_key(answer.layout, key)}, "absent": true'
        return f"{{{head}, {self._freshness(answer)}}}"

    def render_key(self, layout: Layout, key: bytes) -> str:
        """Return the fields of a document that show a key of the topic, without braces."""
        return render_shown_key(key, self.decoder.show_key(layout, key))

    def render(self, answer: Answer, record: Record, picked: str | None = None) -> str:
        """Render a record whose value is decoded; `picked`: its fields, if they are rendered already."""
        return self._render_all(self._common_of(answer), (record,), picked)[0]

    def _common_of(self, answer: Answer) -> _LaneText:
        # By identity: to hash them takes as long as to render them. Both are kept, so ids stay their own.
        # Lanes, even of several topics, whose watermark records have the same bytes share one watermark.
        layout, partition, _, watermark = answer
        index = id(layout), partition, id(watermark)
        common = self._common.get(index)
        if common is None:
            start = f'{{"topic": {quote(layout.topic)}, "partition": '
            keeps_values = self.decoder.keeps_values(layout)
            shows_keys = self.decoder.shows_keys(layout)
            common = _LaneText(layout, watermark, start, self._freshness(answer), keeps_values, shows_keys)
            self._common[index] = common
        return common

    def _render_all(
        self, common: _LaneText, records: Sequence[Record], picked: str | None = None
    ) -> list[str]:
        """Render records of a lane: a call for each of them takes a twelfth longer."""
        layout, _, start, freshness, _, shows_keys = common
        fields, has_headers, documents = self._fields, layout.options.headers, []
        for record in records:
            data, value, partition, offset, timestamp_ms, *_ = record
            shown = self.decoder.show_key(layout, data) if shows_keys else None
            if shown is not None:
                key, key_format = shown, "json"
            else:
                try:
                    key, key_format = quote(data.decode()), "text"
                except UnicodeDecodeError:
                    key, key_format = quote(_as_text(data)[0]), "base64"
            headers = f', "headers": {json.dumps(render_headers(record))}' if has_headers else ""
            documents.append(
                f'{start}{partition}, "offset": {offset}, "position": "{partition}:{offset}", '
                f'"timestamp": {timestamp_ms or "null"}, "key": {key}, "key_format": "{key_format}", '
                f"{freshness}{headers}, {render_value(record, fields, picked)}}}"
            )
            self._end_turn(value)
        return documents

    def _end_turn(self, value: bytes) -> None:
        """Give way where the values since the last turn, of which this is one, were large."""
        self._bytes_of_turn += len(value)
        if self._bytes_of_turn > BYTES_OF_TURN:
            self._bytes_of_turn = 0
            self._give_way()

    def render_entry(self, layout: Layout, entry: HistoryEntry) -> str:
        """Render a record of a history; a tombstone has `"deleted": true` instead of a value."""
        at = entry.position
        head = (
            f'{{"partition": {at.partition}, "offset": {at.offset}, "position": "{at}", '
            f'"timestamp": {entry.timestamp_ms or "null"}'
        )
        if entry.record is None:
            return f'{head}, "deleted": true}}'
        if layout.options.headers:
            head += f', "headers": {json.dumps(render_headers(entry.record))}'
        decoded = self.decoder.decode_or_explain(layout, entry.record)
        value = render_value(decoded, self._fields)
        self._end_turn(decoded.value)
        return f"{head}, {value}}}"

    def _freshness(self, answer: Answer) -> str:
        text = f'"watermark": "{render_watermark(answer)}", '
        text += '"building": true' if answer.is_building else f'"age_ms": {answer.age_ms(self.now_ms)}'
        return text + ', "incomplete": true' if answer.watermark.incomplete else text


def render_key(key: bytes) -> dict[str, str]:
    """Return a key and its format."""
    text, key_format = _as_text(key)
    return {"key": text, "key_format": key_format}


def render_shown_key(key: bytes, shown: str | None) -> str:
    """Return the fields of a document that show a key, without braces. `shown`: its JSON, if it has one."""
    return json.dumps(render_key(key))[1:-1] if shown is None else f'"key": {shown}, "key_format": "json"'


def render_value(record: Record, fields: Fields | None, picked: str | None = None) -> str:
    """Return the fields of a document that show the value, or these fields of it, without braces.

    Where the value has no fields, `no_fields` and the value as it is. `picked`: the fields' JSON, if known.
    """
    if fields is None and record.form is None and record.left_in_kafka_bytes is None:
        value, value_format = rendering.as_json(record)
        return f'"value_format": "{value_format}", "value": {value}'
    if record.left_in_kafka_bytes is not None:
        left = {"value": None, "value_format": "left-in-kafka", "value_bytes": record.left_in_kafka_bytes}
        return json.dumps(left)[1:-1]
    picked = rendering.pick_fields(record, fields) if picked is None else picked
    first = ""
    if picked is not None:
        value, value_format = picked, "json"
    else:
        value, value_format = rendering.as_json(record)
        if fields is not None:
            first = '"no_fields": true, '
    if record.form is not None:
        for name in ("schema_id", "schema_type", "undecoded"):
            if (found := getattr(record.form, name)) is not None:
                first += f'"{name}": {json.dumps(found)}, '
    return f'{first}"value_format": "{value_format}", "value": {value}'


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
