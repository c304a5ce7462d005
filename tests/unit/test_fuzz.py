"""Whatever bytes lie in Redis and whatever comes in a request: a value, or an error that is ours."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import (
    a_layout,
    a_watermark,
    an_application,
    an_event,
    lane_of,
    layout_entry,
    load_handler,
    produce_parts_over,
    query_settings,
    value_entry,
)
from tests.support.fakes import FakeLog, FakeState, a_runtime

from keylane.api.http import cursors
from keylane.api.http.gateway import answer
from keylane.app import produce, query
from keylane.model.records import Layout, Options, Record
from keylane.ports import Clock
from keylane.produce.put import RecordWriter
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.state import codec, redis_keys, windows
from keylane.state.aggregates import render_columns
from keylane.state.lanes import lanes_of_topic
from keylane.wiring.query import QueryParts
from keylane_spark.lanes.topic_record import Owner, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.api.http.router import Application

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
HEADERS = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=4).map(tuple)
COLUMNS = (windows.Column("n", "count"),)
RECORD = codec.encode_record(b"v", 42, 7, 3, order_ms=9, headers=(("a", b"hi"), ("b", None)))
TOPIC_RECORD = TopicRecord("id", (0, 1), Owner("host", 1, 2, 3), Layout("t", 9), (4,)).to_json()
DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "record": (lambda data: codec.decode_record(b"k", data, 0), RECORD),
    "history": (
        lambda data: codec.decode_history_entry(b"k", data, 0),
        RECORD[2:10] + RECORD[:2] + RECORD[10:],
    ),
    "watermark": (codec.decode_watermark, codec.encode_watermark(a_watermark())),
    "layout": (codec.decode_layout, codec.encode_layout(Layout("t", 9, options=Options(index=True)))),
    "topic": (TopicRecord.from_json, TOPIC_RECORD),
    "progress": (windows.Progress.from_json, windows.Progress((1, 2), (3, None)).to_json()),
    "window": (
        lambda data: render_columns(COLUMNS, windows.decode_window(data)[1]),
        b'{"end":1,"states":[2]}',
    ),
    "window key": (windows.split, windows.window_key(b"k\x00", 5)),
}
ODD = st.sampled_from(
    [b"null", b"-1", b"1e999", b"NaN", b"Infinity", b'""', b"[]", b"{}", b"[[]]", b"[" * 20_000, b"9" * 5_000]
)


@pytest.mark.parametrize("kind", DECODERS)
@given(data=st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused(kind: str, data: bytes):
    with suppress(codec.CodecError):
        DECODERS[kind][0](data)


@pytest.mark.parametrize("kind", DECODERS)
@given(data=st.data())
def test_bytes_that_were_changed_are_decoded_or_refused(kind: str, data: st.DataObject):
    decode, sound = DECODERS[kind]
    decode(sound)
    first = data.draw(st.integers(0, len(sound)))
    end = data.draw(st.integers(first, len(sound)))
    with suppress(codec.CodecError):
        decode(sound[:first] + data.draw(st.binary(max_size=4) | ODD) + sound[end:])


@pytest.mark.parametrize("kind", ["layout", "topic", "progress", "window"])
@given(data=st.data())
def test_fields_of_other_kinds_are_decoded_or_refused(kind: str, data: st.DataObject):
    decode, sound = DECODERS[kind]
    fields = json.loads(sound)
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = "<odd>"
    odd = data.draw(ODD)
    with suppress(codec.CodecError):
        decode(json.dumps(fields).encode().replace(b'"<odd>"', odd))


@given(
    value=st.none() | st.binary(max_size=40) | st.builds(codec.LeftInKafka, U64),
    offset=U64,
    timestamp_ms=U64,
    source=st.none() | U32,
    order_ms=st.none() | U64,
    headers=st.none() | HEADERS,
)
def test_envelopes_with_all_that_they_may_have_come_back(
    value: bytes | codec.LeftInKafka | None,
    offset: int,
    timestamp_ms: int,
    source: int | None,
    order_ms: int | None,
    headers: tuple[tuple[str, bytes | None], ...] | None,
):
    data = codec.encode_record(value, offset, timestamp_ms, source, order_ms=order_ms, headers=headers)
    partition = 5 if source is None else source
    kept, left = (b"", value.size_bytes) if isinstance(value, codec.LeftInKafka) else (value, None)
    expected = None
    if kept is not None:
        expected = Record(b"k", kept, partition, offset, timestamp_ms, headers or (), left)
    assert codec.decode_record(b"k", data, 5) == expected
    entry = codec.decode_history_entry(b"k", data[2:10] + data[:2] + data[10:], 5)
    assert (entry.record, entry.timestamp_ms) == (expected, timestamp_ms)
    assert (entry.position.partition, entry.position.offset) == (partition, offset)


class Functions:
    """Both functions over a state and a log with a topic `t` that keeps all."""

    def __init__(self) -> None:
        self.query, self.produce = load_handler("query"), load_handler("produce")
        self.layout = a_layout("t", 3, options=Options(index=True, history_count=5))
        state, log, clock = FakeState(layout_entry(self.layout)), FakeLog(), Clock()
        now_ms = clock.now_ms()
        mark = a_watermark(100, newest_timestamp_ms=now_ms, complete_as_of_ms=now_ms)
        for lane in lanes_of_topic(self.layout):
            state.entries[lane.watermark_key] = codec.encode_watermark(mark)
        for key in (b"a", b"b", b"c"):
            partition, stripe, tag = lane_of(self.layout, key)
            state.entries |= value_entry(self.layout, key, b'{"a": 1}')
            index = redis_keys.index_key(tag, "t", 1, partition, stripe)
            state.sorted_sets.setdefault(index, {})[key] = 0
            member = codec.encode_record(b"1", 1, 1_000)
            history = redis_keys.history_key(tag, "t", 1, key)
            state.sorted_sets[history] = {member[2:10] + member[:2] + member[10:]: 1_000}
        log.create("t", 3)
        query_parts = QueryParts(
            query_settings(wait_default_ms=0, wait_max_ms=0),
            Store(state, Layouts(state, clock, 30), clock),
            lambda: pytest.fail("no topic here has a registry's values"),
            lambda: pytest.fail("a function streams nothing"),
            a_runtime(clock).open_stream,
            a_runtime(clock).open_lines,
        )
        produce_parts = produce_parts_over(RecordWriter(log, clock, 1_048_576, 5_000))
        self.query = an_application(query.OPERATIONS, query_parts)
        self.produce = an_application(produce.OPERATIONS, produce_parts)

    def ask(self, application: Application[Any], event: dict[str, Any]) -> dict[str, Any]:
        answered = answer(application, event, None)
        json.dumps(answered)  # as the runtime does
        assert answered["statusCode"] < 500, answered
        return answered


@pytest.fixture(scope="module")
def functions() -> Functions:
    return Functions()


PIECES = st.sampled_from(
    [
        *("topics", "t", "keys", "a", "history", "keys:read", "join", "metadata", "partitions", "views"),
        *(
            "",
            ".",
            "..",
            "%2F",
            "%",
            "%zz",
            "%00",
            "%ff",
            "%C3%28",
            "é",
            "\u2028",
            " ",
            "+",
            ";x=1",
            "a" * 300,
        ),
    ]
)
PATHS = st.lists(PIECES, max_size=6).map(lambda pieces: "/" + "/".join(pieces)) | st.sampled_from(
    ["/topics/t/keys/a", "/topics/t/keys", "/topics/t/keys/a/history", "/topics/t/keys:read", "/join/a"]
)
METHODS = st.sampled_from(["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "TRACE", "", "x"])
NAMES = st.sampled_from(
    [
        *("key_format", "min_offset", "envelope", "partial", "fields", "as_of", "limit", "cursor", "prefix"),
        *("from", "to", "keys_only", "topics", "topic", "atomic", "KEY_FORMAT", ""),
    ]
)
TEXTS = st.sampled_from(
    [
        "",
        "0",
        "-1",
        "1",
        "true",
        "null",
        "base64",
        "t,t",
        "t,u",
        "3:1",
        "9" * 30,
        "2013-01-01",
        "\x00",
        "\ud800",
    ]
) | st.text(max_size=12)
HEADER_NAMES = st.sampled_from(["Prefer", "If-None-Match", "Keylane-Min-Position", "Accept", "Content-Type"])
BODIES = st.sampled_from(
    [b"", b"{}", b"[]", b'{"keys": ["a"]}', b'{"keys": ["\\ud800"]}', b'{"keys": 1}', b"[" * 50_000]
) | st.binary(max_size=30)


@settings(max_examples=400)
@given(
    method=METHODS,
    path=PATHS,
    query=st.dictionaries(NAMES, TEXTS, max_size=4),
    headers=st.dictionaries(HEADER_NAMES, TEXTS, max_size=3),
    body=st.none() | BODIES,
)
def test_any_request_is_answered_without_a_server_s_error(
    functions: Functions,
    method: str,
    path: str,
    query: dict[str, str],
    headers: dict[str, str],
    body: bytes | None,
):
    event = an_event(method, path, query=query or None, headers=headers, body=body)
    for function in (functions.query, functions.produce):
        functions.ask(function, event)


@given(position=st.binary(max_size=40))
def test_a_cursor_may_have_any_position(functions: Functions, position: bytes):
    """The checksum is not secret: a client can make a cursor that names no key and no record of a history."""
    for path, asked in (
        ("/topics/t/keys", cursors.digest("keys", b"", None, None)),
        ("/topics/t/keys/a/history", cursors.digest("history", b"a", None, None)),
    ):
        query = {"cursor": cursors.encode("t", asked, position)}
        answer = functions.ask(functions.query, an_event("GET", path, query=query))
        assert answer["statusCode"] == 200, answer["body"]


@pytest.mark.parametrize("path", ["/topics/t/keys", "/topics/t/keys/a/history"])
@given(data=st.data())
def test_a_cursor_of_other_questions_is_400_and_named(functions: Functions, path: str, data: st.DataObject):
    asked = data.draw(st.sampled_from([b"", b"12345678", cursors.digest("keys", b"a", None, None)]))
    topic = data.draw(st.sampled_from(["t", "u", "a-topic-with-a-longer-name"]))
    text = cursors.encode(topic, asked, data.draw(st.binary(max_size=20)))
    cut = data.draw(st.integers(0, len(text)))
    query = {"cursor": data.draw(st.sampled_from([text, text[:cut], text[:cut] + "A" + text[cut:]]))}
    answer = functions.ask(functions.query, an_event("GET", path, query=query))
    assert answer["statusCode"] == 400
    assert json.loads(answer["body"])["parameter"] == "cursor"
