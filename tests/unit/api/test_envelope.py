"""Records as JSON documents, compared byte by byte with documents made the slow way."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.api.reads.envelope import Envelopes
from keylane.model.records import Answer, Layout, Options, Record, Watermark
from keylane.ports import Clock, WaitBudget
from keylane.query.decoding import ValueDecoder
from keylane.query.multi_get import LaneRecords
from keylane.state import codec
from keylane.state.lanes import lane_at

NOW_MS = 1_357_034_400_000
LAYOUT = Layout('fl"ights', 9)
WATERMARK = Watermark(2077, 1, complete_as_of_ms=NOW_MS - 212)
BYTES = st.one_of(
    st.binary(),
    st.text().map(str.encode),
    st.sampled_from(
        [b'{"a":1}', b' {"a": [1, {}]} ', b'{"a":', b'{"a":}', b"[1]", b"NaN", b'{"a":NaN}', b"1", b""]
    ),
)
NUMBERS = st.integers(0, 2**63)
RECORDS = st.tuples(BYTES, BYTES, st.integers(0, 8), NUMBERS, NUMBERS).map(lambda fields: Record(*fields))


def envelopes(*, as_bytes: bool = False) -> Envelopes:
    def no_schemas() -> Any:
        raise AssertionError("no value needs a schema")

    return Envelopes(NOW_MS, None, ValueDecoder(no_schemas, WaitBudget(0, Clock()), as_bytes=as_bytes))


def shown(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def is_json(text: str) -> bool:
    def refuse(_: str) -> None:
        raise ValueError

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def document(record: Record) -> str:
    key, key_format = shown(record.key)
    value, value_format = shown(record.value)
    head = {
        "topic": LAYOUT.topic,
        "partition": record.partition,
        "offset": record.offset,
        "position": str(record.position),
        "timestamp": record.timestamp_ms or None,
        "key": key,
        "key_format": key_format,
        "watermark": "3:2077",
        "age_ms": 212,
    }
    if value_format == "text" and is_json(value):
        return f'{json.dumps(head)[:-1]}, "value_format": "json", "value": {value}}}'
    return json.dumps({**head, "value_format": value_format, "value": value})


@given(RECORDS)
def test_a_record_has_all_that_is_known_of_it_and_json_as_it_was_written(record: Record):
    answer = Answer(LAYOUT, 3, record, WATERMARK)
    assert envelopes().render_row(record.key, answer) == document(record)


@given(st.lists(RECORDS | st.none(), max_size=5), st.booleans(), st.sampled_from(["auto", "text", "json"]))
def test_the_keys_of_a_lane_are_rendered_as_each_alone(found, as_bytes, value_format):
    layout = Layout("flights", 9, options=Options(value_format=value_format))
    keys = [b"k%d" % number for number in range(len(found))]
    lane = LaneRecords(layout, lane_at(layout, 3, 0), WATERMARK, keys, found)
    alone = [envelopes(as_bytes=as_bytes).render_row(key, answer) for key, answer in lane.rows()]
    assert envelopes(as_bytes=as_bytes).render_lane(lane) == alone


@pytest.mark.parametrize("other", [("flights", 4), ("trips", 3)])
def test_lanes_with_the_same_watermark_keep_their_own_topic_and_partition(other: tuple[str, int]):
    stored = codec.encode_watermark(WATERMARK)
    rendering = envelopes()
    for topic, partition in [("flights", 3), other]:
        watermark = codec.decode_watermark(bytes(bytearray(stored)))  # from Redis each lane has its own bytes
        answer = Answer(Layout(topic, 9), partition, Record(b"k", b"{}", partition, 1, 2), watermark)
        found = json.loads(rendering.render_row(b"k", answer))
        assert (found["topic"], found["watermark"]) == (topic, f"{partition}:2077")
